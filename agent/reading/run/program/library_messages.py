"""What the libraries print, from their sources: which message of which library a line is.

said = library_message("max_steps is given, it will override any value given in num_train_epochs")
said.message.library, said.message.kind, said.values

`knowledge/messages.tsv` holds one row for each line of each message (`make messages` reads the sources). A line is
looked up by the rare word that each row begins with, then compared piece by piece: nothing is compiled, and nothing is
read before a line is asked. A message begins its line, behind heads that loggers write; within a quotation, a record or
a sentence it is data.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ....core.own_files import KNOWLEDGE

TABLE = KNOWLEDGE / "messages.tsv"
LEVELS = {"i": "info", "w": "warning", "e": "error", "p": "print"}
KINDS = {"n": "notice", "e": "event", "t": "trouble", "d": "payload"}
HOLE = "{}"
_TEXT = 4000  # characters of a line
_NAME_WORDS = 4  # of what fills the first place of a message that begins with one
_SPACES = re.compile(r"\s+")
WORD = re.compile(r"[A-Za-z][A-Za-z_]{3,}")
_PIECES = re.compile(r"\{\{|\}\}|\{\}")
# What loggers and `warnings` write before a message: brackets, times, levels, places, dotted names of loggers.
_ROW = re.compile(r"(?m)^(?:#.*|= (?P<name>\S+) (?P<versions>.+)|[iwep][netd]\d\d (?P<word>\w+)\t.+)$")
_HEAD = re.compile(
    r"(?>(?:\[[^\[\]\"']{0,100}\]|\([^()\"']{0,80}\)|[^\s\"']+\.(?:py|pyx|cpp|cc|cu|h):\d+(?::\w+)?"
    r"|\d[\d:.,/TZ+-]*|\w*Warning|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|\w+(?:[._]\w+)+"
    r"|(?:wandb|root|deepspeed|torch|transformers|accelerate|datasets|ray|lightning|hydra)(?=\s*[-:|])|[-:|>,*!]+)\s*)*"
)


@dataclass(frozen=True, slots=True)
class Message:
    """A line that a library prints.

    `kind` is notice (advice, what was set, deprecations), event, trouble (words of a failure) or payload (text of the
    data fills it); `versions` the first and the last release whose source was seen to print it.
    """

    library: str
    level: str
    kind: str
    versions: tuple[str, str]
    template: str

    @property
    def text(self) -> str:
        """What it fixes, with a mark of one character in each place."""
        return "#".join(_split(self.template))


@dataclass(frozen=True, slots=True)
class Said:
    """A line that a library printed, with the text in each place that its message leaves open."""

    message: Message
    values: tuple[str, ...]


@dataclass(slots=True)
class Catalogue:
    """The rows by their rare words; `trouble` says what of the table could not be read."""

    rows: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    libraries: list[tuple[str, list[str]]] = field(default_factory=list)
    trouble: str = ""

    def of(self, body: str, level: str | None = None) -> Said | None:
        """The message that a line is; of several that fit, the one that fixes most of it.

        Args:
            body: the line without the prefixes of its surroundings (`lines.strip`).
            level: what its header says; a line of an error is no message of another level.
        """
        text = _SPACES.sub(" ", body[:_TEXT]).strip()
        near = {row for word in set(WORD.findall(text)) for row in self.rows.get(word, ())}
        for library, row in sorted(near, key=lambda r: -len(r[1])):
            template = row.partition("\t")[2]
            if (values := _filled(template, text)) is not None:
                message = self._message(library, row, template)
                if level not in ("error", "fatal") or message.level == "error":
                    return Said(message, values)
        return None

    def _message(self, library: int, row: str, template: str) -> Message:
        name, versions = self.libraries[library] if library >= 0 else ("?", ["?"])
        span = (versions[min(int(row[2]), len(versions) - 1)], versions[min(int(row[3]), len(versions) - 1)])
        return Message(name, LEVELS[row[0]], KINDS[row[1]], span, template)


def read(path: Path) -> Catalogue:
    """The table. What of it is damaged is left out."""
    found = Catalogue()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        found.trouble = f"{path.name}: {e}"
        return found
    at = bad = 0
    for m in _ROW.finditer(text):
        bad += text.count("\n", at, m.start())
        at = m.end() + 1
        if m["name"]:
            found.libraries.append((m["name"], m["versions"].split(" ")))
        elif m["word"]:
            found.rows[m["word"]].append((len(found.libraries) - 1, m[0]))
    bad += len(text[at:].splitlines())
    if bad or not found.rows:
        found.trouble = f"{path.name}: {bad} rows are damaged" if bad else f"{path.name}: no rows"
    return found


@cache
def catalogue() -> Catalogue:
    """The shipped table, read when the first line is asked."""
    return read(TABLE)


def library_message(body: str, level: str | None = None) -> Said | None:
    """The message of a library that a line is (`Catalogue.of`)."""
    return catalogue().of(body, level)


@cache
def _split(template: str) -> tuple[str, ...]:
    """The fixed texts of a template; between each two of them is a place."""
    fixed, at = [""], 0
    for m in _PIECES.finditer(template):
        fixed[-1] += template[at : m.start()] + ("" if m[0] == HOLE else m[0][0])
        if m[0] == HOLE:
            fixed.append("")
        at = m.end()
    fixed[-1] += template[at:]
    return tuple(fixed)


def _filled(template: str, text: str) -> tuple[str, ...] | None:
    """What fills the places of a template, where a line is one of it; each place as short as may be."""
    fixed = _split(template)
    if not all(piece in text for piece in fixed):
        return None
    start = _start(fixed, text)
    if start < 0:
        return None
    at, values = start + len(fixed[0]), []
    for number, piece in enumerate(fixed[1:], 1):
        last = number == len(fixed) - 1
        end = len(text) - len(piece) if last else text.find(piece, at)
        if end < at or (last and not text.endswith(piece)):
            return None
        values.append(text[at:end])
        at = end + len(piece)
    return tuple(values) if at == len(text) else None


def _start(fixed: tuple[str, ...], text: str) -> int:
    """Where a message begins behind the heads of loggers; -1 where something else stands before it."""
    if fixed[0]:
        start = text.find(fixed[0])
        return start if _HEAD.fullmatch(text, 0, start) else -1
    before = text.find(fixed[1]) if len(fixed) > 1 else -1
    for _ in range(_NAME_WORDS):  # what fills a first place is a name of few words
        before = text.rfind(" ", 0, max(before, 0)) + 1
        if _HEAD.fullmatch(text, 0, before):
            return before
        before -= 1
    return -1
