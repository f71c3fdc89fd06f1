"""Placeholders of commands replaced by what the evidence knows, so that a shell takes each for the one word it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..predicates import Facts
from ..report import ReportFix
from ..salvage.quoting import word
from ..types import Evidence
from .scene import Scene, names

BLANK = re.compile(r"<([a-z][a-z-]*)>")
_PLAIN = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_.:/@%+=-]*")
_LISTS = ("nodename=<node>", "--exclude=<node>", "--without <node>")  # where a command takes several with commas
_MOST = 8  # commands that one becomes


def filled(fix: ReportFix, proof: Sequence[Evidence], facts: Facts, scene: Scene | None = None) -> ReportFix:
    """A repair with the placeholders of its commands filled in, where exactly one value is known and safe.

    Args:
        proof: the evidence that the verdict stands on; its values come before all others.
        scene: paths of the runs and the nodes at fault. Without it no path is filled in.
    """
    known = names(proof, facts, scene or Scene())
    commands = [done for command in fix.commands for done in fill(command, known)]
    return fix.model_copy(update={"commands": list(dict.fromkeys(commands))})


def fill(command: str, known: Mapping[str, list[str]]) -> list[str]:
    """A command with its placeholders filled in: several where it names one node and several are at fault."""
    nodes = known.get("node", [])
    if "<node>" in command and 1 < len(nodes) <= _MOST and not any(shape in command for shape in _LISTS):
        return [_one({**known, "node": [n]}, command) for n in nodes]
    return [_one(known, command)]


def _one(known: Mapping[str, list[str]], command: str) -> str:
    parts: list[str] = []
    at = 0
    for m in BLANK.finditer(command):
        value = ",".join(known.get(m[1], []))
        quoted = _in_quotes(command[: m.start()])
        parts.append(command[at : m.start()])
        parts.append(m[0] if not value or (quoted and not _PLAIN.fullmatch(value)) else _worded(value))
        at = m.end()
    return "".join((*parts, command[at:]))


def _worded(value: str) -> str:
    return value if _PLAIN.fullmatch(value) or re.fullmatch(r"[A-Za-z0-9.,-]*[A-Za-z0-9]", value) else word(value)


def _in_quotes(before: str) -> bool:
    """Whether the next character stands within quotes of a shell."""
    quote = ""
    characters = iter(before)
    for c in characters:
        if c == "\\" and quote != "'":
            next(characters, "")
        elif quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
    return bool(quote)
