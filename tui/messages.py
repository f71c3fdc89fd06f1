"""What parts of the chat ask of the screen they are on. A part posts one of these and knows nothing of the others."""

from __future__ import annotations

from dataclasses import dataclass, field

from textual.message import Message


@dataclass
class Ask(Message):
    """Put a question, as if it had been typed."""

    question: str


@dataclass
class Command(Message):
    """Carry out a line with a slash, as if it had been typed: `/apply P1`."""

    line: str


@dataclass
class OpenEvidence(Message):
    """Open the file of a piece of evidence at its line."""

    ident: str


@dataclass
class OpenFile(Message):
    """Open a file of the run, by its name in the report, at a line (counted from 1)."""

    name: str
    line: int = 1


@dataclass
class ApplyPatches(Message):
    """Show what patches would change and ask; by their ids, none means the first repair's."""

    ids: list[str] = field(default_factory=list)


@dataclass
class UndoApply(Message):
    """Show what taking an apply back would change and ask; the newest where none is named."""

    ident: str = ""


@dataclass
class Told(Message):
    """A line for the conversation, from whichever part; `trouble` marks what went wrong."""

    text: str
    trouble: bool = False
