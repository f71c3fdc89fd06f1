"""A model's `diagnosis`, read strictly, with its citations brought to evidence ids."""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from ..core.report import Sentence
from ..core.types import Call, Evidence, Hypothesis
from ..safety.fences import harmless
from ..verdict.planner import Diagnosis, ProposedEdit
from .framing import ANSWER

# ----------
# Citations as models write them: evidence ids, ranges of them, and lines of files by name.


CITES = 24  # ids that one sentence may have
LOOKED_AT, AT_ALL = 500, 40_000  # characters of one citation, and of all of a conclusion
STRETCH = 12  # lines of one cited range
_MARKS, _STARTS, _SEARCHES = 64, 32, 48  # in one citation: places, beginnings of a name; and names with a secret
_TO = r"\s*(?:-|\u2013|\u2014|\.\.|to)\s*"
_ID = re.compile(rf"\bE([0-9]{{1,9}})(?:{_TO}E?([0-9]{{1,9}}))?\b(?!{_TO}E?[0-9]{{10}})")
_NUMBERS = rf"([0-9]{{1,9}})(?:{_TO}L?([0-9]{{1,9}}))?(?!\w)"
_MARK = re.compile(rf"(?:[:#]\s*(?:[Ll]ines?\s*|L)?|[\s,(]+(?:(?:at\s+)?[Ll]ines?\s*|L)){_NUMBERS}")
_PLACE = re.compile(rf"([^\s:][^:\n]*):{_NUMBERS}")  # of a file nobody knows
_FURTHER = re.compile(rf"(?:lines?\s*|L)?{_NUMBERS}")
_APART = re.compile(r"[,;&\n]|\band\b")
_OPENS = re.compile(r"[\s\[({<\"'`*,;&|=]")  # a name may begin behind one of these
_WRAP = " \t\r\n`'\"*()[]{}<>"
_SECRET = re.compile(r"<SECRET:[a-z]+:[0-9]+>")
_LEAST_SECRET = 8  # characters


@dataclass(frozen=True, slots=True)
class Lines:
    """Cited lines of a file."""

    file: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.file}:{self.first}" + (f"-{self.last}" if self.last > self.first else "")


@dataclass(frozen=True, slots=True)
class Ids:
    """Cited ids, `E<first>` to `E<last>`."""

    first: int
    last: int


Cited = Lines | Ids | str  # a text is what names nothing
Roots = Sequence[str | PathLike[str]]


class Citations:
    """Citations as models write them, read against the evidence there is and the files of the run.

    Attributes:
        looked_at: characters that citations had so far, those of `AT_ALL` and those beyond, which name nothing.
    """

    def __init__(
        self, evidence: Mapping[str, Evidence], names: Collection[str], roots: Roots
    ) -> None:  # fmt: skip
        self._ids: dict[str, dict[int, str]] = {}
        for e in evidence.values():
            if e.file is not None and e.line is not None:
                self._ids.setdefault(e.file, {}).setdefault(e.line, e.id)
        self._names = _Names({*names, *self._ids}, roots)
        self._all_known = bool(names)
        self.looked_at = 0
        self._read: dict[str, list[Cited]] = {}

    def ids(self, cites: list[str]) -> list[str]:
        """Ids as they are, ranges taken apart, lines looked up; what is neither stays, and the gate refuses it."""
        found: dict[str, None] = {}
        for item in self.taken(cites)[0]:
            if isinstance(item, Lines):
                found |= dict.fromkeys(self._shown(item)[:STRETCH] or [str(item)])
            elif isinstance(item, Ids):
                found |= dict.fromkeys(f"E{n}" for n in range(item.first, min(item.last, item.first + CITES - 1) + 1))
            else:
                found[item] = None
        return list(found)[:CITES]

    def taken(self, cites: list[str]) -> tuple[list[Cited], int]:
        """What is cited, as much as may be, and how many ids it all would be."""
        found: dict[Cited, None] = {}
        count = 0
        for cite in dict.fromkeys(cites):
            if count >= CITES:
                count += 1  # not worth a look: at least one more
                continue
            for item in self.read(cite):
                if item not in found:
                    found[item] = None
                    several = 1 if isinstance(item, str) else item.last - item.first + 1
                    count += min(several, STRETCH) if isinstance(item, Lines) else several
        return list(found), count

    def missing(self, cites: list[str]) -> Iterable[tuple[str, int]]:
        """File and line of what is cited and not shown yet; of a long range nothing where some of it was shown."""
        for item in self.taken(cites)[0]:
            if not isinstance(item, Lines) or (self._all_known and item.file not in self._names.all):
                continue
            if item.last - item.first < STRETCH or not self._shown(item):
                shown = self._ids.get(item.file, {})
                last = min(item.last, item.first + STRETCH - 1)
                yield from ((item.file, n) for n in range(max(item.first, 1), last + 1) if n not in shown)

    def _shown(self, cited: Lines) -> list[str]:
        by_line = self._ids.get(cited.file, {})
        if cited.first == cited.last:
            return [by_line[cited.first]] if cited.first in by_line else []
        lines = sorted(by_line)
        return [by_line[n] for n in lines[bisect_left(lines, cited.first) : bisect_right(lines, cited.last)]]

    def read(self, cite: str) -> list[Cited]:
        """What one citation names, in its order; itself where it names nothing."""
        if cite not in self._read:
            text = _beginning(cite)
            self.looked_at += len(text)
            if self.looked_at > AT_ALL:
                text = ""
            hits = self._names.places(text, self._names.exact)
            if left := _uncovered(text, hits):  # perhaps the names are as a prompt shows them
                shown = _as_shown(text)
                more = self._names.places(shown, self._names.shown)
                text, hits = (shown, more) if _uncovered(shown, more) < left else (text, hits)
            found: list[Cited] = []
            at, file = 0, ""
            for start, end, lines in hits:
                found += [*_loose(text[at:start], file), lines]
                at, file = end, lines.file
            found += _loose(text[at:], file)
            self._read[cite] = found or [cite.strip()[:80]]
        return self._read[cite]


def _beginning(cite: str) -> str:
    """As much of a citation as is looked at, no number cut in two."""
    if len(cite) <= LOOKED_AT:
        return cite
    text = cite[:LOOKED_AT]
    return text[: max(text.rfind(c) for c in " ,;\n") + 1]


def _uncovered(text: str, hits: Iterable[tuple[int, int, Lines]]) -> int:
    """How many characters of a text are of no place."""
    for start, end, _ in reversed([*hits]):
        text = text[:start] + text[end:]
    return len(_as_shown(text).strip(_WRAP))


def _lines(file: str, first: str, last: str | None) -> Lines:
    return Lines(file, int(first), max(int(first), int(last or first)))


def _id_range(m: re.Match[str]) -> list[Cited]:
    first, last = int(m[1]), int(m[2] or m[1])
    return [Ids(first, last)] if first <= last else [Ids(first, first), Ids(last, last)]


def _loose(text: str, file: str) -> list[Cited]:
    """What a stretch without a known file name cites: ids, lines of files nobody knows, and further lines of `file`,
    the one that was named before it; right behind that stands a remark, which cites nothing.
    """
    found: list[Cited] = []
    for number, part in enumerate(_APART.split(text)):
        bare = part.strip(_WRAP)
        if file and number and (m := _FURTHER.fullmatch(bare)):
            found.append(_lines(file, m[1], m[2]))
        elif (not file or number) and (m := _PLACE.fullmatch(bare)) and not (file and " " in m[1]):
            found.append(_lines(m[1].removeprefix("./"), m[2], m[3]))
        elif file:
            found += _id_range(m) if (m := _ID.fullmatch(bare)) else []
        else:
            found += [item for m in _ID.finditer(bare) for item in _id_range(m)]
    return found


def _as_shown(text: str) -> str:
    return " ".join(harmless(text).split())


class _Names:
    """The files there are, found in citations: the longest name that ends where a line number begins."""

    def __init__(self, names: set[str], roots: Roots) -> None:
        self.all = names
        self._by_shown: dict[str, str | None] = {}
        self._searched: dict[str, str | None] = {}
        self._before = [("./", "")]  # what may stand before a name, and what it stands for
        for number, root in enumerate(roots[:_STARTS], 1):
            for path in (Path(root), Path(root).absolute()):
                for folder in dict.fromkeys(str(p).rstrip("/") for p in (path, path.parent, path.name)):
                    self._before += [(f"{folder}/", ""), (f"{folder}/", f"r{number}/")]

    def places(self, text: str, known: Callable[[str], str | None]) -> list[tuple[int, int, Lines]]:
        """Where each place begins and ends in a text, from left to right."""
        starts = [(at, at, "") for at in (0, *(m.end() for m in _OPENS.finditer(text)))]
        starts += [(at + len(b), at, to) for at, _, _ in starts for b, to in self._before if text.startswith(b, at)]
        starts.sort()
        found: list[tuple[int, int, Lines]] = []
        bound = len(text)
        for mark in list(_MARK.finditer(text))[: -_MARKS - 1 : -1]:
            ends = dict.fromkeys((mark.start(), len(text[: mark.start()].rstrip(_WRAP))))
            near = [s for s in starts if s[0] < mark.start()] if mark.end() <= bound else []
            tried = ((e, s) for e in ends for s in (*near[:2], *near[2:][-_STARTS:]) if s[0] < e)
            for end, (start, origin, prefix) in tried:
                if file := known(prefix + text[start:end]):
                    found.append((origin, mark.end(), _lines(file, mark[1], mark[2])))
                    bound = origin
                    break
        return found[::-1]

    def exact(self, name: str) -> str | None:
        """The file of this very name."""
        return name if name in self.all else None

    def shown(self, name: str) -> str | None:
        """The one file that a prompt shows so: made harmless, blanks as one, its secrets taken out."""
        if not self._by_shown:
            for one in self.all:
                told = _as_shown(one)
                self._by_shown[told] = None if told in self._by_shown else one
        if "<SECRET:" in name and name not in self._by_shown:
            return self._without_secrets(name)
        return self._by_shown.get(name)

    def _without_secrets(self, name: str) -> str | None:
        first, *others = _SECRET.split(name)
        if name not in self._searched and others and len(self._searched) < _SEARCHES:
            fits = [f for told, f in self._by_shown.items() if told.startswith(first) and _holds(told, first, others)]
            self._searched[name] = fits[0] if len(fits) == 1 else None
        return self._searched.get(name)


def _holds(name: str, first: str, others: Sequence[str]) -> bool:
    """Whether a name consists of these texts, something long enough to be a secret before each but the first."""
    *middle, last = others
    at = len(first)
    for text in middle:
        at = name.find(text, at + _LEAST_SECRET)
        if at < 0:
            return False
        at += len(text)
    return name.endswith(last) and len(name) - len(last) >= at + _LEAST_SECRET


# ----------

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
