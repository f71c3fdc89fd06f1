"""A model's `diagnosis`, read strictly, with its citations brought to evidence ids."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from ..planner import Diagnosis, ProposedEdit
from ..report import Sentence
from ..types import Call, Evidence, Hypothesis
from .citations import AT_ALL, CITES, LOOKED_AT, STRETCH, Citations, Lines, Roots
from .offers import ANSWER

SENTENCES, RULED_OUT, EDITS = 24, 6, 8
CALLS, LINES = 12, 120  # to read what is cited and was not shown
_DEEP = 16  # levels of arguments; a conclusion has four
_PARTS = ("file", "find", "replace", "why")  # of an edit
_CITED = re.compile(r"\bE[0-9]{1,9}\b|[^\s:()`'\",;]+:[0-9]{1,9}\b")  # within a reason


def _listed(value: Any) -> Any:
    """One citation stands for a list of one."""
    return [value] if isinstance(value, str) else value


def _texts(value: Any) -> list[dict[str, str]]:
    """The edits in whatever shape they came: what is no text of theirs is none, so that no edit costs the verdict."""
    given = value if isinstance(value, list) else [value] if isinstance(value, dict) else []
    return [{k: e[k] for k in _PARTS if isinstance(e, dict) and isinstance(e.get(k), str)} for e in given]


_Cites = Annotated[list[str], BeforeValidator(_listed), Field(max_length=60)]


class _Said(BaseModel):
    text: str = Field(max_length=1200)
    cites: _Cites = []


class _RuledOut(BaseModel):
    cause: str = Field(max_length=200)
    why: str = Field(default="", max_length=1200)
    cites: _Cites = []


class _Edit(BaseModel):
    file: str = ""
    find: str = ""
    replace: str = ""
    why: str = ""

    @property
    def cites(self) -> list[str]:
        """What its reason names: evidence ids and lines of files."""
        return [m[0] for m in islice(_CITED.finditer(self.why), CITES)]


class Conclusion(BaseModel):
    """The arguments of `diagnosis`."""

    cause: str = Field(max_length=200)
    sentences: list[_Said] = Field(max_length=60)
    ruled_out: list[_RuledOut] = Field(default=[], max_length=60)
    edits: Annotated[list[_Edit], BeforeValidator(_texts)] = []


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
    if _is_deep(data):
        return Read(None, f"nested more than {_DEEP} levels deep")
    try:
        return Read(Conclusion.model_validate(data))
    except ValidationError as e:
        return Read(None, "; ".join(_wrong(error) for error in e.errors()[:6]))


def _is_deep(data: Any) -> bool:
    level = [data]
    for _ in range(_DEEP):
        level = [v for x in level if isinstance(x, dict | list) for v in (x.values() if isinstance(x, dict) else x)]
    return bool(level)


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
    first, _, rest = text.partition("\n")
    if first.rstrip() in ("```", "```json") and rest.endswith("\n```"):
        text = rest.removesuffix("```").strip()
    return parsed(text).conclusion if text.startswith("{") and '"cause"' in text else None


def places_to_read(
    conclusion: Conclusion, evidence: Mapping[str, Evidence],
    names: Collection[str] = (), roots: Roots = (),
) -> list[Call]:  # fmt: skip
    """Calls that make evidence of cited lines which no tool has shown yet, lines that follow each other in one.

    Args:
        names: all files of the run; without them, a file that no evidence names is tried too.
        roots: where the runs lie, in their order, so that whole paths are known for what they are.
    """
    return _unread(conclusion, Citations(evidence, names, roots))[0]


def diagnosis(
    conclusion: Conclusion, ranked: list[Hypothesis], evidence: Mapping[str, Evidence],
    names: Collection[str] = (), roots: Roots = (),
) -> Diagnosis:  # fmt: skip
    """The conclusion in the words of the planners, its citations as evidence ids. What is said twice is said once.

    Args:
        names: see `places_to_read`, as for `roots`.
    """
    citations = Citations(evidence, names, roots)
    said = [(s.text.strip(), s.cites) for s in _sentences(conclusion)[:SENTENCES]]
    for r in _ruled_out(conclusion)[:RULED_OUT]:
        why = r.why.strip().rstrip(".")
        said.append((f"Not {r.cause}: {why}." if why else f"Not {r.cause}.", r.cites))
    once = dict.fromkeys((text, tuple(citations.ids(cites))) for text, cites in said if text)
    cause = None if conclusion.cause == ANSWER else conclusion.cause
    sentences = [Sentence(text=text, cites=list(ids)) for text, ids in once]
    ruled_out = [r.cause for r in conclusion.ruled_out]
    edits = [
        ProposedEdit(e.file, e.find, e.replace, e.why, tuple(citations.ids(e.cites))) for e in conclusion.edits[:EDITS]
    ]
    return Diagnosis(cause, ranked, sentences, by_model=True, ruled_out=ruled_out, edits=edits)


def cut(
    conclusion: Conclusion, evidence: Mapping[str, Evidence] | None = None,
    names: Collection[str] = (), roots: Roots = (),
) -> list[str]:  # fmt: skip
    """What of a conclusion goes beyond the limits and is not used, in words (`4 sentences beyond 24`).

    Args:
        evidence: as it was before cited lines were read; without it, nothing is said of lines that were not.
        names: see `places_to_read`, as for `roots`.
    """
    citations = Citations(evidence or {}, names, roots)
    said, ruled_out = _sentences(conclusion), _ruled_out(conclusion)
    told = [
        _beyond(len(said), SENTENCES, "sentence", "sentences"),
        _beyond(len(ruled_out), RULED_OUT, "cause ruled out", "causes ruled out"),
        _beyond(len(conclusion.edits), EDITS, "edit", "edits"),
    ]
    for kind, parts in (("sentence", said[:SENTENCES]), ("ruled out", ruled_out[:RULED_OUT])):
        for number, part in enumerate(parts, 1):
            told += [t and f"{kind} {number}: {t}" for t in _cut_cites(citations, part.cites)]
    told.append(_beyond(citations.looked_at, AT_ALL, "character", "characters of citations"))
    left = 0 if evidence is None else _unread(conclusion, citations)[1]
    told.append(f"{left} cited lines beyond what is read at once" if left else "")
    return [t for t in told if t]


def _cut_cites(citations: Citations, cites: list[str]) -> list[str]:
    items, count = citations.taken(cites)
    wide = [n for i in items if isinstance(i, Lines) and (n := i.last - i.first + 1) > STRETCH]
    long = [len(c) for c in cites if len(c) > LOOKED_AT]
    return [
        _beyond(count, CITES, "citation", "citations"),
        *(f"{STRETCH} of {n} lines cited at once" for n in wide),
        *(f"{LOOKED_AT} of {n} characters of a citation" for n in long),
    ]


def _beyond(count: int, most: int, one: str, several: str) -> str:
    over = count - most
    return f"{over} {several if over > 1 else one} beyond {most}" if over > 0 else ""


def _sentences(conclusion: Conclusion) -> list[_Said]:
    return list({(s.text.strip(), tuple(s.cites)): s for s in reversed(conclusion.sentences)}.values())[::-1]


def _ruled_out(conclusion: Conclusion) -> list[_RuledOut]:
    return list({(r.cause, r.why.strip(), tuple(r.cites)): r for r in reversed(conclusion.ruled_out)}.values())[::-1]


def _unread(conclusion: Conclusion, citations: Citations) -> tuple[list[Call], int]:
    """Calls that read the cited lines not shown yet, and how many such lines they leave out."""
    parts = (
        *_sentences(conclusion)[:SENTENCES], *_ruled_out(conclusion)[:RULED_OUT], *conclusion.edits[:EDITS],
    )  # fmt: skip
    missing = list(dict.fromkeys(place for part in parts for place in citations.missing(part.cites)))
    mentioned = {place: at for at, place in enumerate(missing[:LINES])}
    stretches: list[tuple[int, str, int, int]] = []  # first mention, file, first line, count
    for file, line in sorted(mentioned):
        at = mentioned[file, line]
        if stretches and stretches[-1][1] == file and line == sum(stretches[-1][2:]):
            before, _, first, count = stretches.pop()
            stretches.append((min(before, at), file, first, count + 1))
        else:
            stretches.append((at, file, line, 1))
    stretches = sorted(stretches)[:CALLS]
    why = "the model cites it"
    calls = [Call("read_lines", {"file": f, "start": first, "count": n}, why) for _, f, first, n in stretches]
    return calls, len(missing) - sum(count for *_, count in stretches)
