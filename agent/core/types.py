"""The nouns of a diagnosis that stay plain data: evidence, results, calls, hypotheses.

Plain dataclasses, because thousands are made on the hot path; the report (`report.py`) is pydantic, because
it crosses a boundary.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Value = str | int | float | bool | None | list | dict
Outcome = Literal["finding", "clean", "not_applicable", "not_allowed", "failed"]
Kind = Literal["line", "command", "binary", "absent", "asked", "document"]

LINE_CAP = 4096  # bytes of a line that a piece of evidence shows


class Risk(StrEnum):
    """What a tool may do to the world; approvals are given by level."""

    READ = "read"
    PROBE = "probe"
    COSTLY = "costly"
    WRITE = "write"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One observed fact. Only tools make it.

    `line` counts newlines from 1 and `text` is that line, decoded with replacement and cut at 4 KiB (`cut`).
    `file` is relative to the run, with an `r2/` prefix when there are several runs.
    `absent` evidence says what was looked for in `searched`; its value is the default that then applies.
    `document` evidence is a passage of a playbook, a catalogue or a document of the user's: `file` names it,
    `member` is its path of headings. It bears out an answer, never a diagnosis.
    """

    key: str
    value: Value = True
    kind: Kind = "line"
    file: str | None = None
    line: int | None = None
    offset: int | None = None
    text: str = ""
    cut: bool = False
    argv: list[str] | None = None
    member: str | None = None
    searched: list[str] | None = None
    rank: int | None = None
    host: str | None = None
    attempt: int | None = None
    variant: str | None = None
    step: int | None = None
    time: str | None = None
    run: str = "r1"
    tool: str = ""
    id: str = ""

    def with_(self, **changes: Any) -> Evidence:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready mapping, also what the session database keeps."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}


@dataclass(slots=True)
class ToolResult:
    """What a tool answers.

    `summary` is one line for people; `text` is what a model reads; `more` says how to read what was cut
    (for example `{"tool": "read_lines", "file": ..., "start": ...}`).
    """

    outcome: Outcome
    summary: str
    evidence: list[Evidence] = field(default_factory=list)
    text: str = ""
    more: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One planned step: a tool by name with arguments, and why."""

    tool: str
    args: dict[str, Any] = field(default_factory=dict)
    why: str = ""

    @property
    def identity(self) -> str:
        """The same call twice has the same identity, whatever the order of its arguments."""
        return f"{self.tool}({', '.join(f'{k}={v!r}' for k, v in sorted(self.args.items()))})"


@dataclass(slots=True)
class Hypothesis:
    """A cause with what supports it, what contradicts it and what is missing. Computed, never hand-kept."""

    cause: str
    playbook: str
    title: str
    probability: float = 0.0
    score: float = 0.0
    supported_by: list[str] = field(default_factory=list)
    contradicted_by: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    positive: bool = False  # at least one positive predicate or decisive line
    seen: bool = True  # the run shows more of it than circumstances
    parts: tuple[str, ...] = ()  # of its proof, those that are there: effect, mechanism, link
    unexplained: bool = False  # an exception ended the run of which nothing of it speaks
    leaves: tuple[str, ...] = ()  # what the question complains of, in words, where it brings none of that about
    explained_by: str | None = None  # the cause upstream that explains this one
    elsewhere: bool = False  # all of it comes from another variant than the one that failed
