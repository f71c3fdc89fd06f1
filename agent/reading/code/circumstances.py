"""What hazards need to be facts about a run: not what its code could do, but what this run was and did.

A need that the run denies takes the hazard away; where nothing tells, because only code is at hand, it stays.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from ...core.lazy import lazy
from ..logs.failures import failures
from ..logs.roster import roster
from ..run.program.commands import Command
from ..run.program.syntax import Syntax, constant, dotted, last, receiver
from ..run.what_ran import Program
from ..run.workspace import Workspace
from ..settings.forms.effective import Effective
from ..settings.settings import read_settings
from .conditions import PERHAPS, SURELY, UNTOLD, holds
from .printed import Printed
from .reach import Reach

LOGS, LOG, ALL = 24, 1 << 20, 6 << 20  # logs that are searched, bytes of one, bytes of all

_SEVERAL = re.compile(
    r"--(?:nproc[_-]per[_-]node|nnodes|num[_-]processes|num[_-]gpus|num[_-]machines|ntasks(?:-per-node)?)[= ]+(?!1\b)\S"
    r"|\b(?:mpirun|mpiexec|srun)\b.*\s-(?:np?|N)\s*(?!1\b)\d|\bdeepspeed\s+(?!\S*--num)|\bWORLD_SIZE=(?!1\b)\d"
    r"|(?m:^\s*(?:num_processes|num_machines|nproc_per_node|devices|n_gpus_per_node)\s*[:=]\s*(?!1\b)\d)"
)
_SPAWNS = re.compile(
    r"\bmp\.spawn\(|multiprocessing\.spawn\(|\bnprocs\s*=\s*(?!1\b)\w|\bdevices\s*=\s*(?:[2-9]|\d\d|\[)|ray\.init\("
)
_MANY = re.compile(
    r"init_process_group|LOCAL_RANK|local[_-]rank|DistributedDataParallel|setup_distributed|fully_shard|init_deepspeed"
    r"|\bDDP\(|\bFSDP\(|DistributedSampler|\brank\b|is_main_process|is_global_zero|torch\.distributed|deepspeed\.initialize|dist\.get_rank|num_processes"
)
_RANKS = re.compile(
    r"(?i)\brank[ _=:\[]{0,3}[1-9]\d*\b|\bworld[ _-]?size\b *[.=:]* *(?!1\b)\d"
    r"|\b(?:multiple|[2-9]|\d\d+) (?:processes|ranks|gpus)\b"
    r"|\bprocess \d+,? (?:of|total) (?!1\b)\d"
)
_ON_CPU = re.compile(
    r"--(?:use[_-])?cpu(?:\s|$|=true)|--no[_-]cuda(?:\s|$)|\bdevice[= :'\"]{1,4}cpu\b|\baccelerator[= :'\"]{1,4}cpu\b"
    r"|\buse_cpu['\"]?\s*[:=]\s*[Tt]rue|\bno_cuda['\"]?\s*[:=]\s*[Tt]rue|CUDA_VISIBLE_DEVICES=(?:''|\"\"|-1)?(?:\s|$)"
    r"|CUDA (?:is )?not available|GPU available: False|no accelerator is found"
    r"|(?i:\busing (?:device:? )?cpu\b|\bdevice type: cpu)"
    r"|(?im:^(?!.*(?:load|offload|map|mov|cach|gather|tokeni|optimizer)).*\bon (?:the )?cpu\b)"
)
_CPU_CODE = re.compile(
    r"\bAccelerator\([^)]*\bcpu=True|init_process_group\(\s*(?:backend=)?['\"]gloo['\"]|use_cpu=True|no_cuda=True"
)
_DEVICES = re.compile(r"cuda|nccl|gpu|device|Trainer|ccelerat|Fabric|deepspeed|xpu|hip\b|mps\b", re.IGNORECASE)
_RESUMED = re.compile(
    r"(?i)^(?!.*(?:\bno\b.*\b(?:checkpoint|ckpt)|not resum|without resum|from scratch|starting fresh))"
    r"(?:.*\b(?:resum(?:ed|ing)|restor(?:ed|ing)|going on from|continu(?:ed|ing) (?:training )?(?:from|at)"
    r"|starting (?:again )?from (?:checkpoint|ckpt|step|epoch|iteration) [\w./]*[1-9]"
    r"|(?:re)?load(?:ed|ing)\b.{0,30}\b(?:checkpoints?|ckpt|optimizer|training state)\b"
    r"|resume from (?:step|epoch|checkpoint)).*)"
)
_LOADED = re.compile(
    r"(?i)\b(?:re)?load(?:ed|ing)\b.{0,60}(?:weights|model|state|\.pth?\b|\.bin\b|\.ckpt\b)|weights? (?:loaded|from)\b"
    r"|initiali[sz](?:ed|ing) from|state_dict|WeightsUnpickler|UnpicklingError|torch\.load"
)
_RESUME_OPTION = re.compile(
    r"(?i)(?:^|[\s\-.+])(?:auto[_-]?)?(?:resume\w*|restart\w*|continue\w*|ckpt_path|load[_-]?(?:dir|checkpoint|path|from)?)"
    r"(?:['\"]?\s*[=:]\s*|\s+|$)(?P<value>[^\s#,]*)|\binit_from['\"]?\s*[=: ]\s*['\"]?(?P<init>resume)"
)
_LOAD_OPTION = re.compile(
    r"(?i)(?:^|[\s\-.+])(?:init\w*|pretrained\w*|weights\w*|checkpoint\w*|ckpt\w*|base|model_path|\w*_from)"
    r"(?:['\"]?\s*[=:]\s*|\s+)(?P<value>[^\s#,]+)"
)
_OFF = re.compile(r"(?i)^['\"]?(?:false|none|null|no|0|off|scratch|never|-\S*|~?)['\"]?[,)]?$")
_SAID = re.compile(
    r"(?i)\bresum|\brestart|\breload|\brequeue"
    r"|\b(?:re)?load(?:s|ed|ing)? (?:\w+ ){0,4}(?:checkpoint|ckpt|state|weights|model)"
    r"|\b(?:took|taken) up|\bwent on from|\bstart(?:s|ed)? from (?:a |the |my )?(?:checkpoint|ckpt)|\bfrom where"
)
_WORD = re.compile(r"[a-z_][a-z_0-9]+")
_PICKLE = re.compile(r"(?i)weights[_ ]only|unpickl|\bpickle|safe_globals|unsupported (?:class|global|operand)")
_MEMORY = re.compile(
    r"(?i)out of memory|\boom\b|oom[-_]kill|\bkilled\b|\bmemory\b|\brss\b|\bvram\b|cannot allocate|bad_alloc"
)
_GENERATES = re.compile(
    r"generat|ampling|ompletion|vllm|sglang|llm\b|\bgen\(|chat|rollout|harness|engine", re.IGNORECASE
)


class Circumstances:
    """What one run was and did, as far as hazards need it. Asked of the workspace when it is first needed."""

    def __init__(self, ws: Workspace, sources: Mapping[str, Syntax], launch: str) -> None:
        self._ws, self._sources, self._launch = ws, sources, launch

    def allow(self, source: str, line: int, needs: Iterable[str]) -> bool:
        """Whether a hazard is a fact about this run: its line ran, as far as can be told, and all its needs are met."""
        return self.reached(source, line) > UNTOLD and all(NEEDS[need](self, source, line) for need in needs)

    def was(self, needs: Iterable[str]) -> bool:
        """Whether the run was what something beside its code needs."""
        return all(NEEDS[need](self, "", 0) for need in needs)

    def trains(self, source: str, line: int) -> bool:
        """Whether a line stands in a training loop, or in a function that such a loop calls."""
        return _in_training(self._sources[source], line)

    def at_top(self, source: str, line: int) -> bool:
        """Whether a line stands in no function and no class."""
        s = self._sources.get(source)
        bodies = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return s is not None and not any(n.lineno <= line <= (n.end_lineno or 0) for n in s.every(*bodies))

    def is_followed(self, source: str) -> bool:
        """Whether a source is of a program of which it is known what calls what."""
        return any(r.whole and source in r.sources for r in self._reaches)

    def reached(self, source: str, line: int, part: ast.AST | None = None) -> int:
        """Whether a line of a source ran: `conditions.NO`, `UNTOLD`, `PERHAPS` or `SURELY`."""
        if (source.rsplit("/", 1)[-1], line) in self._frames:
            return SURELY
        found = [r.of(source, line, part) for r in self._reaches if source in r.sources]
        return max(found) if found else UNTOLD if source in self._too_many else PERHAPS

    @lazy
    def _frames(self) -> frozenset[tuple[str, int]]:
        """Base names and lines that tracebacks name."""
        frames = (f for unit in failures(self._ws).units[:50] for f in unit.frames)
        return frozenset((f.path.replace("\\", "/").rsplit("/", 1)[-1], f.number) for f in frames)

    @lazy
    def _reaches(self) -> list[Reach]:
        return list(self._made())

    @lazy
    def _too_many(self) -> frozenset[str]:
        """Sources of programs that are too large to be followed, except those that were started."""
        programs = [p for p in self._ws.ran.programs if not self._at_hand(p)]
        return frozenset(n for p in programs for n in p.reached) - {p.file.name for p in self._ws.ran.programs}

    def _at_hand(self, program: Program) -> bool:
        return all(n in self._sources for n in program.reached)

    def _made(self) -> Iterator[Reach]:
        code = read_settings(self._ws).code
        for program in self._ws.ran.programs:
            if not self._at_hand(program):
                continue
            sources = {n: self._sources[n] for n in program.reached}
            names = {n.rsplit("/", 1)[-1]: n for n in sources}
            failed = frozenset((names[base], line) for base, line in self._frames if base in names)
            printed = Printed(self._printed_by(program), sources)
            decided = partial(self._decided, code, program.file.name, printed)
            yield Reach(self._ws.ran, program, sources, self._log_of(program.logs), failed, decided, self._said)

    def _decided(
        self, code: Effective | None, program: str, printed: Printed, source: str, test: ast.expr
    ) -> bool | None:
        """Whether a condition holds: by what the program printed or was given, or because the run was on the CPU."""

        def part(of: ast.expr) -> bool | None:
            found = printed.holds(of)
            found = code.decided(program, source, of) if found is None and code is not None else found
            return _without_cuda(self._sources[source], of) if found is None and self._says_cpu else found

        found = holds(test, part)
        return code.decided(program, source, test) if found is None and code is not None else found

    def _printed_by(self, program: Program) -> dict[str, Any]:
        """Arguments that the program's logs show, where they agree."""
        values: dict[str, list[Any]] = defaultdict(list)
        for s in read_settings(self._ws).all:
            if s.used and s.place.format == "text" and s.file.name in program.logs:
                values[s.key].append(s.value)
        return {key: held[0] for key, held in values.items() if all(v == held[0] for v in held)}

    @lazy
    def _says_cpu(self) -> bool:
        return any(map(_ON_CPU.search, [*self._asked, *self._logs]))

    @lazy
    def _said(self) -> frozenset[str]:
        """Words of the commands, of configs and of the logs' heads, in small letters."""
        return frozenset(_WORD.findall("\n".join([*self._asked, self._launch, *self._logs]).lower()))

    def _log_of(self, names: list[str]) -> Callable[[str], bool] | None:
        files = [f for f in self._ws.files if f.name in names]
        if not files or sum(f.size for f in files) > ALL or any(f.path.suffix in (".gz", ".zst", ".xz") for f in files):
            return None
        texts = [self._ws.read(f, ALL) for f in files]
        return lambda anchor: any(anchor.encode() in text for text in texts)

    # ----------
    # What was so in the run.

    @lazy
    def _logs(self) -> list[str]:
        """Texts of the logs' heads."""
        files = [f for f in self._ws.by_role("log", "capture") if not f.good][:LOGS]
        return [self._ws.text(f, LOG) for f in files]

    @lazy
    def _commands(self) -> list[Command]:
        return [c for p in self._ws.ran.programs for c in p.commands]

    @lazy
    def _asked(self) -> list[str]:
        """Commands as they were given, and the configs that programs loaded."""
        loaded = {n for p in self._ws.ran.programs for n in p.configs}
        configs = [self._ws.text(f, 64 << 10) for f in self._ws.by_role("config") if f.name in loaded]
        given = [" ".join((*(f"{k}={v}" for k, v in c.variables), c.text, *c.arguments)) for c in self._commands]
        return [*given, *configs]

    @lazy
    def several(self) -> bool:
        """Whether the run was several processes."""
        if any(map(_SEVERAL.search, [*self._asked, self._launch])) or self._code(_SPAWNS):
            return True
        if not self._logs and not self._commands:
            return not self._sources or self._code(_MANY)  # only code is at hand: what it is written for counts
        seen = roster(self._ws)
        ranked = any(f.rank for f in self._ws.files) or len(seen.ranks) > 1 or (seen.world or 0) > 1
        return ranked or any(map(_RANKS.search, self._logs)) or bool(_RANKS.search(self._ws.question))

    @lazy
    def on_cpu(self) -> bool:
        """Whether the run says that it was on the CPU, or its code knows of no other device."""
        if self._says_cpu or self._code(_CPU_CODE):
            return True
        return any(self._whole) and not self._code(_DEVICES)

    @lazy
    def _whole(self) -> list[bool]:
        return [r.whole for r in self._reaches]

    @lazy
    def resumes(self) -> bool:
        """Whether something went on from a state that was saved before."""
        if any(_given(_RESUME_OPTION, text) for text in self._asked) or _SAID.search(self._ws.question):
            return True
        if any(_RESUMED.match(line) for text in self._logs for line in text.splitlines() if len(line) < 2000):
            return True
        if any((f.attempt or 0) > 1 for f in self._ws.files) or self._restores():
            return True
        return not self._logs and not self._commands

    def _restores(self) -> bool:
        """Whether a line that gives an optimizer its state back surely ran."""
        return any(
            "optim" in dotted(receiver(call)).lower() and self.reached(name, call.lineno) == SURELY
            for name, s in self._sources.items()
            for call in s.calls_of("load_state_dict")
        )

    @lazy
    def loads(self) -> bool:
        """Whether weights or a state were read back from a file."""
        said = self.resumes or any(_given(_LOAD_OPTION, text) for text in self._asked)
        return said or any(map(_LOADED.search, self._logs))

    @lazy
    def unpickling_refused(self) -> bool:
        """Whether a load was refused for what a pickle holds, or is asked about as such."""
        return self._speaks(_PICKLE)

    @lazy
    def memory_short(self) -> bool:
        """Whether memory ran short, or is asked about."""
        return self._speaks(_MEMORY)

    def _speaks(self, pattern: re.Pattern[str]) -> bool:
        return any(map(pattern.search, [*self._logs, self._ws.question])) or not (self._logs or self._commands)

    @lazy
    def generates(self) -> bool:
        return self._code(_GENERATES)

    def _code(self, pattern: re.Pattern[str]) -> bool:
        """Whether a source has such a text."""
        return any(pattern.search(s.source) for s in self._sources.values())


_DEVICES_NAMED = ("type", "device", "device_type")  # `x.device.type == "cuda"`


def _without_cuda(s: Syntax, test: ast.expr, depth: int = 0) -> bool | None:
    """Whether a condition without `and`, `or` and `not` holds without a GPU; None where that decides nothing."""
    if isinstance(test, ast.IfExp):  # True if torch.cuda.is_available() else False
        side = holds(test.test, lambda part: _without_cuda(s, part, depth))
        chosen = constant(test.body if side else test.orelse)
        return chosen if side is not None and isinstance(chosen, bool) else None
    if isinstance(test, ast.Call):
        return False if dotted(test.func).endswith("cuda.is_available") else None
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Gt) and isinstance(test.left, ast.Call):
        return False if dotted(test.left.func).endswith("cuda.device_count") else None
    if isinstance(test, ast.Compare) and constant(test.comparators[0]) == "cuda" and last(test.left) in _DEVICES_NAMED:
        return isinstance(test.ops[0], ast.NotEq) if isinstance(test.ops[0], ast.Eq | ast.NotEq) else None
    if isinstance(test, ast.Name | ast.Attribute) and depth < 2:
        name = dotted(test)
        set_to = [n.value for n in s.every(ast.Assign) if any(dotted(t) == name for t in n.targets)]
        return holds(set_to[0], lambda part: _without_cuda(s, part, depth + 1)) if len(set_to) == 1 else None
    return None


def _given(option: re.Pattern[str], text: str) -> bool:
    """Whether an option is given a value that switches it on; a switch needs none."""
    for m in option.finditer(text):
        value = next((v for v in m.groupdict().values() if v is not None), "")
        if not _OFF.match(value) or not value:
            return True
    return False


def _in_training(s: Syntax, line: int) -> bool:
    """Whether a line stands in a loop with a backward pass or a step, or in a function that such a loop calls."""
    loops = [n for c in s.calls if last(c.func) in _TRAINS if (n := s.loop_of(c)) is not None]
    called = {last(c.func) for loop in loops for c in s.calls if _within(loop, c.lineno)}
    return any(_within(n, line) for n in (*loops, *(f for f in s.functions if f.name in called)))


_TRAINS = frozenset({"backward", "manual_backward", "step", "optimizer_step", "train_step", "training_step"})


def _within(node: object, line: int) -> bool:
    return getattr(node, "lineno", 0) <= line <= (getattr(node, "end_lineno", 0) or 0)


# What a detector may ask for in its declaration, beside that its line was reached.
NEEDS: dict[str, Callable[[Circumstances, str, int], bool]] = {
    "loop": lambda run, source, line: run.trains(source, line),
    "several_processes": lambda run, source, line: run.several,
    "gpu": lambda run, source, line: not run.on_cpu,
    "resumes": lambda run, source, line: run.resumes,
    "loads": lambda run, source, line: run.reached(source, line) == SURELY or run.loads,
    "unpickling_refused": lambda run, source, line: run.unpickling_refused,
    "memory_short": lambda run, source, line: run.memory_short,
    "generates": lambda run, source, line: run.generates,
}
