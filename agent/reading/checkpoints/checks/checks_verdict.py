"""One word for each checkpoint (clean, damaged, unknown), and the newest clean one from before the trouble began.

judged(ws, checkpoint, "full").word
found = last_clean(ws)                    # None where no checkpoint is provably clean
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ....core.errors import ParseError, ToolError
from ...curves.anomalies.finding import Finding, groups
from ...curves.anomalies.learning import progress_findings
from ...curves.anomalies.loss_anomalies import loss_findings
from ...curves.anomalies.optimizer_curves import optimizer_findings
from ...curves.curves import curves
from ...settings.settings import plain_settings
from ..layouts import Checkpoint, Tracker, checkpoints, step_of_folder, trackers
from ..parts import State
from ..weights import SLOTS, whole
from .checks import Flaw, name_flaws, present, states_of_checkpoint, structure_flaws
from .checks_config import config_flaws
from .checks_contents import resume_flaws
from .checks_numbers import number_flaws
from .checks_ranks import copied_flaws, rank_flaws

if TYPE_CHECKING:
    from ...run.workspace import Workspace


# ----------
# Whether a file holds the kind of state that its name says: copies by hand put one in the place of another.


# Keys that only one kind of state has at its top.
_TELLING: dict[str, frozenset[str]] = {
    "optimizer": frozenset(("param_groups", "optimizer_state_dict", "base_optimizer_state", "fp32_flat_groups")),
    "scheduler": frozenset(("last_epoch", "_step_count", "last_batch_iteration", "base_lrs", "_last_lr")),
    "rng": frozenset(("python", "numpy", "cpu", "cuda", "random_rng_state", "torch_rng_state", "torch_manual_seed")),
    "model": frozenset(("module", "param_shapes", "buffer_names")),
}
_UNIVERSAL = ("fp32", "exp_avg", "exp_avg_sq", "step")  # DeepSpeed's universal layout: a file a tensor
_WIDE = 1024  # elements beyond which a tensor is a weight or a moment


def kind_flaws(ws: Workspace, checkpoint: Checkpoint) -> Iterator[Flaw]:
    """Files that plainly hold another kind of state. Where content tells nothing, nothing is said."""
    for part, state in states_of_checkpoint(ws, checkpoint):
        if state.file.path.stem in _UNIVERSAL:
            continue
        if part not in ("optimizer", "scheduler", "rng") and not (
            part == "model" and checkpoint.framework == "deepspeed"
        ):
            continue
        held = _held(state)
        if held and part not in held:
            text = f"{state.file.path.name} holds {' and '.join(sorted(held))} state"
            yield Flaw("checkpoint.wrong_content", text, sorted(held)[0], state.file)


def _held(state: State) -> set[str]:
    """Kinds that a state plainly is: by the keys at its top, by moments, by wide tensors without either."""
    if not state.readable:
        return set()
    top = {str(k) for k in state.tree} if isinstance(state.tree, dict) else set()
    found = {kind for kind, keys in _TELLING.items() if keys & top}
    if any(whole(name).rpartition(".")[2] in SLOTS for name in state.tensors):
        found.add("optimizer")
    if not found and any(len(t.shape) > 1 and t.count > _WIDE for t in state.tensors.values()):
        found.add("model")
    elif not found and "args" not in top and state.globals and not state.tensors and not top:
        found.add("other")
    return found


# ----------

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


# ----------
# Whether the small file that names the newest save names one that is there, and the newest.


def tracker_flaws(ws: Workspace, held: list[Checkpoint]) -> Iterator[tuple[Checkpoint, Flaw]]:
    """`(save nearest to it, flaw)` for each tracker that names nothing, or a save older than the newest."""
    for tracker in trackers(ws):
        beside = [c for c in held if c.run == tracker.file.run and _beside(c, tracker)]
        if not beside or tracker.target == "release":
            continue
        line = next(iter(ws.lines(tracker.file)), None)
        target = _target(tracker)
        names = {f.name for f in ws.files if f.run == tracker.file.run}
        prefix = f"{tracker.folder}/{target}/" if tracker.folder not in (".", "") else f"{target}/"
        there = bool(target) and any(n.startswith(prefix) for n in names)
        newest = max(beside, key=lambda c: (c.step if c.step is not None else -1, c.written))
        if not tracker.target:
            text = f"{tracker.file.path.name} is empty"
            yield newest, Flaw("checkpoint.tracker_mismatch", text, "empty", tracker.file, weight="note")
        elif not there:
            text = f"{tracker.file.path.name} names {tracker.target[:80]!r}, which is not there"
            value = tracker.target[:80]
            yield newest, Flaw("checkpoint.tracker_mismatch", text, value, tracker.file, weight="note", line=line)
        elif (found := step_of_folder(target)) and newest.step is not None and found[1] < newest.step:
            text = f"{tracker.file.path.name} names {target}, but {newest.name} is newer"
            yield newest, Flaw("checkpoint.tracker_stale", text, target, tracker.file, weight="note", line=line)


def _beside(checkpoint: Checkpoint, tracker: Tracker) -> bool:
    folder = "" if tracker.folder == "." else tracker.folder
    return checkpoint.folder in (tracker.folder, folder) or checkpoint.name == folder


def _target(tracker: Tracker) -> str:
    """The folder that is meant: Megatron writes a bare number, verl too."""
    text = tracker.target.splitlines()[0].strip() if tracker.target else ""
    if text.isdigit() and tracker.file.path.name.startswith("latest_checkpointed"):
        names = (f"iter_{int(text):07d}", f"global_step_{int(text)}", f"step_{int(text)}")
        here = tracker.file.path.parent
        return next((n for n in names if (here / n).is_dir()), names[0])
    return text.rstrip("/").rsplit("/", 1)[-1]
