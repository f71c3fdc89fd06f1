"""A model's `diagnosis`, read strictly, with its citations brought to evidence ids."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from ..planner import Diagnosis
from ..report import Sentence
from ..types import Call, Evidence, Hypothesis
from .offers import ANSWER

SENTENCES, RULED_OUT, CITES = 16, 6, 24
_ID = re.compile(r"\bE(\d+)(?:\s*(?:-|to|\u2013|\.\.)\s*E?(\d+))?\b")
_PLACE = re.compile(r"^\s*[\[(`]?(?P<file>[^\s:][^:\n]{0,400}):(?P<line>\d{1,9})(?:\s*-\s*\d+)?[\])`]?\s*$")
_FENCED = re.compile(r"^```(?:json)?\s*\n(.*)\n```$", re.DOTALL)


def _listed(value: Any) -> Any:
    """One citation stands for a list of one."""
    return [value] if isinstance(value, str) else value


_Cites = Annotated[list[str], BeforeValidator(_listed), Field(max_length=60)]


class _Said(BaseModel):
    text: str = Field(max_length=1200)
    cites: _Cites = []


class _RuledOut(BaseModel):
    cause: str = Field(max_length=200)
    why: str = Field(default="", max_length=1200)
    cites: _Cites = []


class Conclusion(BaseModel):
    """The arguments of `diagnosis`."""

    cause: str = Field(max_length=200)
    sentences: list[_Said] = Field(max_length=60)
    ruled_out: list[_RuledOut] = Field(default=[], max_length=60)


@dataclass(frozen=True, slots=True)
class Read:
    """A conclusion, or why there is none."""

    conclusion: Conclusion | None
    why: str = ""


def parsed(arguments: str) -> Read:
    """The conclusion in the raw arguments. Nothing is repaired: what does not parse is told."""
    try:
        data = json.loads(arguments)
    except (ValueError, RecursionError):
        return Read(None, "not valid JSON")
    if not isinstance(data, dict):
        return Read(None, "not a JSON object")
    try:
        return Read(Conclusion.model_validate(data))
    except ValidationError as e:
        return Read(None, "; ".join(_wrong(error) for error in e.errors()[:6]))


def _wrong(error: Mapping[str, Any]) -> str:
    """What is wrong with one part of the arguments, and how it should be."""
    at = ""
    for part in error["loc"]:
        at += f"[{part}]" if isinstance(part, int) else f".{part}" if at else str(part)
    if error["type"] == "model_type":
        shape = '{"text": "...", "cites": ["E1"]}' if at.startswith("sentences") else '{"cause": "...", "why": "..."}'
        return f"{at} must be an object like {shape}"
    return f"{at}: {error['msg'][:1].lower()}{error['msg'][1:]}"


def in_prose(content: str) -> Conclusion | None:
    """A conclusion given as the whole text of an answer, as models do whose server offers them no tools."""
    text = content.strip()
    if m := _FENCED.match(text):
        text = m[1].strip()
    return parsed(text).conclusion if text.startswith("{") and '"cause"' in text else None


def places_to_read(conclusion: Conclusion, evidence: Mapping[str, Evidence]) -> list[Call]:
    """Calls that make evidence of cited lines which no tool has shown yet."""
    known = {(e.file, e.line) for e in evidence.values()}
    cites = [c for s in (*conclusion.sentences, *conclusion.ruled_out) for c in s.cites]
    wanted = [(m["file"], int(m["line"])) for c in cites if (m := _PLACE.match(c))]
    missing = [w for w in dict.fromkeys(wanted) if w not in known and w[1] > 0]
    why = "the model cites it"
    return [Call("read_lines", {"file": file, "start": line, "count": 1}, why) for file, line in missing[:12]]


def diagnosis(
    conclusion: Conclusion, ranked: list[Hypothesis], evidence: Mapping[str, Evidence]
) -> Diagnosis:  # fmt: skip
    """The conclusion in the words of the planners, its citations as evidence ids."""
    by_place: dict[tuple[str | None, int | None], str] = {}
    for e in evidence.values():
        by_place.setdefault((e.file, e.line), e.id)
    said = [Sentence(text=s.text.strip(), cites=_ids(s.cites, by_place)) for s in conclusion.sentences[:SENTENCES]]
    for r in conclusion.ruled_out[:RULED_OUT]:
        text = f"Not {r.cause}: {r.why.strip().rstrip('.')}." if r.why else f"Not {r.cause}."
        said.append(Sentence(text=text, cites=_ids(r.cites, by_place)))
    cause = None if conclusion.cause == ANSWER else conclusion.cause
    ruled_out = [r.cause for r in conclusion.ruled_out]
    return Diagnosis(cause, ranked, [s for s in said if s.text], by_model=True, ruled_out=ruled_out)


def _ids(cites: list[str], by_place: Mapping[Any, str]) -> list[str]:
    """Ids as they are, ranges taken apart, places looked up; what is neither stays, and the gate refuses it."""
    found: list[str] = []
    for cite in cites:
        if m := _PLACE.match(cite):
            found.append(by_place.get((m["file"], int(m["line"])), cite.strip()))
            continue
        numbers = list(_ID.finditer(cite))
        for n in numbers:
            first, last = int(n[1]), int(n[2] or n[1])
            found += [f"E{i}" for i in range(first, min(last, first + CITES) + 1)]
        if not numbers:
            found.append(cite.strip()[:80])
    return list(dict.fromkeys(found))[:CITES]
