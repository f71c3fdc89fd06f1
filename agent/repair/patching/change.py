"""Changing settings of one text: each edit is placed, spelled, written, and read back before the next."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...core.errors import ChangeRefused
from ...reading.settings.settings_map import UNSET, Leaf, Spelling, settings_map
from .document import Document, Found, why_not
from .insert_code import arguments
from .insertion import admit, argument, bare, insertion, snippet, spelled
from .named_values import followers
from .sites import loose, site, standing, verify
from .spelling import DROP, REMOVE, Changed, Edit, Snippet, Splice, Unplaced, raw_value, same, spliced
from .steps_of_change import belong_together, flag_start, in_words, literal, removal, steps

BOM = "\ufeff"


def change(
    text: str,
    name: str,
    edits: Mapping[str, Any],
    framework: str = "",
    at: Mapping[str, int] | None = None,
    versions: Mapping[str, str] | None = None,
    together: bool = False,
    given: bool = False,
) -> Changed:
    """Change canonical settings in a text.

    Args:
        text: the file, as decoded without translation of line ends.
        name: the file's path inside the run, which tells its format and whether it is a record.
        edits: canonical setting -> canonical value, or `REMOVE`.
        framework: whose words the file speaks; told from the text when empty.
        at: setting -> line, where several places hold it and one is meant.
        versions: package -> release of the run, for spellings that not every release takes.
        together: write all of the edits, or none of them where one cannot be written.
        given: a launch hands the file to the training, whatever it is called.

    Returns:
        The new text. An edit that cannot be written safely is a snippet, and the others are made all the same.

    Raises:
        ChangeRefused: a setting is none that the map knows.
    """
    bom, body = (BOM, text[1:]) if text.startswith(BOM) else ("", text)
    for canonical in edits:
        if canonical not in settings_map().canonical:
            raise ChangeRefused(f"{name}: `{canonical}` is no setting that the map knows")
    try:
        if reason := why_not(name, body, given):
            raise Unplaced(reason)
        doc = Document.read(body, name, framework, versions)
    except Unplaced as e:
        return Changed(text, (), tuple(Snippet(canonical, "", str(e)) for canonical in edits))
    lines = at or {}
    groups = [list(edits)] if together else belong_together(edits)
    groups.sort(key=lambda group: -max(lines.get(n, 0) for n in group))  # from below: lines above keep their numbers
    done: list[Edit] = []
    left: list[Snippet] = []
    for group in groups:
        doc, made, failed = _group(doc, {n: edits[n] for n in group}, edits, lines)
        done += made
        left += _snippets(doc, {n: edits[n] for n in group}, edits, failed)
    order = list(edits)
    left.sort(key=lambda s: order.index(s.name))
    return Changed(bom + doc.text, tuple(done), tuple(left))


def _group(
    doc: Document, group: Mapping[str, Any], edits: Mapping[str, Any], at: Mapping[str, int]
) -> tuple[Document, list[Edit], dict[str, str]]:
    """Edits that belong together: all of them written, or the old document and why, by setting."""
    after, made, failed = doc, list[Edit](), dict[str, str]()
    for name, value in group.items():
        try:
            for step in steps(after, name, value, edits):
                after, more = _one(after, step.name, step.value, at.get(name, 0))
                made += more
        except (Unplaced, ChangeRefused) as e:
            failed[name] = _reason(e, doc.name)
    return (doc, [], failed) if failed else (after, made, failed)


def _reason(error: Exception, file: str) -> str:
    """Why, without the name of the file that the caller knows."""
    return str(error).removeprefix(f"{file}: ").replace("\n", " ")


def _snippets(
    doc: Document, group: Mapping[str, Any], edits: Mapping[str, Any], failed: Mapping[str, str]
) -> list[Snippet]:
    """What is left to do by hand where a group was not written."""
    out: list[Snippet] = []
    for name, value in group.items() if failed else ():
        reason = failed.get(name) or f"it belongs together with {next(iter(failed))}, which cannot be written here"
        parts = in_words(doc, name, value, edits)
        rows = [snippet(doc, s.name, s.value) for s in parts if s.value is not REMOVE]
        out.append(Snippet(name, "\n".join(filter(None, rows)), reason))
    return out


def _one(doc: Document, name: str, value: Any, at: int) -> tuple[Document, list[Edit]]:
    """One edit, written and read back."""
    found = standing(doc, name, at)
    if value is REMOVE:
        found = [f for f in found if not loose(f)]
        if found:
            admit(doc, name, value, "remove")
        splices = [removal(doc, f) for f in found]
        return _written(doc, name, splices, [], [f.leaf for f in found], [REMOVE], at)
    if not found:
        more, spelling = insertion(doc, name, value)
        return _written(doc, name, [], more, [], [value, _reads(doc, spelling, value)] if more else [], at)
    if all(same(f.value, value) or (value is True and _mode(f)) for f in found):
        return doc, []
    for spelling in (None, *(f.spelling for f in found)):
        admit(doc, name, value, "change", spelling)
    splices, touched, values, missing = _rewritten(doc, found, value)
    if not missing or (REMOVE in values and _silent(doc, name, value)):
        return _written(doc, name, splices, [], touched, values, at)
    if in_place := _renamed(doc, found, name, value):
        return _written(doc, name, in_place, [], touched, [value, *values[1:]], at)
    without = doc.again(spliced(doc.text, splices))
    more, spelling = insertion(without, name, value)
    return _written(doc, name, splices, more, touched, [value, _reads(doc, spelling, value)], 0)


def _mode(found: Found) -> bool:
    """Whether a setting that may be on in several ways is on in one of them."""
    return (
        isinstance(found.value, str)
        and found.value != "auto"
        and True in settings_map().canonical[found.name].values.values()
    )


def _silent(doc: Document, name: str, value: Any) -> bool:
    """Whether a value is said by nothing being there, or cannot be said in another way."""
    try:
        return spelled(doc, name, value)[2] is DROP
    except Unplaced:
        return isinstance(value, bool)


def _renamed(doc: Document, found: list[Found], name: str, value: Any) -> list[Splice]:
    """A flag where another stood, when the old one cannot say the new value."""
    scope, spelling, raw = spelled(doc, name, value)
    if (
        len(found) != 1
        or found[0].leaf.style != "flag"
        or found[0].leaf.note in ("json", "escaped", "inside")
        or scope == "launcher"
    ):
        return []
    start, end = doc.span(found[0].leaf)
    group = arguments(doc, name, doc.framework)
    return [Splice(flag_start(doc.text, start), end, argument(doc, group, spelling, raw), found[0].leaf.key)]


def _reads(doc: Document, spelling: Spelling, value: Any) -> Any:
    """What a value is once it went through a spelling: minutes are whole, a mode stands for a switch."""
    return settings_map().convert(spelling, raw_value(spelling, doc.framework, value))


def _written(
    doc: Document, name: str, splices: list[Splice], more: list[Splice], touched: list[Leaf], values: list[Any], at: int
) -> tuple[Document, list[Edit]]:
    """The text with its splices, and then with those that were made for the text without the old value."""
    after, made = doc, []
    for stage in (splices, more):
        if stage:
            before, after = after, after.again(spliced(after.text, stage))
            made += _told(before, after, name, stage)
    if made:
        filled = {s.key for s in more}
        touched = touched + [leaf for leaf in doc.sheet.leaves if leaf.key in filled and leaf.value is None]
        verify(doc, after, name, values, touched, at)
    return after, made


def _rewritten(doc: Document, found: list[Found], value: Any) -> tuple[list[Splice], list[Leaf], list[Any], bool]:
    """What gives a value to the places that hold a setting.

    Returns:
        The splices, the leaves they touch, what may be read afterwards, and whether no place could say the value:
        then the splices take the old one out and the new one has to be put in.
    """
    splices: dict[tuple[int, int], Splice] = {}
    touched, values, missing = [f.leaf for f in found], [value], False
    for f in found:
        other = f.spelling.fixed is not UNSET and value is not False and not same(f.spelling.fixed, value)
        raw = DROP if other else raw_value(f.spelling, f.scope, value, f.leaf)
        if raw is DROP and not other and f.leaf.style in ("yaml", "json", "override", "dict"):
            raw = None
        if raw is DROP or _off(f, raw):
            cut, missing = removal(doc, f), True
            splices[cut.start, cut.end] = cut
            values.append(REMOVE)
            continue
        place = site(doc, f)
        if place.variable:
            touched += followers(doc, place.variable)
        values.append(settings_map().convert(f.spelling, raw))
        if (new := literal(doc, place, raw)) != place.source(doc):
            splices[place.start, place.end] = Splice(place.start, place.end, new, f.leaf.key)
    return list(splices.values()), touched, values, missing


def _off(found: Found, raw: Any) -> bool:
    """A bare flag is switched off by taking it out, where the framework's parser knows no other way."""
    if raw is not False or found.leaf.note != "switch":
        return False
    return not found.scope or found.leaf.key[:3] in ("no-", "no_") or bare(found.scope, found.spelling)


def _told(before: Document, after: Document, name: str, splices: list[Splice]) -> list[Edit]:
    """What was done, by the lines of the new text."""
    now = {f.leaf.key: f.leaf for f in after.found if f.name == name}
    out: list[Edit] = []
    for s in splices:
        shift = sum(len(o.text) - (o.end - o.start) for o in splices if o.start < s.start)
        lead = len(s.text) - len(s.text.lstrip("\r\n"))
        line = after.lines.at(min(s.start + shift + lead, len(after.text)))
        key = s.key or next(iter(now), name)
        out.append(Edit(name, key, line, before.text[s.start : s.end], s.text.strip("\r\n")))
    return out


# ----------
# A key under another name: the argument that a library renamed, where a file still has the old one.

_WRITTEN = ("yaml", "json", "toml", "keyword", "dict", "flag", "override")
_KEY = r"(?<![\w.\-])(?P<lead>-{{0,2}})(?P<key>{})(?P<end>[\"']?(?:\s*[:=]\s*|\s+))\Z"
_BACK = 200  # characters before a value in which its key stands


def rename(text: str, name: str, old: str, new: str, given: bool = False) -> Changed:
    """Rename a key wherever a file sets it; its values stay as they are.

    Args:
        text: the file, as decoded without translation of line ends.
        name: the file's path inside the run.
        given: a launch hands the file to the training, whatever it is called.

    Returns:
        The new text, or the old one with the reason where a place cannot be written or has both names.
    """
    bom, body = (BOM, text[1:]) if text.startswith(BOM) else ("", text)
    try:
        if reason := why_not(name, body, given):
            raise Unplaced(reason)
        doc = Document.read(body, name)
        held = [leaf for leaf in doc.sheet.leaves if _last(leaf) == old]
        if held and any(_last(leaf) == new for leaf in doc.sheet.leaves):
            raise Unplaced(f"{new} stands there as well: take {old} out")
        splices = [_key_of(doc, leaf, old, new) for leaf in held]
        after = doc.again(spliced(doc.text, splices))
        if _values(after) != [(_with_new_key(key, old, new), value) for key, value in _values(doc)]:
            raise Unplaced("the file cannot be read back after the change")
    except Unplaced as e:
        return Changed(text, (), (Snippet(old, new, str(e)),))
    edits = [Edit(old, s.key, doc.lines.at(s.start), doc.text[s.start : s.end], s.text) for s in splices]
    return Changed(bom + after.text, tuple(edits))


def _last(leaf: Leaf) -> str:
    return leaf.key.rpartition(".")[2].replace("-", "_")


def _with_new_key(key: str, old: str, new: str) -> str:
    head, dot, last = key.rpartition(".")
    return f"{head}{dot}{new}" if last == old else f"{head}{dot}{last}"


def _values(doc: Document) -> list[tuple[str, Any]]:
    return [(leaf.key.replace("-", "_"), leaf.value) for leaf in doc.sheet.leaves]


def _key_of(doc: Document, leaf: Leaf, old: str, new: str) -> Splice:
    """The stretch that holds the key of a leaf.

    Raises:
        Unplaced: it does not stand right before its value.
    """
    if leaf.style not in _WRITTEN or not leaf.width:
        raise Unplaced(f"{old} is not written as a key with its value (line {leaf.line})")
    start = doc.span(leaf)[0]
    found = re.search(_KEY.format(old.replace("_", "[-_]")), doc.text[max(0, start - _BACK) : start])
    if found is None:
        raise Unplaced(f"{old} does not stand right before its value (line {leaf.line})")
    at = max(0, start - _BACK) + found.start("key")
    written = new.replace("_", "-") if "-" in found["key"] else new
    return Splice(at, at + len(found["key"]), written, leaf.key)
