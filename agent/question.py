"""What the question asserts. It steers the ranking and the search, and is never cited as evidence."""

from __future__ import annotations

import re
from functools import cache

import yaml

from .playbook import KNOWLEDGE
from .types import Evidence

_STEP = re.compile(r"\bstep\s+(\d[\d,]*)(k?)\b", re.IGNORECASE)


@cache
def _symptoms() -> dict[str, re.Pattern[str]]:
    table = yaml.safe_load((KNOWLEDGE / "symptoms.yaml").read_text(encoding="utf-8"))
    return {name: re.compile("|".join(f"(?:{p})" for p in patterns), re.IGNORECASE) for name, patterns in table.items()}


def asked(question: str) -> list[Evidence]:
    """Evidence of kind `asked`: the question's text, the symptoms it names and the step it speaks of."""
    if not question.strip():
        return []

    def say(key: str, value: str | int) -> Evidence:
        return Evidence(key=key, value=value, kind="asked", text=question[:400], tool="question")

    found = [say("question.text", question)]
    found += [say("question.symptom", name) for name, p in _symptoms().items() if p.search(question)]
    if m := _STEP.search(question):
        found.append(say("question.step", int(m[1].replace(",", "")) * (1000 if m[2] else 1)))
    return found
