"""What one asked change means in a file: a precision is two switches, a peak rate stands in the scheduler too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..reading.settings_map import settings_map
from .document import Document, Found
from .model import REMOVE, Unplaced, same
from .roles import elsewhere
from .spelling import among, wanted

SWITCHES = ("fp16", "bf16")
OFFLOADS = ("offload_optimizer", "offload_parameters")
_NANOGPT_STEPS = 40  # its default, 5 for each of 8 processes


@dataclass(frozen=True, slots=True)
class Step:
    """One edit of the text, and the asked setting it is part of."""

    asked: str
    name: str
    value: Any


def steps(doc: Document, name: str, value: Any, edits: Mapping[str, Any]) -> list[Step]:
    """The edits that one asked setting takes in this file.

    Args:
        edits: all that is asked for, which wins over what would follow from one of them.

    Raises:
        Unplaced: the file holds half of it where the other half cannot stand.
    """
    value = value if value is REMOVE else wanted(name, value)
    if value is REMOVE:
        return [Step(name, name, False if name in OFFLOADS and _says_device(doc, name) else value)]
    if name == "gradient_accumulation_steps":
        _shared_out(doc, name, value)
    if name == "sequence_length":
        _room(doc, value)
    if name == "precision":
        return [Step(name, n, v) for n, v in _precision(doc, value) if n == name or n not in edits]
    if name in SWITCHES and value is True:
        other = SWITCHES[name == SWITCHES[0]]
        off = [Step(name, other, False)] if _on(doc, other) and other not in edits else []
        return [*off, Step(name, name, value)]
    return [*(Step(name, n, v) for n, v in _peak(doc, name, value) if n not in edits), Step(name, name, value)]


def _says_device(doc: Document, name: str) -> bool:
    """Whether a word names the device: `none` takes its place, as a mapping without a device looks like one."""
    held = [f.leaf for f in _held(doc, name)]
    return bool(held) and all(leaf.key.endswith("device") and leaf.style in ("json", "yaml", "dict") for leaf in held)


def _shared_out(doc: Document, name: str, value: Any) -> None:
    """nanoGPT shares the steps of accumulation out among its processes, and stops where they do not come out even.

    Raises:
        Unplaced: they may not.
    """
    if not among(doc.framework, ["nanogpt"]) or not isinstance(value, int):
        return
    steps_now = [f.value for f in _held(doc, name) if isinstance(f.value, int)] or [_NANOGPT_STEPS]
    if any(value % now for now in steps_now if now):
        raise Unplaced("nanoGPT shares these steps out among its processes: it has to be a multiple of their number")


def in_words(doc: Document, name: str, value: Any, edits: Mapping[str, Any]) -> list[Step]:
    """The edits that a setting takes where they cannot be made: what a snippet tells."""
    try:
        return steps(doc, name, value, edits)
    except Unplaced:
        if name == "precision" and value in SWITCHES and all(spells(doc.framework, s) for s in SWITCHES):
            return [Step(name, s, s == value) for s in sorted(SWITCHES, key=lambda s: s == value)]
        return [Step(name, name, value)]


def belong_together(names: Mapping[str, Any]) -> list[list[str]]:
    """The asked settings in groups that are written wholly or not at all: the switches of a precision are one."""
    halves = [n for n in names if n in (*SWITCHES, "precision")]
    groups = [[n] for n in names if n not in halves]
    return [halves, *groups] if halves else groups


def _room(doc: Document, value: Any) -> None:
    """Positions that the file names have to be enough for a longer sequence.

    Raises:
        Unplaced: they are not.
    """
    for leaf in doc.sheet.leaves:
        named = leaf.key.lower().replace("-", "_").endswith("max_position_embeddings")
        if named and isinstance(leaf.value, int) and isinstance(value, int) and 1 < leaf.value < value:
            raise Unplaced(f"`{leaf.key}` is {leaf.value} (line {leaf.line}), which is not enough for {value}")


def _held(doc: Document, name: str) -> list[Found]:
    return [f for f in doc.found if f.name == name and not elsewhere(doc, f)]


def _on(doc: Document, name: str) -> bool:
    return any(f.value not in (False, None) and f.leaf.style != "default" for f in _held(doc, name))


def spells(framework: str, name: str) -> bool:
    """Whether a framework has a word of its own for a setting."""
    spelled_by = settings_map().canonical[name].spelled
    return any(settings_map().owns(framework, [f]) for f in spelled_by if f != "also")


def _precision(doc: Document, value: Any) -> Iterator[tuple[str, Any]]:
    """Every place that says a precision: switches that are on go off first, so that no two are ever on."""
    own = [s for s in SWITCHES if spells(doc.framework, s)]
    held = [s for s in SWITCHES if _held(doc, s)]
    if not own and spells(doc.framework, "precision"):
        yield from _one_word(doc, value, held)
        return
    if _on(doc, "pure_bf16"):
        if value != "bf16":
            raise Unplaced("pure_bf16 is on as well, and which of the two was meant is not clear")
        return
    _one_seat(doc, value, held)
    switches = [s for s in SWITCHES if s in own or s in held]
    if value in SWITCHES and switches and value not in switches:
        raise Unplaced(f"{doc.framework or 'the file'} has no switch for {value}")
    off = [s for s in held if s != value]
    yield from ((s, False) for s in off)
    loads = _loads(doc, value) or not switches
    if loads:
        yield "precision", value
    yield from ((s, True) for s in switches if s == value and (off or s in held or not loads))


def _one_word(doc: Document, value: Any, held: list[str]) -> Iterator[tuple[str, Any]]:
    """A framework that has one word; an older release of it may have had a switch instead."""
    old = [s for s in held if any(f.leaf.style == "flag" for f in _held(doc, s))]
    if _held(doc, "precision") or not old:
        yield "precision", value
        return
    if value in SWITCHES and value not in old:
        raise Unplaced(f"this release of {doc.framework} has the switch {old[0]} alone, none for {value}")
    yield from ((s, s == value) for s in old)


def _loads(doc: Document, value: Any) -> bool:
    """Whether a dtype stands beside the switches, and is to change with them.

    Weights that are loaded in half precision cannot be trained with its loss scale, so a change to fp16 leaves them.
    """
    held = [f for f in _held(doc, "precision") if f.leaf.style != "default"]
    if among(doc.framework, ["unsloth"]):
        held = [f for f in held if f.value is not None]  # `dtype=None` leaves the choice to the library
    if value == "fp16":
        held = [f for f in held if f.leaf.note != "from_pretrained" and "torch_dtype" not in f.leaf.key]
    return bool(held)


def _one_seat(doc: Document, value: Any, held: list[str]) -> None:
    """Flags and a DeepSpeed object in one text each have switches: both or neither get the new one.

    Raises:
        Unplaced: one of them lacks it.
    """
    if value not in SWITCHES:
        return
    seats: dict[str, set[str]] = {}
    for s in held:
        for f in _held(doc, s):
            seats.setdefault("deepspeed" if f.scope == "deepspeed" else "", set()).add(s)
    if len(seats) > 1 and not all(value in have for have in seats.values()):
        raise Unplaced(f"two places of this file say the precision, and not both have {value}: change them together")


def _peak(doc: Document, name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """DeepSpeed's schedulers set the rate themselves: their peak goes along with the optimizer's rate.

    Raises:
        Unplaced: the two differ, so that the rate which holds is not the one that is named.
    """
    if name != "learning_rate" or not (among(doc.framework, ["deepspeed"]) or doc.form in ("json", "python", "shell")):
        return
    peaks = [f.value for f in _held(doc, "warmup_peak_learning_rate") if isinstance(f.value, int | float)]
    rates = [f.value for f in _held(doc, name) if f.scope == "deepspeed" and isinstance(f.value, int | float)]
    if not peaks:
        return
    if not rates or not all(same(p, rates[0]) for p in peaks):
        raise Unplaced(f"the scheduler's warmup_max_lr is {peaks[0]} and holds instead of the optimizer's rate")
    yield "warmup_peak_learning_rate", value
