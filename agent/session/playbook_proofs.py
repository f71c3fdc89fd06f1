"""What a playbook must prove before it counts: its examples, its keys, its cause, its checks, its repairs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..core.playbook import Playbook, SettingChange, causes, line_of
from ..reading.settings.settings_map import settings_map
from ..repair.treatment.amounts import AMOUNTS
from ..tools.tool import all_tools

PARTS = ("What it looks like", "Why it happens", "How to tell it apart", "What to do", "How to prevent it")
_ADVICE = ("question.", "sig.")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
Found = Iterator[tuple[tuple[Any, ...], str]]  # place in the front matter, what is wrong there


def faults(playbook: Playbook, known: list[Playbook]) -> Iterator[str]:
    """Everything wrong with a playbook, one line each: `path:line: what`."""
    found = [*_names(playbook), *_signatures(playbook), *_keys(playbook, known), *_fixes(playbook, known)]
    yield from _placed(playbook, found)


def gaps(playbook: Playbook) -> Iterator[str]:
    """What a playbook lacks that a reader at night would miss, one line each. A playbook of `none.*` has no repair."""
    ill = not playbook.cause.startswith("none.")
    missing: list[tuple[tuple[Any, ...], str]] = [
        (("signatures", n), f"signature {n + 1} ignores nothing: name a line that must not match")
        for n, s in enumerate(playbook.signatures) if ill and not s.ignores
    ]  # fmt: skip
    for there, text in (
        (playbook.predicates or playbook.signatures or not ill, "nothing confirms it"),
        (playbook.contradicts or not ill, "nothing excludes it: `contradicts` is empty"),
        (playbook.checks or not ill, "no check separates it from its neighbours"),
        (playbook.fixes or not ill, "no repair"),
        (playbook.sources, "no source"),
    ):
        if not there:
            missing.append(((), text))
    missing += [
        (("fixes", n), f"nothing verifies repair {n + 1}") for n, f in enumerate(playbook.fixes) if not f.verify and ill
    ]
    headings = _HEADING.findall(playbook.body)
    missing += [((), f"no section {part!r}") for part in PARTS if part not in headings]
    yield from _placed(playbook, missing)


def _placed(playbook: Playbook, found: list[tuple[tuple[Any, ...], str]]) -> Iterator[str]:
    """With path and line; the file is read again only where there is something to tell."""
    if not found:
        return
    try:
        front = Path(playbook.path).read_text(encoding="utf-8")[4:].split("\n---\n", 1)[0]
    except OSError:
        front = ""
    for place, text in found:
        yield f"{playbook.path}:{line_of(front, place) if front and place else 2}: {text}"


def _names(playbook: Playbook) -> Found:
    """The vocabulary: causes and tools by their names."""
    vocabulary, tools = causes(), all_tools()
    if playbook.cause not in vocabulary:
        yield ("cause",), f"cause {playbook.cause!r} is not in causes.yaml"
    for n, name in enumerate(playbook.checks):
        if name not in tools:
            yield ("checks", n), f"no tool is called {name!r}"
    for n, cause in enumerate(playbook.explains):
        if cause not in vocabulary:
            yield ("explains", n), f"explains {cause!r}, which is not in causes.yaml"


def _signatures(playbook: Playbook) -> Found:
    for n, signature in enumerate(playbook.signatures):
        try:
            compiled = re.compile(signature.pattern)
        except re.error as e:
            yield ("signatures", n), f"signature {n + 1}: {e}"
            continue
        for line in signature.matches:
            if not compiled.search(line):
                yield ("signatures", n, "matches"), f"signature {n + 1} does not match its own example {line!r}"
        for line in signature.ignores:
            if compiled.search(line):
                yield ("signatures", n, "ignores"), f"signature {n + 1} matches {line!r}, which it must ignore"


def _keys(playbook: Playbook, known: list[Playbook]) -> Found:
    """Keys that some tool emits, or that name a signature."""
    slugs = {p.key for p in known}
    for part in ("requires", "any_of", "supports", "contradicts"):
        for n, predicate in enumerate(getattr(playbook, part)):
            for key in filter(None, (predicate.key, predicate.than)):
                if not _is_known(key, slugs):
                    yield (part, n), f"no tool emits {key!r}"
            if predicate.op == "matches":
                try:
                    re.compile(str(predicate.value))
                except re.error as e:
                    yield (part, n), f"{predicate.value!r}: {e}"


def _is_known(key: str, signature_keys: set[str]) -> bool:
    if key.startswith("sig."):
        return key in signature_keys or key.rpartition(".")[0] in signature_keys
    return key.startswith(_ADVICE) or any(t.allows(key) for t in all_tools().values())


def _uncountable(change: SettingChange, kind: str) -> str:
    """What is wrong with a change that computes, for a setting of a type; empty where nothing is."""
    if change.amount and change.amount not in AMOUNTS:
        return f"takes the amount {change.amount!r}, which nobody computes"
    if unknown := [name for name in change.product_of if name not in settings_map().canonical]:
        return f"is a product of {unknown[0]!r}, which is no canonical setting"
    numbers = (change.multiply, change.at_least, change.at_most, change.product_of or None)
    if any(n is not None for n in numbers) and kind not in ("int", "float", "seconds"):
        return f"is of type {kind}, which is not counted"
    return ""


def _fixes(playbook: Playbook, known: list[Playbook]) -> Found:
    """Repairs in canonical settings, so that they can be written in the words of any framework."""
    slugs = {p.key for p in known}
    canonical, tools = settings_map().canonical, all_tools()
    for n, fix in enumerate(playbook.fixes):
        if fix.verify and fix.verify not in tools:
            yield ("fixes", n, "verify"), f"repair {n + 1}: no tool is called {fix.verify!r}"
        for predicate in fix.when:
            if not _is_known(predicate.key, slugs):
                yield ("fixes", n, "when"), f"repair {n + 1}: no tool emits {predicate.key!r}"
        if not (fix.settings or fix.env or fix.commands or fix.text):
            yield ("fixes", n), f"repair {n + 1} says nothing but its title"
        for name, change in fix.settings.items():
            if name not in canonical:
                yield ("fixes", n, "settings"), f"repair {n + 1}: no canonical setting is called {name!r}"
            elif isinstance(change, SettingChange) and (why := _uncountable(change, canonical[name].type)):
                yield ("fixes", n, "settings"), f"repair {n + 1}: {name} {why}"


# ----------
# Which causes have a playbook, and how much the playbooks of a family hold.

_COLUMNS = ("causes", "playbooks", "signatures", "predicates", "fixes", "as patch", "sources")


def covered(playbooks: Sequence[Playbook]) -> dict[str, list[str]]:
    """Every cause with the slugs of its playbooks."""
    found: dict[str, list[str]] = {cause: [] for cause in causes()}
    for p in playbooks:
        found.setdefault(p.cause, []).append(p.slug)
    return found


def table(playbooks: Sequence[Playbook]) -> list[str]:
    """One line a family and one of all; `as patch` counts repairs that change settings or the environment."""
    slugs = covered(playbooks)
    families = list(dict.fromkeys(cause.split(".")[0] for cause in slugs))
    rows = [f"{'family':<8}" + "".join(f"{c:>12}" for c in _COLUMNS)]
    for family in [*families, ""]:
        mine = [p for p in playbooks if not family or p.cause.split(".")[0] == family]
        wanted = [c for c in slugs if not family or c.split(".")[0] == family]
        without = [c for c in wanted if not slugs[c]]
        counts = (
            f"{len(wanted) - len(without)} of {len(wanted)}", len(mine), sum(len(p.signatures) for p in mine),
            sum(len(p.predicates) for p in mine), sum(len(p.fixes) for p in mine),
            sum(bool(f.settings or f.env or f.rename) for p in mine for f in p.fixes),
            sum(len(p.sources) for p in mine),
        )  # fmt: skip
        told = f"   without: {', '.join(without)}" if without and family else ""
        rows.append(f"{family or 'all':<8}" + "".join(f"{c:>12}" for c in counts) + told)
    return rows


# ----------
# The file a new playbook begins as. Its proofs fail on purpose: an unfinished one must not pass for knowledge.

_FRONT = """---
cause: {cause}
title: "TODO: {meaning}"
signatures:
  - pattern: 'TODO: what is particular to this failure, with a rare word in it'
    matches: ["a line as the library prints it; look the format up in its source"]
    ignores: ["a line that looks alike and means something else"]
checks: []            # tools that separate it from its neighbours: doctor tool
requires:             # all of these must hold before it is confirmed: evidence keys stand in docs/tools.md
  - {{key: todo.key, op: exists}}
supports: []          # - {{key: memory.alloc_retries, op: gt, value: 0, weight: weak}}
contradicts: []       # - {{key: ..., op: ..., weight: strong, why: "which neighbour it is then"}}
explains: []          # causes that follow from it
fixes:
  - {{title: "TODO", settings: {{}}, env: {{}}, commands: [], text: "", verify: ""}}
sources: []
---
"""


def skeleton(cause: str) -> str:
    """The text of a new playbook of a cause."""
    front = _FRONT.format(cause=cause, meaning=causes()[cause].replace('"', "'"))
    return front + "\n".join(f"## {part}\nTODO\n" for part in PARTS)
