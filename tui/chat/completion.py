"""What may stand at the cursor of the prompt, from what is known of the case: no file is touched here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...agent.safety.fences import one_line
from .. import commands, themes
from ..commands import COMMANDS, RISKS

if TYPE_CHECKING:
    from ...agent.chat.talk import Conversation

MOST = 100  # rows that are offered; who wants others types on
LOOSE = 60  # letters; longer ones are looked for as they stand
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one row of the list puts into the prompt, and a few words about it."""

    text: str
    about: str = ""
    more: bool = False  # a folder: goes on being completed
    shown: str = ""  # in its place in the list


@dataclass(frozen=True, slots=True)
class Place:
    """The word at the cursor that is being completed: from where it is replaced, what of it is typed, its kind."""

    start: int
    typed: str
    kind: str
    lead: str = ""  # what the inserted text begins with


@dataclass(slots=True)
class Known:
    """What can be named at the moment. The screen fills it in; all of it may come from a run and is made inert here.

    Attributes:
        files: names of the run's files, as the report has them.
        evidence, patches, models: an id or name, and a line about it.
        talk: the conversation, whose applies are looked up when they are asked for.
    """

    files: Sequence[str] = ()
    evidence: Sequence[Pair] = ()
    patches: Sequence[Pair] = ()
    models: Sequence[Pair] = ()
    talk: Conversation | None = None
    _small: list[str] = field(default_factory=list, init=False)
    _of: Sequence[str] | None = field(default=None, init=False)

    def small(self) -> list[str]:
        """The file names in small letters, made once."""
        if self._of is not self.files:
            self._small, self._of = [f.lower() for f in self.files], self.files
        return self._small

    @classmethod
    def of(cls, talk: Conversation, models: Sequence[Pair] = ()) -> Known:
        """What a conversation knows by itself: the run's files, the evidence and patches of its diagnosis."""
        report = talk.diagnosis
        evidence = (
            [(e.id, f"{e.file}:{e.line}  {e.text[:200]}" if e.file else e.key) for e in report.evidence]
            if report
            else []
        )
        patches = [(p.id, f"{p.file}  {p.title}") for p in report.patches] if report else []
        return cls([f.name for f in talk.workspace.everything], evidence, patches, models, talk)  # fmt: skip


_AT = re.compile(r'(?:^|(?<=\s))@(?:"([^"]*)|([^\s"]*))$')
_COMMAND = re.compile(r"/(\S*)$")


def place(before: str, first: bool = True) -> Place | None:
    """What is being typed, from the line before the cursor; None where nothing is to be completed.

    Args:
        first: it is the first line: only that can be a command.
    """
    if found := _AT.search(before):
        return Place(found.start(), found[1] if found[1] is not None else found[2], "file")
    if not first or not commands.is_command(before):
        return None
    if found := _COMMAND.fullmatch(before):
        return Place(0, found[1], "command", "/")
    named = commands.command(before[1:].split(None, 1)[0]) if before[1:].strip() else None
    if named is None or not named.takes:
        return None
    at = _word_start(before)
    if not named.many and len(before[:at].split()) > 1:
        return None  # its only word of that kind stands already
    return Place(at, _bare(before[at:]), named.takes)


def candidates(where: Place, known: Known) -> list[Candidate]:
    """The best first, at most `MOST`. Kinds that need the disk (`completion_disk.KINDS`) are made there: none here."""
    if where.kind == "file":
        return [Candidate(_quoted(n)) for n in files(where.typed, known)]
    return matching(where.typed, _ROWS[where.kind](known)) if where.kind in _ROWS else []


def _slashes(known: Known) -> Iterable[Candidate]:
    return (Candidate(c.name, c.about, shown=c.usage) for c in COMMANDS)


_ROWS: dict[str, Callable[[Known], Iterable[Candidate]]] = {
    "command": _slashes,
    "evidence": lambda known: _pairs(known.evidence),
    "patch": lambda known: _pairs(known.patches),
    "model": lambda known: [*_pairs(known.models), Candidate("off", "no model: nothing is sent")],
    "risk": lambda known: _pairs(RISKS.items()),
    "theme": lambda known: (Candidate(name) for name in themes.names()),
    "export": lambda known: (
        Candidate("conversation.md", "markdown"), Candidate("conversation.html", "one page, with plots, no scripts"),
        Candidate("conversation.json", "the reports, schema traindoctor.report/1"),
    ),
}  # fmt: skip


def matching(typed: str, rows: Iterable[Candidate]) -> list[Candidate]:
    """Rows that begin with what is typed, then rows that hold it in their name, then in what is said about them."""
    typed = typed.lower()
    ranks: tuple[list[Candidate], ...] = ([], [], [])
    for row in rows:
        name = row.text.lower()
        if name.startswith(typed):
            ranks[0].append(row)
        elif typed in name:
            ranks[1].append(row)
        elif len(typed) > 2 and typed in row.about.lower():
            ranks[2].append(row)
    return [*ranks[0], *ranks[1], *ranks[2]][:MOST]


def files(typed: str, known: Known) -> list[str]:
    """Names of files that hold the typed letters in order: first where they stand together in the last part."""
    typed, small = typed.lower(), known.small()
    if not typed:
        return list(known.files[:MOST])
    found = [i for i, name in enumerate(small) if typed in name]
    found.sort(key=lambda i: (_rank(small[i], typed), len(small[i]), small[i]))
    if len(found) < MOST and len(typed) <= LOOSE:
        # Possessive: a name in which the letters do not come costs one pass, however many of them repeat.
        apart = re.compile("".join(f"[^{re.escape(c)}]*+{re.escape(c)}" for c in typed))
        room = MOST - len(found)
        loose = (i for i, name in enumerate(small) if typed not in name and apart.match(name))
        found += [i for i, _ in zip(loose, range(room), strict=False)]
    return [known.files[i] for i in found[:MOST]]


def _rank(name: str, typed: str) -> int:
    last = name.rpartition("/")[2]
    return 0 if last.startswith(typed) else 1 if typed in last else 2


def _pairs(pairs: Iterable[Pair]) -> Iterable[Candidate]:
    return (Candidate(one_line(name), one_line(about[:400])) for name, about in pairs)


def _quoted(name: str) -> str:
    """A name as it can be typed: inert, in quotes where it holds a space or a quote."""
    name = one_line(name)
    if not re.search(r"""[\s"'\\]""", name):
        return name
    return f'"{name}"' if '"' not in name else "'" + name.replace("'", "'\\''") + "'"


def word(text: str, more: bool = False) -> str:
    """An argument of a command, quoted for `commands.parsed`; the quote of a folder stays open to go on."""
    if not re.search(r"""[\s"'\\]""", text):
        return text
    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inner}' if more else f'"{inner}"'


def _word_start(before: str) -> int:
    """Where the last word of a command begins, quotes and backslashes counted as a shell does."""
    quote, start, escaped = "", len(before), False
    for i, c in enumerate(before):
        if start == len(before) and not c.isspace():
            start = i
        if escaped:
            escaped = False
        elif c == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c.isspace():
            start = len(before)
    return start


def _bare(text: str) -> str:
    """What a begun word says, without its quotes."""
    text = text[1:] if text[:1] in "\"'" else text
    return re.sub(r"\\(.)", r"\1", text)
