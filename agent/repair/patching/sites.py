"""Which of the places that hold a setting is the one to change, and where its value really stands."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import yaml

from ...core.errors import ChangeRefused
from ...reading.run.program.shell_words import read_script
from ...reading.settings.forms.settings_data import without_comments
from ...reading.settings.forms.settings_files import toml
from ...reading.settings.settings_map import Leaf, normal, settings_map
from .document import Document, Found, asleep, elsewhere, switched_on
from .named_values import REFERENCE, TEMPLATE, Site, in_class, parts, python_site, shell_site
from .spelling import REMOVE, Unplaced, among, lineage, listed, same, table, whole_key

INTERPOLATION = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")  # of OmegaConf, by the whole path of a key


def standing(doc: Document, name: str, at: int = 0) -> list[Found]:
    """The places of a setting that a change of it has to reach; empty where it is not set.

    Args:
        at: only what stands on this line.

    Raises:
        Unplaced: it stands several times with different values, or twice in one place.
    """
    found = [f for f in doc.found if f.name == name and (not at or f.leaf.line == at)]
    found = _resolved(doc, found)
    if not at:
        found = [f for f in found if not elsewhere(doc, f)]
    found = [f for part in (parts(doc, found) if not at else [found]) for f in _narrowed(doc, part)]
    unique: dict[tuple[int, int], Found] = {}
    for f in found:
        unique.setdefault((f.leaf.line, f.leaf.column), f)
    if twice := _twice([f for f in found if f.leaf.note != "alias"]):
        raise Unplaced(f"`{twice}` stands twice in one place (lines {', '.join(str(f.leaf.line) for f in found)})")
    kept = list(unique.values())
    if len(kept) > 1 and len({repr(f.value) for f in kept}) > 1:
        where = ", ".join(f"line {f.leaf.line}: {f.leaf.value}" for f in kept[:4])
        raise Unplaced(f"it stands {len(kept)} times with different values ({where})")
    _one_meaning(kept)
    return kept


def _narrowed(doc: Document, found: list[Found]) -> list[Found]:
    for keep in (_given, _in_call, _own, _awake, _at_home, _first_spelled, _said):
        found = keep(doc, found) or found
    return found


def _one_meaning(found: list[Found]) -> None:
    """Keys of several sections may have one value by chance: each may be for another stage or another model.

    Raises:
        Unplaced: it cannot be told that they mean the same.
    """
    keys: dict[str, str] = {}
    for f in found:
        if f.leaf.style in ("yaml", "json", "toml", "ini") and f.leaf.note != "alias":
            tail = ".".join(f.spelling.segments)
            if keys.setdefault(tail, f.leaf.key) != f.leaf.key and not _alike(f):
                raise Unplaced(f"both `{keys[tail]}` and `{f.leaf.key}` hold it, and which one is meant is not clear")


def _alike(found: Found) -> set[str]:
    """Spellings that a framework reads side by side, so that all of them are changed together."""
    said = (listed("alike", found.scope) or {}).get(found.name, ())
    return set(said) if ".".join(found.spelling.segments) in said else set()


def _resolved(doc: Document, found: list[Found]) -> list[Found]:
    """Without what takes its value from another of them, or without that one where others take theirs from it too."""
    set_here = {f.leaf.key: f for f in found}
    taken = {key: [f for f in found if _template_of(f) == key] for key in set_here}
    shared = {k for k, by in taken.items() if by and doc.form == "yaml" and doc.text.count(f"${{{k}}}") > len(by)}
    follow = [f for f in found if _template_of(f) in set_here and _template_of(f) not in shared]
    return [f for f in found if f.leaf.key not in shared and f not in follow]


def _template_of(found: Found) -> str:
    """The variable that a here-document takes a value from, or the key that a configuration takes it from."""
    value = found.value
    if not isinstance(value, str) or found.leaf.style not in ("json", "yaml"):
        return ""
    m = REFERENCE.fullmatch(value) or INTERPOLATION.fullmatch(value)
    return (m[1] or m[m.lastindex or 0]) if m else ""


def _given(doc: Document, found: list[Found]) -> list[Found]:
    """What is given, before what code would take otherwise; a default that is passed on stands for what it gives."""
    given = [f for f in found if f.leaf.style != "default"]
    passed = {name for f in given if (name := _passes(doc, f))}
    behind = [f for f in found if normal(f.leaf.key) in passed and _may_be_passed(doc, f)]
    stated = [f for f in given if f not in behind and not _passes(doc, f)]
    return behind if behind and not stated else given


def _passes(doc: Document, found: Found) -> str:
    """The option or field that a computed value passes on: `lr` of `learning_rate=args.lr`."""
    m = re.fullmatch(r"(?:[A-Za-z_]\w*\.)+(\w+)", doc.source(found.leaf)) if doc.form == "python" else None
    return normal(m[1]) if m else ""


def _may_be_passed(doc: Document, found: Found) -> bool:
    return found.leaf.style == "default" or (found.leaf.style == "assignment" and in_class(doc, found.leaf.line))


def _in_call(doc: Document, found: list[Found]) -> list[Found]:
    """What the framework's call is given, before names and dictionaries of the code that bear the same name."""
    calls = listed("calls", doc.framework) or ()
    given = [f for f in found if f.leaf.style == "keyword" and f.leaf.note in calls]
    found = [f for f in found if f in given or f.scope == "deepspeed"] if given else found
    named = {doc.source(f.leaf) for f in found if f.leaf.style in ("keyword", "dict")}
    taken = any(f.own and f.leaf.style == "keyword" for f in found)
    return [f for f in found if f.leaf.style != "assignment" or not (taken or f.leaf.key in named)]


def _own(doc: Document, found: list[Found]) -> list[Found]:
    return [f for f in found if f.own]


def _at_home(doc: Document, found: list[Found]) -> list[Found]:
    """Where one stands at the very key that the framework reads, before others of its name deeper in the file."""
    home = [f for f in found if f.own and f.leaf.key == ".".join(whole_key(f.scope, f.spelling))]
    return [f for f in found if f in home or f.leaf.style not in ("yaml", "json", "toml")] if home else found


def _awake(doc: Document, found: list[Found]) -> list[Found]:
    return [f for f in found if not asleep(doc, f)]


def _said(doc: Document, found: list[Found]) -> list[Found]:
    """Without `auto`, which takes what the trainer's own arguments say, where those stand here too."""
    auto = [f for f in found if f.value == "auto" and f.leaf.style in ("json", "dict")]
    return [f for f in found if f not in auto] if auto and found[0].name in table()["by_trainer"] else found


def _first_spelled(doc: Document, found: list[Found]) -> list[Found]:
    """Of several ways to say one thing, the one that the map names first: `seq_length` before the positions.

    Flags and a DeepSpeed object in one text each say it in their own way.
    """
    kept: list[Found] = []
    for scope in dict.fromkeys(f.scope for f in found):
        inside = [f for f in found if f.scope == scope]
        if not any(f.own for f in inside):
            kept += inside  # a name that is accepted anywhere says nothing of which is read
            continue
        if among(scope, table()["switched"]):
            inside = [f for f in inside if switched_on(doc, f)] or inside
        ranks = [_rank(f) for f in inside]
        best = inside[ranks.index(min(ranks))]
        alike = _alike(best) | {".".join(best.spelling.segments)}
        kept += [
            f for f, rank in zip(inside, ranks, strict=True)
            if rank == min(ranks) or ".".join(f.spelling.segments) in alike
        ]  # fmt: skip
    return kept


def _rank(found: Found) -> int:
    spelled = settings_map().canonical[found.name].spelled
    scopes = (*lineage(found.scope), "also")
    order = [tuple(p.lstrip("=") for p in s.segments) for f in scopes for s in spelled.get(f, ())]
    return order.index(found.spelling.segments) if found.spelling.segments in order else len(order)


def _twice(found: list[Found]) -> str:
    """A key that one mapping, command or call gives twice: which of the two holds is the parser's secret."""
    seen: set[tuple[str, str, str]] = set()
    for f in found:
        leaf = f.leaf
        if leaf.style in ("keyword", "assignment", "dict", "default"):
            continue  # other calls and other scopes
        identity = (leaf.key, leaf.style, leaf.group)
        if identity in seen:
            return leaf.key
        seen.add(identity)
    return ""


def site(doc: Document, found: Found) -> Site:
    """Where the value of a found setting is written.

    Raises:
        Unplaced: it is computed, shared, or comes from outside the file.
    """
    leaf = found.leaf
    if leaf.note == "alias" and doc.source(leaf).startswith("*"):
        return Site(found, *doc.span(leaf))  # the literal takes the place of the alias, the anchor stays
    if leaf.note == "alias" or any(other.note == "alias" and _together(leaf, other) for other in doc.sheet.leaves):
        raise Unplaced("an anchor shares its value with other places")
    if doc.form == "python" and leaf.style == "default" and not leaf.width:
        raise Unplaced("it is a switch that code declares, off until it is given")
    if not leaf.width and leaf.value is None and doc.form == "yaml" and leaf.column:
        return _empty(doc, found)
    start, end = doc.span(leaf)
    if isinstance(leaf.value, list) and settings_map().canonical[found.name].type != "list":
        several = "more than one word stands behind the flag"
        raise Unplaced(several if leaf.style == "flag" else "it is a list of values")
    if leaf.note == "switch":
        return Site(found, start, end)
    source = doc.text[start:end]
    if source.strip("\"'") == "auto" and leaf.style in ("json", "dict") and found.name in table()["by_trainer"]:
        raise Unplaced("it is `auto`: the trainer fills it in from its own arguments, so change it there")
    if source[:1] in "&!" and doc.form == "yaml":
        return _behind_anchor(doc, found, source, start, end)
    if doc.form == "python":
        return python_site(doc, found, source, start, end)
    if doc.form in ("shell", "env") and "$" in source and leaf.style not in ("json", "yaml"):
        return shell_site(doc, found, source, start, end)
    if (m := INTERPOLATION.fullmatch(source.strip("\"'"))) and any(o.key == m[1] for o in doc.sheet.leaves):
        return Site(found, start, end)  # the key that it is taken from keeps its value for its other uses
    if TEMPLATE.search(source):
        raise Unplaced(f"`{source[:60]}` is filled in from elsewhere")
    return Site(found, start, end)


def _together(leaf: Leaf, other: Leaf) -> bool:
    return (leaf.line, leaf.column) == (other.line, other.column)


def _empty(doc: Document, found: Found) -> Site:
    """The place behind the colon of a key without a value."""
    start = doc.lines.start(found.leaf.line) + found.leaf.column
    while start > 0 and doc.text[start - 1] in " \t":
        start -= 1
    if start == 0 or doc.text[start - 1] != ":":
        raise Unplaced("its value does not stand on one line by itself")
    return Site(found, start, start)


def _behind_anchor(doc: Document, found: Found, source: str, start: int, end: int) -> Site:
    m = re.match(r"&(\S+)[ \t]+(?=\S)", source)
    if not m or source[m.end() : m.end() + 1] in ("!", "&"):
        raise Unplaced("its value has a tag or an anchor of its own")
    if re.search(rf"\*{re.escape(m[1])}(?![\w\-])", doc.text):
        raise Unplaced(f"the anchor &{m[1]} shares its value with other places")
    return Site(found, start + m.end(), end)


# ----------
# A text as the format's own parser takes it, value by value: what a change really did, whatever our readers saw.

LARGEST = 400_000  # characters that are parsed once more; our own readers compare what is larger
ENTRIES, ALIASES = 60_000, 200  # a few aliases can stand for millions of values


def moved(before: Document, after: Document, meant: Iterable[str]) -> str:
    """A path outside those that are meant whose value a change moved; empty where there is none or it cannot be told.

    Args:
        meant: dotted keys that may change, with all below them.
    """
    old, new = values(before), values(after)
    if old is None or new is None:
        return ""
    allowed = set(meant)
    for path in old.keys() | new.keys():
        if old.get(path) != new.get(path) and not any(_within(path, key) for key in allowed):
            return path
    return ""


def _within(path: str, key: str) -> bool:
    """Whether a path is a key, below it, or a mapping above it that came or went with it."""
    return path == key or path.startswith(key + ".") or key.startswith(path + ".")


def values(doc: Document) -> dict[str, str] | None:
    """Dotted path -> value of all that a text holds; None where its parser does not take it or it is large."""
    if len(doc.text) > LARGEST:
        return None
    try:
        if doc.form == "json":
            trees = [json.loads(without_comments(doc.clean))]
        elif doc.form == "toml":
            trees = [toml(doc.text)]
        elif doc.form == "yaml" and doc.text.count("*") <= ALIASES:
            trees = list(yaml.load_all(doc.clean, Loader=_loader()))
        else:
            return None
    except (ValueError, yaml.YAMLError, RecursionError, TypeError):
        return None
    out: dict[str, str] = {}
    for number, tree in enumerate(trees):
        for path, value in _flat(tree, ""):
            out[path] = f"{out.get(path, '')}|{number}: {value}"
            if len(out) > ENTRIES:
                return None
    return out


def _flat(tree: Any, path: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    if not inner or not tree or depth > 80:
        yield path, repr(tree)
        return
    for key, value in inner:
        yield from _flat(value, f"{path}.{key}" if path else str(key), depth + 1)


@cache
def _loader() -> Any:
    """A loader that builds nothing: a value with a tag is what stands behind the tag."""

    def plain(loader: Any, _: str, node: Any) -> Any:
        if isinstance(node, yaml.MappingNode):
            return loader.construct_mapping(node, deep=True)
        return loader.construct_sequence(node, deep=True) if isinstance(node, yaml.SequenceNode) else str(node.value)

    loader: Any = type("Plain", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {})
    loader.add_multi_constructor("", plain)
    return loader


# ----------
# After every change the text is read again: the setting is as asked, and nothing else has moved.

Identity = tuple[str, str, str, str]


def _identity(leaf: Leaf) -> Identity:
    return leaf.key, repr(leaf.value), leaf.style, leaf.scope


def verify(
    before: Document, after: Document, name: str, values: list[Any], touched: Iterable[Leaf], at: int = 0
) -> None:
    """Compare a text with what it was before a change of one setting.

    Args:
        values: what the setting may be now, canonically; `[REMOVE]` when it was taken out or switched off.
        touched: leaves of the old text that may differ.
        at: the one line that was meant, or 0.

    Raises:
        ChangeRefused: something else changed, the file does not parse, or the setting is not what was asked for.
    """
    if after.parses() < before.parses():
        raise ChangeRefused(f"{before.name}: would not parse after the change of {name}")
    old, new = (Counter(map(_identity, d.sheet.leaves)) for d in (before, after))
    may = {_identity(leaf) for leaf in touched}
    keys = {identity[0] for identity in may}
    for gone in old - new:
        if gone not in may:
            raise ChangeRefused(f"{before.name}: the change of {name} would also change `{gone[0]}`")
    ours = {f.leaf.key for f in after.found if f.name == name}
    for come in new - old:
        if come[0] not in keys | ours:
            raise ChangeRefused(f"{before.name}: the change of {name} would also set `{come[0]}`")
    if path := moved(before, after, keys | ours):
        raise ChangeRefused(f"{before.name}: the change of {name} would also move `{path}`")
    _shape(before, after, name)
    _value(after, name, values, at)


def _shape(before: Document, after: Document, name: str) -> None:
    """A script keeps its arrays and here-documents, and has at most one command more or less."""
    if len(after.sheet.duplicates) > len(before.sheet.duplicates):
        raise ChangeRefused(f"{before.name}: {name} would stand twice after the change")
    if before.form != "shell":
        return
    old, new = read_script(before.clean), read_script(after.clean)
    if old.arrays.keys() != new.arrays.keys() or len(old.heredocs) != len(new.heredocs):
        raise ChangeRefused(f"{before.name}: the change of {name} would break the script's quoting")
    if abs(len(old.commands) - len(new.commands)) > 1:
        raise ChangeRefused(f"{before.name}: the change of {name} would cut a command in two")


def _value(after: Document, name: str, values: list[Any], at: int) -> None:
    try:
        found = standing(after, name, at)
    except Unplaced as e:
        raise ChangeRefused(f"{after.name}: {name} is not one value after the change: {e}") from None
    now = [f.value for f in found]
    if REMOVE in values and all(loose(f) for f in found):
        return
    if not now or not all(any(same(v, w) for w in values) for v in now):
        shown = ", ".join(map(str, now)) or "not set"
        raise ChangeRefused(f"{after.name}: {name} is {shown} after the change, not {values[0]}")


def loose(found: Found) -> bool:
    """A shell variable that only bears the name of a setting: it sets nothing by itself, and others may use it."""
    return not found.own and found.leaf.style in ("variable", "environment")
