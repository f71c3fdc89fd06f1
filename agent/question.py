"""What the question asserts. It steers the ranking and the search, and is never cited as evidence."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import yaml

from .playbook import KNOWLEDGE
from .types import Evidence

_STEP = re.compile(r"\bstep\s+(\d[\d,]*)(k?)\b", re.IGNORECASE)
_WORD = re.compile(r"[\w][\w'./%-]*")


@cache
def _symptoms() -> dict[str, re.Pattern[str]]:
    table = yaml.safe_load((KNOWLEDGE / "symptoms.yaml").read_text(encoding="utf-8"))
    return {name: _either(patterns) for name, patterns in table.items()}


@cache
def _table() -> dict[str, Any]:
    return yaml.safe_load((KNOWLEDGE / "complaints.yaml").read_text(encoding="utf-8"))


@cache
def _complaints() -> tuple[re.Pattern[str], dict[str, re.Pattern[str]]]:
    return _either(_table()["unless"]), {name: _either(of) for name, of in _table()["complaints"].items()}


@cache
def _ordinary() -> re.Pattern[str]:
    return _either(_table()["ordinary"])


def _either(patterns: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{p})" for p in patterns), re.IGNORECASE)


def complaints(question: str) -> list[str]:
    """What a question complains of that no clean end and no falling loss refutes."""
    unless, kinds = _complaints()
    if unless.search(question):
        return []
    return [name for name, p in kinds.items() if p.search(question)] + ["particular"] * _is_particular(question)


def _is_particular(question: str) -> bool:
    """Whether it speaks of something that is not in every run: by the number of its words that are not ordinary.

    A question of which hardly a word is ordinary is in another language, of which nothing is known.
    """
    words = {w.strip("'./-").lower().removesuffix("'s") for w in _WORD.findall(question)} - {""}
    odd = sum(not _ordinary().fullmatch(w) for w in words)
    return odd >= _table()["particular"] and 3 * odd <= 2 * len(words)


def asked(question: str) -> list[Evidence]:
    """Evidence of kind `asked`: the question's text, its symptoms and complaints, the step it speaks of."""
    if not question.strip():
        return []

    def say(key: str, value: str | int) -> Evidence:
        return Evidence(key=key, value=value, kind="asked", text=question[:400], tool="question")

    found = [say("question.text", question)]
    found += [say("question.symptom", name) for name, p in _symptoms().items() if p.search(question)]
    found += [say("question.complaint", name) for name in complaints(question)]
    if m := _STEP.search(question):
        found.append(say("question.step", int(m[1].replace(",", "")) * (1000 if m[2] else 1)))
    return found
