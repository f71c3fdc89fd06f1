"""What a question asks for: the diagnosis of a run, or an answer that needs none (knowledge, a fit, a follow-up)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import yaml

from .follow_ups import follow_up
from .playbook import KNOWLEDGE
from .reading import model_config
from .reading.memory_model_capacity import of_name
from .types import Call

PREFLIGHT = "preflight"
_COUNT = re.compile(
    r"\b(?:(\d{1,3})\s*[x\u00d7*]\s*)?(\d{1,5})(?:\s*[x\u00d7*]\s*|\s+)(?:nvidia\s+)?"
    r"(?:gpus?\b|cards?\b|[abhlv]\d{2,3}s?\b|gb200s?\b|rtx|\d{1,4}\s*gi?b\b)",
    re.IGNORECASE,
)
_SIZE = re.compile(r"(?<![.\d])(\d{1,4})\s*gi?b\b", re.IGNORECASE)
_NODES = re.compile(r"\b(\d{1,4})\s*nodes?\b", re.IGNORECASE)
_WORD = re.compile(r"[\w./-]*\w")


@dataclass(frozen=True, slots=True)
class Intent:
    """A kind of question, the calls that answer it, and of a follow-up what its words name."""

    name: str
    calls: tuple[Call, ...]
    about: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Row:
    """A way to ask: any of its patterns, none of the others."""

    intent: str
    asks: re.Pattern[str]
    unless: re.Pattern[str]
    beside_run: re.Pattern[str] | None  # None: never where there is a run to diagnose

    def fits(self, text: str, *, beside_run: bool) -> bool:
        if not self.asks.search(text) or self.unless.search(text):
            return False
        return not beside_run or (self.beside_run is not None and not self.beside_run.search(text))


@cache
def _table() -> tuple[tuple[_Row, ...], dict[str, list[dict[str, Any]]]]:
    data = yaml.load(
        (KNOWLEDGE / "intents.yaml").read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )

    def either(patterns: list[str]) -> re.Pattern[str]:
        return re.compile("|".join(f"(?:{p})" for p in patterns), re.IGNORECASE)

    rows = tuple(
        _Row(r["intent"], either(r["asks"]), either(r["unless"]), either(b) if (b := r.get("beside_run")) else None)
        for r in data["rows"]
    )
    return rows, data["calls"]


def intent_of(question: str, *, beside_run: bool = False, earlier: Mapping[str, Any] | None = None) -> Intent | None:
    """The first intent that the question has; None for a diagnosis.

    Args:
        beside_run: there are logs of a run, so that a question in doubt is about it.
        earlier: the session's last diagnosis as plain data (`Report.model_dump`), or its last answer where it made
            none: a follow-up is about that. Without it only what leaves no doubt is one ("check rank 3").
    """
    text = " ".join(question.split())[:2000]
    if (beside_run or earlier) and (asked := follow_up(text, earlier)):  # of nothing, nothing follows
        return Intent(asked.name, asked.calls, asked.about)
    row = next((r for r in _table()[0] if r.fits(text, beside_run=beside_run)), None)
    return named(row.intent, text) if row else None


def named(name: str, question: str = "") -> Intent:
    """An intent by name, with the arguments that the question gives."""
    calls = []
    for row in _table()[1][name]:
        args = {k: question if v == "$question" else v for k, v in row.get("args", {}).items()}
        if row["tool"] == "estimate_memory":
            args |= hardware(question)
        if "" not in args.values():
            calls.append(Call(row["tool"], args, why=name))
    return Intent(name, tuple(calls))


def hardware(question: str) -> dict[str, Any]:
    """Devices, their memory and the model that a question names, as arguments of `estimate_memory`."""
    found: dict[str, Any] = {}
    if m := _COUNT.search(question):
        nodes = _NODES.search(question)
        found["ranks"] = int(m[1] or 1) * int(m[2]) * (int(nodes[1]) if nodes else 1)
    words = [re.sub(r"^\d+x", "", w, flags=re.IGNORECASE) for w in _WORD.findall(question)]
    card = next((w.removesuffix("s") for w in words if _is_card(w)), "")
    if m := _SIZE.search(question):
        found["gpu"] = m[1]
    elif card:
        found["gpu"] = card
    if model := next((w for w in words if not _is_card(w) and model_config.of_name(w)), ""):
        found["config"] = model
    return found


def _is_card(word: str) -> bool:
    bare = word.removesuffix("s")
    return any(c.isdigit() for c in bare) and of_name(bare) is not None
