"""What one asked change means in a file: a precision is two switches, a peak rate stands in the scheduler too."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...reading.run.program.shell_launches import passed_on
from ...reading.settings.settings_map import settings_map
from .document import Document, Found, elsewhere
from .environment_shell import Assigned, taken_out
from .named_values import Site, shell_of
from .spelling import (
    REMOVE,
    WRITERS,
    Splice,
    Unplaced,
    among,
    as_inside,
    as_json,
    as_python,
    as_word,
    as_yaml,
    same,
    table,
    wanted,
)

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


# ----------
# Taking a setting out: the member, line, flag or keyword that holds it, with its comma or continued line.

_COMMA = re.compile(r"[ \t]*,")
_JOIN = re.compile(r"[ \t]*\\\r?\n\Z")
_BEFORE = re.compile(r"(?:--?[A-Za-z][\w.\-/]*(?:=|[ \t]+)|[+~]{0,2}[A-Za-z_][\w./@+\-]*=)\Z")


def removal(doc: Document, found: Found) -> Splice:
    """The stretch to take out for one place of a setting.

    Raises:
        Unplaced: taking it out would break what stands around it.
    """
    leaf = found.leaf
    if leaf.note == "alias":
        raise Unplaced("an anchor shares its value with other places")
    start, end = doc.span(leaf)
    if leaf.style in ("flag", "override") and leaf.note not in ("json", "escaped"):
        cut = _flag(doc, start, end)
    elif leaf.style in ("environment", "variable") and doc.form == "shell" and leaf.note not in ("json", "escaped"):
        return replace(_assignment(doc, leaf.key, start), key=leaf.key)
    elif leaf.style in ("header", "env", "ini"):
        cut = _line(doc, start)
    elif leaf.style in ("keyword", "dict"):
        cut = _member(
            doc, start, end, r"\w+\s*=\s*" if leaf.style == "keyword" else r"(?:'[^'\n]*'|\"[^\"\n]*\")\s*:\s*"
        )
    elif leaf.note == "escaped":
        cut = _member(doc, start, end, r"\\\"[\w.]+\\\"\s*:\s*")
    elif leaf.style == "json" or leaf.note == "json":
        cut = _member(doc, start, end, r"\"(?:[^\"\\\n]|\\.)*\"\s*:\s*")
    elif leaf.style == "toml":
        cut = _toml(doc, start, end)
    elif leaf.style == "yaml":
        cut = _yaml(doc, start, end)
    else:
        raise Unplaced("code may use the name: set it, or take it out by hand")
    return Splice(*cut, "", leaf.key)


def _line(doc: Document, position: int) -> tuple[int, int]:
    """The whole line around a position, with its end; the last line of a text takes the end before it."""
    start = doc.text.rfind("\n", 0, position) + 1
    end = doc.text.find("\n", position)
    return (start, end + 1) if end >= 0 else (max(start - len(doc.newline), 0) if start else 0, len(doc.text))


def _named(doc: Document, start: int, name: str) -> int:
    """Where the key of a value begins that ends right before it."""
    line = doc.text.rfind("\n", 0, start) + 1
    found = None
    for found in re.finditer(name, doc.text[line:start]):
        if line + found.end() == start:
            return line + found.start()
    raise Unplaced("its key does not stand on the same line")


def _member(doc: Document, start: int, end: int, name: str) -> tuple[int, int]:
    """A member of a list in brackets, with the comma behind it or the one before it."""
    text, begin = doc.text, _named(doc, start, name)
    after = _COMMA.match(text, end)
    line = text.rfind("\n", 0, begin) + 1
    if after:
        rest = re.compile(r"[ \t]*(?:(?:\#|//)[^\n]*)?(\r?\n)").match(text, after.end())
        if not text[line:begin].strip() and rest and line:
            return line, rest.end()
        space = re.compile(r"[ \t]+").match(text, after.end())
        return begin, space.end() if space and text[space.end() : space.end() + 1] not in "\r\n" else after.end()
    before = re.search(r",(?:\s|//[^\n]*\n|\#[^\n]*\n)*\Z", text[max(0, begin - 4000) : begin])
    if not before and not re.search(r"[\[({]\s*\Z", text[:begin]):
        raise Unplaced("what stands before it is not clear")
    return (begin - len(before[0]) if before else begin), end


def _toml(doc: Document, start: int, end: int) -> tuple[int, int]:
    line = doc.text.rfind("\n", 0, start) + 1
    if re.fullmatch(r"\s*[\w.\-\"']+\s*=\s*", doc.text[line:start]):
        return _line(doc, start)
    return _member(doc, start, end, r"(?:[\w.\-]+|'[^'\n]*'|\"[^\"\n]*\")\s*=\s*")


def _yaml(doc: Document, start: int, end: int) -> tuple[int, int]:
    line = doc.text.rfind("\n", 0, start) + 1
    head = doc.text[line:start]
    if m := re.fullmatch(r"([ \t]*)(?:[\w./\-]+|'[^'\n]*'|\"[^\"\n]*\")\s*:[ \t]*", head):
        if _only_child(doc, line, len(m[1])):
            raise Unplaced("it is the only key of its mapping")
        return _line(doc, start)
    if "{" not in head:
        raise Unplaced("it begins an item of a list")
    return _member(doc, start, end, r"(?:[\w./\-]+|'[^'\n]*'|\"[^\"\n]*\")\s*:\s*")


def _only_child(doc: Document, line: int, indent: int) -> bool:
    """Whether no other key stands on the same level of the same block."""
    before = [row for row in doc.text[:line].splitlines() if row.strip() and not row.lstrip().startswith("#")]
    after = [row for row in doc.text[line:].splitlines()[1:] if row.strip() and not row.lstrip().startswith("#")]
    for rows in (reversed(before), after):
        for row in rows:
            deep = len(row) - len(row.lstrip())
            if deep == indent:
                return False
            if deep < indent:
                break
    return indent > 0


def _flag(doc: Document, start: int, end: int) -> tuple[int, int]:
    """A flag with its value and the space around it; on a line of its own, the whole continued line."""
    text = doc.text
    begin = flag_start(text, start)
    if begin and text[begin - 1] in "'\"" and text[end : end + 1] == text[begin - 1]:
        begin, end = begin - 1, end + 1
    line, stop = text.rfind("\n", 0, begin) + 1, text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    head, tail = text[line:begin], text[end:stop].rstrip("\r")
    continued = _JOIN.search(text[max(0, line - 200) : line])
    if not head.strip():
        if tail.strip() == "\\" or (not continued and re.fullmatch(r"\s*(?:#.*)?", tail)):
            return line, min(stop + 1, len(text))
        if continued and not tail.strip():  # the last line of a continued command
            return line - len(continued[0]), end
    space = len(head) - len(head.rstrip(" \t"))
    return (begin - space, end) if space and head.strip() else (begin, end + len(tail) - len(tail.lstrip(" \t")))


def flag_start(text: str, start: int) -> int:
    """Where the flag or override begins whose value stands at a position; the position itself for a switch."""
    if re.match(r"--?[A-Za-z]", text[start : start + 3]):
        return start
    m = _BEFORE.search(text[max(0, start - 300) : start])
    if not m:
        raise Unplaced("its flag does not stand right before it")
    return start - len(m[0])


def _assignment(doc: Document, name: str, start: int) -> Splice:
    """An `export` line, the assignment before a command, or a launcher's flag."""
    for launch in shell_of(doc.clean).launched:
        for word in launch.assigned:
            if word.text.startswith(f"{name}=") and word.start <= start <= word.end:
                kind = "prefix" if launch.stages or launch.arguments else "export"
                return taken_out(doc, Assigned(name, kind, start, start, word.line, launch.blocks, word))
        for stage in launch.stages:
            for each in passed_on(stage)[0]:
                if each.name == name and each.start == start:
                    return taken_out(doc, Assigned(name, "passed", start, each.end, each.word.line, (), each.word))
    raise Unplaced("its assignment is not a word of its own")


def json_variable(doc: Document, name: str, start: int, end: int) -> Splice:
    """A variable out of Ray's runtime environment, with the flag where nothing else is in it."""
    text = doc.text
    head = re.search(rf" --runtime-env-json='\{{\"env_vars\": \{{\"{name}\": \Z", text[:start])
    if head and text.startswith("}}'", end):
        return Splice(head.start(), end + 3, "", name)
    escaped = text[start : start + 1] == "\\"
    key = r"\\\"[\w.]+\\\"\s*:\s*" if escaped else r"\"(?:[^\"\\\n]|\\.)*\"\s*:\s*"
    return Splice(*_member(doc, start, end, key), "", name)


# ----------
# The text of a new value at the place of an old one.


def literal(doc: Document, place: Site, raw: Any) -> str:
    """What to write at a place, in the format and style of what stands there."""
    leaf, old = place.found.leaf, place.source(doc)
    if leaf.note == "switch":
        return f"{old} {as_word(raw, '', True)}"
    if isinstance(raw, list) and not isinstance(leaf.value, list) and doc.form != "shell":
        raw = ",".join(map(str, raw))
    if isinstance(raw, float) and raw.is_integer() and not old and place.found.name in table()["whole"]:
        raw = int(raw)
    if place.variable and doc.form == "shell":
        return as_word(raw, old)
    if leaf.note in ("json", "escaped"):
        text = as_json(as_word(raw, "1") if leaf.style == "environment" else raw, old.replace('\\"', '"'))
        return text.replace('"', '\\"') if leaf.note == "escaped" else text
    if doc.form == "python" and leaf.style == "environment":
        return as_python(as_word(raw, old.strip("'\"") or "1"), old)
    if leaf.note == "inside":
        return as_inside(raw, old, isinstance(leaf.value, list))
    if doc.form == "shell" and leaf.style in ("json", "yaml"):
        return WRITERS[leaf.style](raw, old)
    if doc.form == "shell" and doc.text[place.start - 1] in "-=" and doc.text[place.end : place.end + 1] == "}":
        return as_inside(raw, old)
    if doc.form == "yaml" and place.start == place.end:
        return " " + as_yaml(raw)
    if doc.form in ("shell", "env") and leaf.style in ("environment", "env") and isinstance(raw, bool):
        return as_word(raw, old if old.strip("'\"") else "1")
    if doc.form == "shell":
        return as_word(raw, old, isinstance(leaf.value, list))
    return WRITERS[doc.form](raw, old)
