"""What a restart does, by cause, and which nodes are to be left out: those at fault, not those that report it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..core.deadline import Deadline
from ..core.own_files import KNOWLEDGE, read_table
from ..core.report import Choice, Report, Restart
from ..core.types import Evidence
from ..reading.checkpoints.checks.checks_verdict import first_trouble, judged
from ..reading.checkpoints.layouts import Checkpoint, checkpoints
from ..reading.curves.curves import curves
from ..reading.logs.roster import roster
from ..reading.settings.settings import read_settings
from ..verdict.planner import HEALTHY, INSUFFICIENT
from ..verdict.predicates import Facts

if TYPE_CHECKING:
    from ..reading.run.workspace import Workspace

MANY = 3  # nodes from which "all of them" is no fault of one


@dataclass(frozen=True, slots=True)
class Outcome:
    """What starting again does for some causes, as `knowledge/restart.yaml` explains it."""

    advice: str
    again: str
    carried: bool = False
    returns: bool = False
    find: str = ""
    culprit: frozenset[str] = frozenset()


@cache
def outcomes() -> dict[str, Outcome]:
    """What a restart does, by cause."""
    groups: list[dict[str, Any]] = read_table(KNOWLEDGE / "restart.yaml")
    return {
        cause: Outcome(
            g["advice"], g["again"], g.get("carried", False), g.get("returns", False),
            " ".join(g.get("find", "").split()), frozenset(g.get("culprit", ())),
        )
        for g in groups for cause in g["causes"]
    }  # fmt: skip


def outcome_of(cause: str | None) -> Outcome:
    """What a restart does for a cause; for one of a team's own that is in no group, that it needs its repair."""
    return outcomes().get(cause or "", Outcome("fix_first", "As it is, the job fails again."))


def advise(cause: str, proof: list[Evidence], facts: Facts, failed_at: int | None) -> Restart | None:
    """The advice for a verdict; None where there is nothing to start again.

    Args:
        proof: the evidence that bears the verdict; its hosts are left out where the fault is theirs.
        failed_at: step of the first failure, where it is known.
    """
    if cause in (HEALTHY, INSUFFICIENT):
        return None
    outcome = outcome_of(cause)
    restart = Restart.model_validate({"advice": outcome.advice})
    if outcome.advice == "restart_excluding":
        restart.exclude = culprits(outcome, proof, facts)
    saved = next((e for e in facts.get("checkpoint.last_clean") if e.kind != "absent"), None)
    if saved is not None:
        restart.from_checkpoint = str(saved.value)
        if failed_at is not None and saved.step is not None and failed_at > saved.step:
            restart.lost_steps = failed_at - saved.step
    return restart


def culprits(
    outcome: Outcome, proof: Iterable[Evidence], facts: Facts, host_of: Callable[[int], str | None] = lambda rank: None
) -> list[str]:
    """The nodes that the proof itself names as those at fault; none where it names every node of several.

    A line in a rank's log that reports the trouble names no culprit: every peer of a lost card reports it.

    Args:
        host_of: the host of a rank, for evidence that knows its rank alone.
    """
    named: dict[str, None] = {}
    for e in proof:
        if e.key not in outcome.culprit or e.kind in ("absent", "asked", "document"):
            continue
        host = _node_named(e) or e.host or (host_of(e.rank) if e.rank is not None else None)
        if host:
            named.setdefault(host)
    everyone = {e.host for found in facts.by_key.values() for e in found if e.host}
    return [] if len(named) >= MANY and everyone <= set(named) else sorted(named)


def _node_named(e: Evidence) -> str | None:
    """The node that Slurm's row or the comparison of steps is about: it leads the value."""
    if e.key in ("slurm.node_reason", "slurm.node_state"):
        return str(e.value).split()[0].rstrip(":") if str(e.value).strip() else None
    return str(e.value) if e.key == "skew.slow_host" and isinstance(e.value, str) else None


# ----------
# What going back costs: steps to be done again, and the hours of all GPUs that they took. Known, or not told.

_REACHED = ("error.first", "loss.first_nan_step", "memory.oom", "watchdog.timeout", "loss.final_value")


@dataclass(frozen=True, slots=True)
class Cost:
    """How far the run came, what a step took and on how many GPUs; None where the run does not say.

    `seconds` are per step, the median of what the run measured or stamped.
    """

    reached: int | None = None
    seconds: float | None = None
    gpus: int | None = None

    def lost(self, step: int | None) -> tuple[int | None, float | None]:
        """Steps and GPU-hours since `step`."""
        if self.reached is None or step is None or step > self.reached:
            return None, None
        steps = self.reached - step
        if self.seconds is None or self.gpus is None:
            return steps, None
        return steps, round(steps * self.seconds * self.gpus / 3600, 2)


def cost_of(ws: Workspace, facts: Facts, failed_at: int | None) -> Cost:
    """The cost as the run's own numbers give it."""
    own = [s for s in curves(ws).series if not s.file.good and s.stepped and len(s.steps)]
    steps = [int(s.steps.max()) for s in own]
    steps += [e.step for key in _REACHED for e in facts.get(key) if e.step is not None]
    steps += [failed_at] if failed_at is not None else []
    return Cost(max(steps, default=None), _seconds(facts), _gpus(ws, facts))


def _seconds(facts: Facts) -> float | None:
    told = [e for e in facts.get("step_time.median") if e.kind != "absent"]
    values = [float(e.value) for e in told if isinstance(e.value, int | float) and e.value > 0]
    return values[0] if values else None


def _gpus(ws: Workspace, facts: Facts) -> int | None:
    """As many as there are ranks: what the log says, else what the run's settings say without a default."""
    for e in facts.get("rank.world_size"):
        if e.kind != "absent" and isinstance(e.value, int) and e.value > 0:
            return e.value
    settings = read_settings(ws)
    if (size := _whole(settings.value("world_size"))) is not None:
        return size
    nodes, each = _whole(settings.value("nodes")), _whole(settings.value("processes_per_node"))
    return nodes * each if nodes is not None and each is not None else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


# ----------
# Which framework writes a run's checkpoints, and what makes it go on from one of them.

# What a run's settings may be of, from those that wrap others to those that are wrapped.
_OUTER = (
    "slime", "verl", "openrlhf", "nemo_rl", "torchtitan", "torchtune", "llamafactory", "axolotl", "swift", "unsloth",
    "llava", "sft", "trl", "automodel", "nemo", "diffusers", "lightning", "megatron", "hf", "accelerate", "deepspeed",
    "nanogpt", "llama_recipes", "vllm", "sglang",
)  # fmt: skip
# Which of them write checkpoints of a layout; the layout's own name stands for itself.
_WRITES = {
    "hf": ("llamafactory", "axolotl", "swift", "unsloth", "llava", "sft", "trl", "hf"),
    "peft": ("llamafactory", "axolotl", "swift", "unsloth", "sft", "trl", "torchtune", "hf"),
    "deepspeed": ("openrlhf", "llamafactory", "axolotl", "swift", "sft", "trl", "hf"),
    "megatron": ("slime", "nemo", "megatron"),
    "megatron_dist": ("slime", "nemo", "megatron"),
    "dcp": ("torchtitan", "automodel", "nemo", "slime", "megatron"),
    "lightning": ("nemo", "lightning"),
    "accelerate": ("diffusers",),
    "torch": ("torchtune", "nanogpt"),
}


@cache
def _templates() -> dict[str, list[str]]:
    table: dict[str, Any] = read_table(KNOWLEDGE / "resume.yaml")
    return {name: [str(line) for line in lines] for name, lines in table.items()}


def framework_of(ws: Workspace) -> str:
    """The outermost framework that the run's own settings speak to; empty where none is known."""
    return _first(_OUTER, {s.framework for s in read_settings(ws).sources if not s.file.good and s.framework})


def writer_of(ws: Workspace, layout: str) -> str:
    """The framework of a checkpoint: the one of the run's that writes this layout, else the layout's own name."""
    spoken = {s.framework for s in read_settings(ws).sources if not s.file.good}
    return _first(_WRITES.get(layout, ()), spoken) or layout


def commands(framework: str, path: Path, step: int | None) -> list[str]:
    """What to add to the launch command, the config or the script so that it goes on from a checkpoint.

    A line that needs a step is left out where the checkpoint names none; nothing is known of some frameworks.
    """
    found = []
    for template in _templates().get(framework, ()):
        if "{step}" in template and step is None:
            continue
        quoted = repr if _is_python(template) else shlex.quote
        names = {"path": path, "folder": path.parent, "name": path.name}
        found.append(template.format(step=step, **{name: quoted(str(value)) for name, value in names.items()}))
    return found


def _is_python(template: str) -> bool:
    return "(" in template


def _first(order: Iterable[str], known: set[str]) -> str:
    return next((name for name in order if name in known), "")


# ----------
# The checkpoints a run can go on from, the newest clean one from before the trouble first, and what each costs.

READ_AT_ONCE = 256 << 20  # bytes of checkpoints that are read whole while the report is made
FILES_AT_ONCE = 256
SECONDS = 5.0  # for all reading here
LOOKED_AT = 4  # newest checkpoints that may be judged here
SHOWN = 3
BEGINNING = "the beginning"
Word = Literal["clean", "damaged", "unknown"]


@dataclass(frozen=True, slots=True)
class Trouble:
    """The first anomaly of the curves: its step and its name in words."""

    step: int
    what: str


def choices(ws: Workspace, facts: Facts, cost: Cost, *, carried: bool) -> list[Choice]:
    """Where to go on from, the best first; empty where no checkpoint is among the files of the run.

    Args:
        carried: what the run saved carries the fault, whenever it was saved.
    """
    held = [c for c in checkpoints(ws) if not c.good]
    trouble = _trouble(ws, facts) if held else None
    before = [c for c in reversed(held) if not _after(c, trouble)]
    known = dict(_verdicts(ws, facts, before))
    usable = [c for c in before if known.get(_key(c), ("unknown", ""))[0] != "damaged"]
    usable.sort(key=lambda c: known.get(_key(c), ("unknown", ""))[0] != "clean")  # stable: newest first within each
    passed = list(_passed_over(held, before, known, trouble))
    found = [_choice(ws, c, cost, known.get(_key(c), ("unknown", "")), trouble) for c in usable[:SHOWN]]
    if held and cost.reached and (carried or not found):
        why = "every checkpoint of this run carries the fault" if carried else "no checkpoint here can be used"
        found.insert(0, beginning(cost, why))
    if found and passed:
        found[0].why = "; ".join(filter(None, [found[0].why, *passed[:3]]))
    return found


def beginning(cost: Cost, why: str) -> Choice:
    """Everything once more."""
    steps, hours = cost.lost(0)
    return Choice(checkpoint=BEGINNING, step=0, lost_steps=steps, lost_gpu_hours=hours, why=why)


def _trouble(ws: Workspace, facts: Facts) -> Trouble | None:
    """Where the curves first go wrong; an absent one, where the log says no steps, cuts off nothing."""
    found = first_trouble(ws)
    if found is not None and found.step is not None:
        return Trouble(found.step, f"{_WORDS.get(found.key, found.key)} at step {found.step}")
    steps = [e.step for e in facts.get("loss.first_nan_step") if e.step is not None and e.kind != "absent"]
    return Trouble(min(steps), f"the loss became not finite at step {min(steps)}") if steps else None


_WORDS = {
    "loss.first_nan_step": "the loss became not finite",
    "loss.diverged": "the loss left its course",
    "grad_norm.nonfinite_step": "the gradient norm became not finite",
    "loss.spike_step": "the loss leapt",
    "grad_norm.spike_step": "the gradient norm leapt",
}


def _after(checkpoint: Checkpoint, trouble: Trouble | None) -> bool:
    """Saved at or after the anomaly. One that names no step is taken to be after it."""
    return trouble is not None and (checkpoint.step is None or checkpoint.step >= trouble.step)


def _key(checkpoint: Checkpoint) -> tuple[str, str]:
    return checkpoint.run, checkpoint.name


def _verdicts(
    ws: Workspace, facts: Facts, newest_first: list[Checkpoint]
) -> Iterator[tuple[tuple[str, str], tuple[Word, str]]]:
    """What is known of each: what a check has found, else what little reading finds of the newest."""
    told = {(e.run, e.member): e for e in facts.get("checkpoint.verdict") if e.kind != "absent"}
    room = READ_AT_ONCE
    with Deadline(SECONDS):
        for number, checkpoint in enumerate(newest_first):
            if (e := told.get(_key(checkpoint))) is not None:
                yield _key(checkpoint), (_word(e.value), e.text.split(": ", 2)[-1])
            elif number < LOOKED_AT and len(checkpoint.all) <= FILES_AT_ONCE:
                verdict = judged(ws, checkpoint, "full" if checkpoint.size <= room else "structure")
                room -= checkpoint.size if checkpoint.size <= room else 0
                yield _key(checkpoint), (verdict.word, verdict.why)


def _word(value: object) -> Word:
    return "clean" if value == "clean" else "damaged" if value == "damaged" else "unknown"


def _passed_over(
    held: list[Checkpoint], before: list[Checkpoint], known: dict[tuple[str, str], tuple[Word, str]],
    trouble: Trouble | None,
) -> Iterator[str]:  # fmt: skip
    """Why newer ones are not chosen, one sentence each."""
    late = [c for c in held if c not in before]
    if late and trouble is not None:
        names = ", ".join(c.name for c in late[-3:])
        more = f" and {len(late) - 3} older" if len(late) > 3 else ""
        when = "names no step, so it may be" if len(late) == 1 and late[0].step is None else "saved"
        yield f"not {names}{more}: {when} after {trouble.what}"
    for c in before:
        word, why = known.get(_key(c), ("unknown", ""))
        if word == "damaged":
            yield f"not {c.name}: damaged, {why}"


def _choice(
    ws: Workspace, checkpoint: Checkpoint, cost: Cost, verdict: tuple[Word, str], trouble: Trouble | None
) -> Choice:
    word, because = verdict
    path = _path(ws, checkpoint)
    steps, hours = cost.lost(checkpoint.step)
    when = f"from before {trouble.what}" if trouble else ""
    resume = commands(writer_of(ws, checkpoint.framework), path, checkpoint.step)
    if word != "clean":
        root = _root(ws, checkpoint)
        verify = f"doctor tool verify-checkpoint {shlex.quote(str(root))} --path {shlex.quote(checkpoint.name)}"
        when = "; ".join(filter(None, [when, f"not proved clean ({because or 'not read'}), so first: {verify}"]))
    return Choice(
        checkpoint=checkpoint.name, step=checkpoint.step, clean=True if word == "clean" else None, lost_steps=steps,
        lost_gpu_hours=hours, resume=resume, why=when,
    )  # fmt: skip


def _root(ws: Workspace, checkpoint: Checkpoint) -> Path:
    number = int(checkpoint.run.removeprefix("r") or 1) - 1
    roots = [*ws.roots, *ws.good]
    return roots[number].absolute() if number < len(roots) else ws.roots[0].absolute()


def _path(ws: Workspace, checkpoint: Checkpoint) -> Path:
    """Where it lies on this machine: its folder, or its file where it is one."""
    root = _root(ws, checkpoint)
    inner = checkpoint.name.removeprefix(f"{checkpoint.run}/") if len(ws.roots) + len(ws.good) > 1 else checkpoint.name
    path = root if not checkpoint.folder and checkpoint.name == root.name else root / inner
    return path if path.exists() else checkpoint.tensor_files[0].path


# ----------
# The advice of a report made whole: choices of a checkpoint, what each costs, and how the node at fault is found.


def complete(report: Report, facts: Facts, ws: Workspace) -> None:
    """Fill in what the files of the run tell about starting again. A report without advice stays as it is."""
    restart, cause = report.restart, report.root_cause.id
    if restart is None:
        return
    outcome = outcome_of(cause)
    cost = cost_of(ws, facts, report.root_cause.first_failure.step)
    restart.choices = choices(ws, facts, cost, carried=outcome.carried)
    if restart.choices:
        best = restart.choices[0]
        sure = best.clean or best.checkpoint == BEGINNING
        restart.from_checkpoint = best.checkpoint if best.clean else None
        restart.lost_steps, restart.lost_gpu_hours = (best.lost_steps, best.lost_gpu_hours) if sure else (None, None)
    elif cost.reached and restart.advice in ("restart", "restart_excluding"):
        restart.choices = [beginning(cost, "no checkpoint is among these files; name their folder with --run too")]
    if restart.advice == "restart_excluding":
        restart.exclude = culprits(outcome, proof_of(report, facts), facts, lambda rank: _host_of(ws, facts, rank))
        if not restart.exclude and outcome.find:
            report.next_steps.append(outcome.find)


def proof_of(report: Report, facts: Facts) -> list[Evidence]:
    """What the verdict stands on."""
    ids = {link.evidence for link in report.chain if link.role == "cause"}
    ids |= {i for d in report.differential[:1] if d.id == report.root_cause.id for i in d.supported_by}
    return [e for found in facts.by_key.values() for e in found if e.id in ids]


def _host_of(ws: Workspace, facts: Facts, rank: int) -> str | None:
    """The host of a rank: by its log's name, else by what any other line of it says."""
    member = roster(ws).members.get(rank)
    if member is not None and member.file.host:
        return member.file.host
    hosts = {e.host for found in facts.by_key.values() for e in found if e.rank == rank and e.host}
    return next(iter(hosts)) if len(hosts) == 1 else None
