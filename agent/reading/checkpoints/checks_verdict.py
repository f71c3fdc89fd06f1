"""One word for each checkpoint (clean, damaged, unknown), and the newest clean one from before the trouble began.

judged(ws, checkpoint, "full").word
found = last_clean(ws)                    # None where no checkpoint is provably clean
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ...errors import ParseError, ToolError
from ..anomalies.finding import Finding, groups
from ..anomalies.loss import loss_findings
from ..anomalies.optimizer import optimizer_findings
from ..anomalies.progress import progress_findings
from ..curves import curves
from ..plain_settings import plain_settings
from .checks import Flaw, present
from .checks_config import config_flaws
from .checks_files import name_flaws
from .checks_kinds import kind_flaws
from .checks_numbers import number_flaws
from .checks_ranks import copied_flaws, rank_flaws
from .checks_resume import resume_flaws
from .checks_states import structure_flaws
from .layouts import Checkpoint, checkpoints

if TYPE_CHECKING:
    from ...workspace import Workspace

Depth = Literal["full", "structure"]
Word = Literal["clean", "damaged", "unknown"]

# Where the trouble of a run begins, for the choice of a checkpoint from before it. Spikes pass in most runs: they count
# when they lead up to the rest, or stand near the end.
_HARD = ("loss.first_nan_step", "loss.diverged", "grad_norm.nonfinite_step")
_SPIKES = ("loss.spike_step", "grad_norm.spike_step")
_LEAD, _RECENT = 0.9, 0.8  # shares of the steps before the trouble, and of all steps
_GROUPS = 48
_TIME_OVER = "the time was over before all of it was read"


@dataclass(slots=True)
class Verdict:
    """What is thought of one checkpoint. `why` is one sentence; `bytes` were read and found good."""

    checkpoint: Checkpoint
    word: Word
    why: str
    flaws: list[Flaw] = field(default_factory=list)
    bytes: int = 0
    tensors: int = 0


@dataclass(slots=True)
class LastClean:
    """The newest provably clean checkpoint from before the first trouble of the curves, where there is any."""

    verdict: Verdict
    trouble: Finding | None = None


def judged(ws: Workspace, checkpoint: Checkpoint, depth: Depth = "full") -> Verdict:
    """Everything that is checked, in one verdict; a check that cannot end makes it unknown, for this call alone."""
    key = ("checkpoint verdict", checkpoint.run, checkpoint.name, depth)
    verdict = ws.memo(key, lambda: _judge(ws, checkpoint, depth))
    if any(f.text == _TIME_OVER for f in verdict.flaws):
        ws.forget(key)
    return verdict


def last_clean(ws: Workspace, depth: Depth = "full") -> LastClean | None:
    """The newest checkpoint that is clean and precedes the first anomaly of the curves; newest first, so that little
    is read. None where none is."""
    trouble = first_trouble(ws)
    for checkpoint in reversed([c for c in checkpoints(ws) if not c.good]):
        if trouble is not None and _after(checkpoint, trouble):
            continue
        verdict = judged(ws, checkpoint, depth)
        if verdict.word == "clean":
            return LastClean(verdict, trouble)
    return None


def first_trouble(ws: Workspace) -> Finding | None:
    """The earliest point where a curve is not finite, leaps or departs; None where none does or no steps are named."""
    return ws.memo("first trouble", lambda: _first_trouble(ws))


def _first_trouble(ws: Workspace) -> Finding | None:
    settings = plain_settings(ws)
    own = [s for s in curves(ws).series if not s.file.good]
    found: list[Finding] = []
    for group in groups(own)[:_GROUPS]:
        for findings in (loss_findings(group, settings), optimizer_findings(group), progress_findings(group)):
            found += [f for f in findings if f.key in (*_HARD, *_SPIKES) and f.step is not None]
    hard = min((f for f in found if f.key in _HARD), key=lambda f: f.step or 0, default=None)
    last = max((float(s.steps.max()) for s in own if s.stepped and len(s.steps)), default=0.0)
    since = _LEAD * (hard.step or 0) if hard is not None else _RECENT * last
    spikes = [f for f in found if f.key in _SPIKES and (f.step or 0) >= since]
    return min([*spikes, *([hard] if hard is not None else [])], key=lambda f: f.step or 0, default=None)


def _after(checkpoint: Checkpoint, trouble: Finding) -> bool:
    """Saved at or after the step of the anomaly. One that names no step is taken to be after it."""
    return trouble.step is not None and (checkpoint.step is None or checkpoint.step >= trouble.step)


def _judge(ws: Workspace, checkpoint: Checkpoint, depth: Depth) -> Verdict:
    held = checkpoints(ws)
    flaws: list[Flaw] = []
    for family in _families(ws, checkpoint, held):
        flaws += _guarded(family)
    verdict = Verdict(checkpoint, "unknown", "")
    if depth == "full":
        flaws += _guarded(lambda: _numbers(ws, checkpoint, verdict))
    else:
        flaws.append(Flaw("checkpoint.not_read", "only its structure was looked at", weight="unknown"))
    verdict.flaws = list(_once(present(ws, checkpoint, flaws)))
    verdict.word, verdict.why = _word(verdict)
    return verdict


def _families(ws: Workspace, checkpoint: Checkpoint, held: list[Checkpoint]) -> Iterator[Callable[[], Iterator[Flaw]]]:
    yield lambda: name_flaws(ws, checkpoint, held)
    yield lambda: structure_flaws(ws, checkpoint)
    yield lambda: rank_flaws(ws, checkpoint, held)
    yield lambda: copied_flaws(ws, checkpoint)
    yield lambda: kind_flaws(ws, checkpoint)
    yield lambda: resume_flaws(ws, checkpoint, held)
    yield lambda: config_flaws(ws, checkpoint)


def _guarded(check: Callable[[], Iterator[Flaw]]) -> list[Flaw]:
    """What a check says; time that is over and bytes that cannot be read are told as unknown."""
    found: list[Flaw] = []
    try:
        found.extend(check())
    except TimeoutError:
        found.append(Flaw("checkpoint.not_read", _TIME_OVER, weight="unknown"))
    except (ToolError, ParseError) as e:
        found.append(Flaw("checkpoint.unreadable", str(e), weight="unknown"))
    return found


def _numbers(ws: Workspace, checkpoint: Checkpoint, verdict: Verdict) -> Iterator[Flaw]:
    seen = number_flaws(ws, checkpoint)
    verdict.bytes, verdict.tensors = seen.bytes, seen.tensors
    yield from seen.flaws
    if seen.unread:
        text = f"{len(seen.unread)} tensors could not be read, {seen.unread[0]} first"
        yield Flaw("checkpoint.unreadable", text, len(seen.unread), member=seen.unread[0], weight="unknown")


def _once(flaws: Iterable[Flaw]) -> Iterator[Flaw]:
    """A missing shard is seen by more than one check: the first to say it is kept."""
    seen: set[tuple[str, str, str]] = set()
    for flaw in flaws:
        about = flaw.member.rsplit("/", 1)[-1] or (flaw.file.name if flaw.file else "")
        identity = (flaw.key, about, "" if flaw.key == "checkpoint.missing_shard" else flaw.text)
        if identity not in seen:
            seen.add(identity)
            yield flaw


def _word(verdict: Verdict) -> tuple[Word, str]:
    damage = [f for f in verdict.flaws if f.weight == "damage"]
    unknown = [f for f in verdict.flaws if f.weight == "unknown"]
    if damage:
        more = f" (and {len(damage) - 1} more)" if len(damage) > 1 else ""
        return "damaged", damage[0].text + more
    if unknown:
        return "unknown", unknown[0].text
    if not verdict.tensors:
        return "unknown", "no tensor was found in it"
    return "clean", f"all {verdict.bytes} bytes of {verdict.tensors} tensors were read"
