"""Which of all evidence a report shows: what decided, where it broke, and what stands beside it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from ..core.report import Sentence
from ..core.types import Evidence, Hypothesis
from .predicates import Facts
from .ranking import GOOD_END, evidence_of

# What always bears on a failure, most telling first, with how many lines of each are shown.
CONTEXT: tuple[tuple[str, int], ...] = (
    ("error.first", 1),
    ("error.user_frame", 2),
    ("error.message", 3),
    ("error.native_crash", 1),
    ("job.failed", 1),
    ("job.hang_seconds", 1),
    ("job.ended_by", 1),
    ("job.died_first", 1),
    ("slurm.failed", 1),
    ("slurm.cancelled_by", 1),
    ("slurm.requeued", 1),
    ("error.bare_kill", 1),
    ("memory.oom", 1),
    ("rank.silent_while_others_fail", 1),
    ("stack.rank_odd_one_out", 2),
    ("stack.process_odd_one_out", 1),
    ("stack.group", 4),
    ("stack.workers_stuck", 1),
    ("flight.mismatch", 1),
    ("flight.rank_behind", 1),
    ("flight.p2p_unpaired", 1),
    ("flight.missing_rank", 1),
    ("flight.frame", 2),
    ("replica.parameters_differ", 2),
    ("skew.slow_rank", 1),
    ("run.silent_end", 1),
    ("loss.first_nan_step", 1),
    ("loss.spike_step", 1),
    ("loss.equals_ln", 1),
    ("loss.zero", 1),
    ("eval.first_nan_step", 1),
)

# What a reader wants beside the proof, by the family of the verdict.
BESIDE: dict[str, tuple[tuple[str, int], ...]] = {
    "env": (("env.version.cuda_toolkit", 1), ("env.version.driver", 1), ("env.version.cuda", 1),
            ("env.version.torch", 1), ("env.gpu", 1), ("env.package_conflict", 2)),
    "dist": (("rank.counts_differ", 2), ("watchdog.timeout", 2), ("nccl.version", 1), ("env.version.nccl", 1),
             ("nccl.p2p", 1), ("nccl.connection", 1), ("rank.silent_done", 1)),
    "hw": (("gpu.xid", 4), ("gpu.ecc_uncorrectable", 1), ("gpu.remap_failure", 1), ("gpu.recovery_action", 1)),
    "loss": (("compare.only_difference", 2), ("compare.setting_differs", 2), ("variant.nonfinite_alone", 1),
             ("variant.finite", 1), ("variant.worst", 1), ("variant.best", 1), ("loss.initial_value", 2),
             ("loss.final_value", 1), ("grad_norm.max", 2), ("learning_rate.peak", 1)),
    "rl": (("compare.only_difference", 2), ("compare.setting_differs", 2), ("variant.worst", 1), ("variant.best", 1),
           ("settings.asked.temperature", 1), ("settings.used.temperature", 1), ("grad_norm.max", 2),
           ("reward.mean_last", 1)),
    "moe": (("aux_loss.value", 1), ("expert.max_over_mean", 1), ("settings.asked.moe_topk", 1),
            ("loss.final_value", 1)),
    "ckpt": (("compare.setting_differs", 2), ("resume.from_step", 1), ("loss.initial_value", 2),
             ("loss.final_value", 1)),
    "data": (("compare.counts_differ", 2), ("settings.asked.vocab_size", 1), ("settings.asked.sequence_length", 1),
             ("loss.initial_value", 1)),
    "memory": (("memory.frame", 2), ("memory.asked_bytes", 1), ("settings.asked.micro_batch_size", 1),
               ("settings.asked.sequence_length", 1), ("settings.asked.engine_memory_fraction", 1),
               ("settings.asked.processes_per_node", 1), ("settings.asked.activation_checkpointing", 1)),
    "speed": (("step_time.median", 2), ("data_time.fraction", 1), ("throughput.value", 1),
              ("compare.setting_differs", 2), ("settings.asked.dataloader_workers", 1), ("pace.slower_with", 2),
              ("pace.slower_ratio", 2), ("storage.data_on_network", 2), ("step_share.generation", 1)),
    "eval": (("variant.worst", 1), ("variant.best", 1), ("accuracy.value", 2)),
    "none": (("loss.initial_value", 1), ("loss.final_value", 1), ("grad_norm.max", 1)),
}  # fmt: skip


def beside(cause: str, facts: Facts) -> list[Evidence]:
    """Lines that belong to a verdict of this family: versions of the packages that fail, the variants, the ranks."""
    family = cause.split(".")[0]
    found = [e for key, most in BESIDE.get(family, ()) for e in facts.get(key)[:most] if e.kind == "line"]
    if family == "env":
        told = [e for k in ("error.library", "error.message", "error.frame") for e in facts.get(k)]
        said = " ".join(f"{e.value} {e.text}" for e in told).lower()
        named = [k for k in facts.by_key if k.startswith("env.version.") and _stem(k) in said]
        found = [*(facts.get(k)[0] for k in named if k != "env.version.python"), *found]
    return _distinct(found, 6)


def _stem(key: str) -> str:
    """`env.version.accelerate` -> `accelera`: the package as it shows in the names of its classes."""
    name = key.removeprefix("env.version.")
    return name[:8] if len(name) > 8 else name


def decisive(hypothesis: Hypothesis | None, facts: Facts, limit: int = 12) -> list[Evidence]:
    """What the leading hypothesis stands on, one piece per line of a file, most specific first."""
    if hypothesis is None:
        return []
    return _distinct(evidence_of(hypothesis, facts), limit)


def context(facts: Facts) -> list[Evidence]:
    """Where the run broke, whatever the verdict."""
    return _distinct((e for key, most in CONTEXT for e in facts.get(key)[:most] if e.kind != "asked"), 16)


def telling(facts: Facts) -> list[Evidence]:
    """Lines of small files that speak of a difference or a fault; they decide nothing."""
    return _distinct(facts.get("log.telling"), 8)


def cascade(facts: Facts, limit: int = 4) -> list[Evidence]:
    """Lines that only follow from the failure."""
    return _distinct(facts.get("error.cascade"), limit)


def _distinct(evidence: Iterable[Evidence], limit: int) -> list[Evidence]:
    out: dict[object, Evidence] = {}
    for e in evidence:
        if e.kind == "asked":
            continue
        # two tools may say the same of one file
        out.setdefault((e.file, e.line) if e.line else (e.key, str(e.value), e.file, e.member, e.text), e)
    return list(out.values())[:limit]


# ----------
# Evidence in sentences. Each sentence quotes what it cites, so that it passes the gate by construction.

# What says more as a sentence of its own than as place and quotation.
IN_WORDS = {
    "stack.group": "{value}.",
    "stack.rank_odd_one_out": "Rank {value} stands elsewhere than the others: {quote}.",
    "flight.rank_behind": "Rank {value} is behind the others: {quote}.",
    "skew.slow_rank": "Rank {value} is the slow one: {quote}.",
}
# Here the line says it all: the number only repeats it, or is how a tool ranked the line.
_NUMBER_UNTOLD = ("error.", "settings.", "log.")
QUOTE = 180  # characters of a line that a sentence quotes


def place(e: Evidence) -> str:
    """Where a piece of evidence stands: `logs/rank3.log:812`, a command, or the tool that looked."""
    if e.file and e.line:
        return f"{e.file}:{e.line}"
    return e.file or " ".join(e.argv or ()) or e.tool


def quote(text: str, limit: int = QUOTE) -> str:
    """A line between curly quotes, cut at a word with an ellipsis."""
    text = " ".join(text.split())
    if len(text) > limit:
        text = text[:limit].rsplit(" ", 1)[0] + "\u2026"
    return f"\u201c{text}\u201d"


def sentence(e: Evidence) -> Sentence:
    """One observed fact in words, with its citation."""
    name = e.key.replace("_", " ").replace(".", " ")
    if e.kind == "absent":
        looked = ", ".join((e.searched or [])[:3])
        return Sentence(text=f"{e.key} is not set anywhere{f' in {looked}' if looked else ''}.", cites=[e.id])
    shown = quote(e.text) if e.text.strip() else ""
    value = e.value
    if e.key in IN_WORDS and (shown or "{quote}" not in IN_WORDS[e.key]):
        return Sentence(text=IN_WORDS[e.key].format(value=value, quote=shown), cites=[e.id])
    tells = isinstance(value, int | float) and not isinstance(value, bool) and not e.key.startswith(_NUMBER_UNTOLD)
    lead = f"{name} {_number(value)}" if tells else ""
    middle = f"{lead}: {shown}" if lead and shown else lead or shown or name
    return Sentence(text=f"{place(e)}: {middle}", cites=[e.id])


def _number(value: object) -> str:
    """A number as people read it. A rounded one keeps a decimal, so that the gate knows how far it may be off."""
    if not isinstance(value, float) or not math.isfinite(value):
        return str(value)
    if 1000 <= abs(value) < 1e6:
        return f"{value:.1f}"
    text = f"{value:.4g}" if abs(value) < 1e6 else f"{value:.3e}"
    whole = "." not in text and "e" not in text and not value.is_integer()
    return f"{text}.0" if whole else text


def listing(evidence: Iterable[Evidence], limit: int) -> list[Sentence]:
    """One sentence for each line that is cited, however many keys it carries."""
    seen: set[object] = set()
    out = []
    for e in evidence:
        where = (e.file, e.line) if e.line else e.key
        if where in seen:
            continue
        seen.add(where)
        out.append(sentence(e))
        if len(out) == limit:
            break
    return out


# ----------
# Other jobs of the machine: what the kernel says of their ends is not evidence about the job at hand.
#
# The kernel's log is that of the whole machine. Where the record of a supervised job accounts for every process of
# it, and none was killed for memory, the lines of such a kill are about a neighbour. Without such a record they are
# about one where the run ended by an exception of its own, nothing else of it tells of a kill, and either the program
# that was killed trains nothing or the exception is one that no kill of a peer or a worker brings about.

ACCOUNTED = frozenset({"job.nothing_killed", "job.kill_not_for_memory"})
_KILL = re.compile(
    r"invoked oom-killer|oom-kill:constraint|out_of_memory\+|oom_kill_process|[Oo]ut of memory: Kill(?:ed)? process|"
    r"oom_reaper: reaped process"
)
_VICTIM = re.compile(r"\btask=(?P<a>[^,\s]+)|\bKill(?:ed)? process \d+,? \((?P<b>[^)]{1,40})\)")
# Programs of a training job: what runs the loop, loads data, launches, serves engines or carries messages.
_OF_A_JOB = re.compile(
    r"(?i)python|^pt_|^ray|raylet|gcs_server|plasma|redis|torch|accelerate|deepspeed|vllm|sglang|trtllm|train|loader|"
    r"worker|^rank|mpi|orted|slurm|srun|^(?:ba|z|da)?sh$|^conda|^uv$|^java$|^node$|container|^docker|jupyter|ipython"
)
# Errors of the program itself; others (of pipes, pools, sockets, collectives) may be the answer to a kill.
_OF_THE_PROGRAM = re.compile(
    r"(?:\w+\.)*(?:ModuleNotFound|Import|Name|Attribute|Type|Key|Index|Value|Assertion|Syntax|Indentation|ZeroDivision"
    r"|UnboundLocal|NotImplemented|UnicodeDecode|FileNotFound)Error\b"
)
_OF_A_KILL = (
    "error.exit_code", "error.signal", "error.bare_kill", "memory.killed", "memory.cgroup", "job.memory_killed",
    "job.kill_at_memory_limit", "slurm.out_of_memory", "host.slurm_exit", "host.kills_counted", "host.group_oom_kills",
)  # fmt: skip
_SIGKILL = re.compile(r"-9|9|137|SIGKILL|(?i:.*(?:out.of.mem|\bkill).*)")


def without_neighbours(evidence: Iterable[Evidence]) -> list[Evidence]:
    """The evidence but for the kernel's lines about kills in other jobs."""
    known = list(evidence)
    accounted = {e.run for e in known if e.key in ACCOUNTED} | _ended_themselves(known)
    return [e for e in known if e.run not in accounted or not _KILL.search(e.text)]


def _ended_themselves(known: list[Evidence]) -> set[str | None]:
    """Runs that an exception ended while the kernel killed what is no part of them."""
    victims: dict[str | None, set[str]] = {}
    raised: dict[str | None, list[str]] = {}
    for e in known:
        if _KILL.search(e.text) and (m := _VICTIM.search(e.text)):
            victims.setdefault(e.run, set()).add(m["a"] or m["b"])
        if e.key == "error.first":
            raised.setdefault(e.run, []).append(str(e.value))
    foreign = {run for run, names in victims.items() if not any(_OF_A_JOB.search(name) for name in names)}
    own = {run for run, errors in raised.items() if all(_OF_THE_PROGRAM.match(error) for error in errors)}
    own -= {e.run for e in known if e.key in GOOD_END}  # it went on after that error
    killed = {e.run for e in known if e.key in _OF_A_KILL and not _KILL.search(e.text) and _deadly(e)}
    return ((foreign & raised.keys()) | own) - killed


def _deadly(e: Evidence) -> bool:
    told = e.key in ("error.exit_code", "error.signal", "host.slurm_exit")
    return not told or _SIGKILL.fullmatch(str(e.value)) is not None
