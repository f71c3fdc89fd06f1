"""The lines that the log pass looks for beside signatures, and how they are told apart. From `cascades.yaml`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from ..playbook import KNOWLEDGE
from .patterns import Pattern, searcher

EVENT = "anchor.event"  # something failed hereabouts: look closely
FRAME = "anchor.frame"  # a line of a traceback
WARNING = "anchor.warning"
RESTART = "anchor.restart"
RANKS = "anchor.ranks"  # whether rank labels occur in a block at all

_EVENTS = (
    r"Traceback \(most recent call last\)",
    r"\w(?:Error|Exception)\b",
    r"\bError: ",
    r"\bException: ",
    r"\b(?:ERROR|FATAL|CRITICAL)\b",
    r"(?i)\b(?:fatal|error) *: ",
    r"[\[: ]E\d{3,4} \d\d:\d\d:\d\d",
    r"(?i)segmentation fault|segfault|SIGSEGV|core dumped|bus error \(|illegal instruction",
    r"terminate called|what\(\):|Fatal Python error|\*\*\* Aborted|Assertion .{0,200} failed|double free",
    r"corrupted size",
    r"stop reason = |SIGABRT|SIGBUS|SIGKILL|SIGTERM|SIGILL|SIGFPE",
    r"(?:exit ?code|return code|exit status|exited with)\b.{0,12}-?\d",
    r"\bKilled\b|Killing subprocess|oom[-_]kill|OOM[- ]?[Kk]ill|Out of memory: ",
    r"NCCL WARN",
    r"Check failed: |command not found|No such file or directory|can't open file|: not found$",
    r"\bfrom user code:|\bnot enough memory\b",
    r"[Uu]ncaught |panicked at |Aborted\b",
)
_FRAMES = (r'File "[^"]{1,400}", line \d+', r"--> ?\d+ ")
_RANKS = r"\[(?:rank|Rank |RANK |rank: |default)\d|\brank=\d|\.py:\d{1,6}\] \(\d{1,4}/\d{1,4}\) "
_WARNINGS = (r"\b(?:WARNING|Warning|WARN)\b", r"[A-Za-z]Warning: ", r"[\[: ]W\d{3,4} \d\d:\d\d:\d\d")


@dataclass(frozen=True, slots=True)
class Table:
    """Compiled patterns of `cascades.yaml`: each list as one pattern, consequences also one by one."""

    cascade: tuple[tuple[str, Any], ...]
    any_cascade: Any
    harmless: Any
    progress: Any
    telling: Any
    finished: tuple[Any, ...]
    group_failed: Any
    gave_up: Any


@cache
def _raw() -> dict[str, Any]:
    return yaml.load(
        (KNOWLEDGE / "cascades.yaml").read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )


@cache
def table() -> Table:
    """The table, read once."""
    raw = _raw()

    def one(texts: list[str]) -> Any:
        return searcher("|".join(f"(?:{t})" for t in texts))

    each = [(kind, text) for kind, texts in raw["cascade"].items() for text in texts]
    return Table(
        tuple((kind, searcher(text)) for kind, text in each),
        one([text for _, text in each]),
        one(raw["harmless"]),
        one(raw["progress"]),
        one(raw["telling"]),
        tuple(searcher(text) for text in raw["finished"]),
        searcher(raw["group_failed"]),
        searcher(raw["gave_up"]),
    )


@cache
def anchor_patterns() -> tuple[Pattern, ...]:
    """What goes into the pass beside the signatures. Hits are not looked at twice: the readers of them decide."""
    raw = _raw()
    events = [*_EVENTS, *(t for texts in raw["cascade"].values() for t in texts)]
    return (
        Pattern(RANKS, _RANKS, verify=False, once=True),
        *(
            Pattern(name, regex, verify=False, number=i)
            for name, regexes in (
                (EVENT, events),
                (FRAME, _FRAMES),
                (WARNING, _WARNINGS),
                (RESTART, raw["restarted"]),
            )
            for i, regex in enumerate(regexes)
        ),
    )


def cascade_kind(body: str) -> str | None:
    """The kind of consequence a line is, or None."""
    if table().any_cascade.search(body) is None:
        return None
    return next((kind for kind, p in table().cascade if p.search(body)), None)


def is_harmless(body: str) -> bool:
    """Whether a line only looks like trouble."""
    return table().harmless.search(body) is not None


@cache
def _playbooks_harmless() -> Any:
    from ..library import playbooks

    usable = [s.pattern for p in playbooks() for s in p.signatures if s.harmless and searcher(s.pattern) is not None]
    return searcher("|".join(f"(?:{re.sub(r'[(][?]P<[^>]*>', '(?:', t)})" for t in usable)) if usable else None


def told_harmless(body: str) -> bool:
    """Whether a playbook says that a line means nothing."""
    known = _playbooks_harmless()
    return known is not None and known.search(body) is not None


def is_progress(body: str) -> bool:
    """Whether a line is what a living run prints again and again."""
    return table().progress.search(body) is not None


def is_telling(body: str) -> bool:
    """Whether a line behind an exception says what happened."""
    return table().telling.search(body) is not None
