"""The claim gate: a sentence may only say what the evidence it cites shows.

Every number, path, quotation and identifier of a sentence must occur in that evidence, as a whole and not as a part
of a longer one; every cited id must exist; the cause must be in the vocabulary. Who wrote the sentence (a planner of
ours or a model) makes no difference.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import BinaryIO

from ..core.errors import ParseError
from ..core.playbook import Playbook
from ..core.report import CitedEvidence, Ranked, Report, RootCause, Sentence, Status
from ..core.types import LINE_CAP, Evidence, Hypothesis
from ..reading.run.files import open_regular
from ..reading.run.workspace import Workspace
from ..safety.fences import harmless
from ..safety.redact import Redactor
from .planner import HEALTHY, INSUFFICIENT, Diagnosis, is_settled, leader, verdict
from .predicates import Facts
from .ranking import with_vote

_PAIRS = {
    '"': '"', "`": "`", "'": "'", "\u201c": "\u201d", "\u201d": "\u201d", "\u201e": "\u201c\u201d",
    "\u201f": "\u201d", "\u2018": "\u2019", "\u201a": "\u2018\u2019", "\u00ab": "\u00bb", "\u00bb": "\u00ab",
    "\u2039": "\u203a", "\u203a": "\u2039", "\u300c": "\u300d", "\u300e": "\u300f", "\uff02": "\uff02",
}  # fmt: skip
_SINGLE = "'\u2018\u2019\u201a"  # marks that also stand in words: don't, the ranks' loss
_MARK = re.compile(f"([{''.join(_PAIRS)}\u2019])\\1*")  # a run is one mark: ``so``, '''so'''
_TOKEN = re.compile(r"[\w./:+\-,%]*[\w%]")
_NUMBER = re.compile(
    r"[-+]?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+|"
    r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)e[-+]?[0-9]{1,3})%?",
    re.IGNORECASE,
)
_GROUPED = re.compile(r"(?<![0-9.])[-+]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?(?![0-9.])")
_PLAIN = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?|(?<![\w.])\.[0-9]+)(?:e[-+]?[0-9]{1,3}(?![0-9]))?", re.IGNORECASE)
_PART = re.compile(r"[0-9]+(?:\.[0-9]+)?%?")
_CLOCK = re.compile(r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?")
_CITE = re.compile(r"\bE[0-9]+\b")
_APART = "\x00"  # between fields of evidence: no quotation reaches from one into the next
_LEAST = Decimal("1e-322")  # below it floats have no digits to round
_MARKS = 500  # more of them are no sentence
_SHORT = 4  # a quotation of fewer characters is no part of a word
_CUT = 100  # a quotation of so many characters that ends in an ellipsis may be cut inside a number


def faults(
    sentence: Sentence, evidence: Mapping[str, Evidence], known: Iterable[str] = (), documents: Iterable[str] = ()
) -> list[str]:
    """What a sentence claims without support, one reason each; empty when it may stand.

    Args:
        evidence: all evidence by id.
        known: vocabulary that needs no evidence (titles of causes, names of tools).
        documents: ids of passages that bear out answers only, where a diagnosis is judged.
    """
    read = [i for i in sentence.cites if i in documents]
    if read:
        return [f"cites {', '.join(read)}, a passage of a playbook or document: cite lines of the run"]
    unknown = [i for i in sentence.cites if i not in evidence]
    if unknown:
        return [f"cites {', '.join(unknown)}, which does not exist"]
    if any(evidence[i].kind == "asked" for i in sentence.cites):
        return ["cites what the question asserts"]
    cited = [evidence[i] for i in sentence.cites]
    fields = [field for e in cited for field in _shown(e)]
    folded = _APART.join(_fold(_visible(field)) for field in fields)
    text = _visible(sentence.text)
    if _stands(_fold(text).rstrip("."), folded, word=True):
        return []
    vocabulary = tuple(known)
    text = _without(text, [p for e in cited for p in _places(e)], vocabulary)
    rest, reasons, quotes = _quotations(text, lambda quoted: _is_quoted(quoted, folded, vocabulary))
    for phrase in vocabulary:
        rest = _bare(rest, phrase)
    rest = _CITE.sub(lambda m: " " if m[0] in sentence.cites else m[0], rest)
    numbers = _numbers("\n".join(fields))
    for token in _TOKEN.findall(rest):
        reasons += _token_faults(token.strip(","), folded, numbers)
    reasons = list(dict.fromkeys(reasons))
    if not sentence.cites and (reasons or quotes):
        reasons = reasons or ["asserts something and cites nothing"]
    return reasons


def _token_faults(token: str, folded: str, numbers: Collection[Decimal]) -> Iterator[str]:
    """What is wrong with one word: numbers by value, all else that holds a digit or names a thing verbatim."""
    if _NUMBER.fullmatch(token):
        if not _shows_number(token, numbers):
            yield f"says {token}, which no cited evidence shows"
        return
    bare = _fold(token.strip(".:,"))
    named, numeric = _is_identifier(token), any(map(_is_numeral, token))
    is_clock = _CLOCK.fullmatch(bare)
    if not (named or numeric) or (_shows_clock(bare, folded) if is_clock else _stands(bare, folded, word=True)):
        return
    if "," in token:  # a list without spaces
        for piece in filter(None, token.split(",")):
            yield from _token_faults(piece, folded, numbers)
    elif named:
        yield f"names {token}, which no cited evidence shows"
    elif is_clock or not _shows_parts(token, numbers):
        yield f"says {token}, which no cited evidence shows"


def _is_numeral(c: str) -> bool:
    return unicodedata.category(c)[0] == "N"  # not the ideographs for one and two: those are words


def _shows_clock(bare: str, folded: str) -> bool:
    """A time stands as it is printed; seconds or their fraction may be left off."""
    return re.search(rf"(?<![0-9])(?<![0-9]:){re.escape(bare)}(?![0-9])", folded) is not None


def _shows_parts(token: str, numbers: Collection[Decimal]) -> bool:
    """Ranges, dates and ratios: each number of it is shown. Numerals of other scripts are not read."""
    if any(_is_numeral(c) and not c.isascii() for c in token):
        return False
    return all(_shows_number(part, numbers) for part in _PART.findall(token))


def _is_identifier(token: str) -> bool:
    """Paths, dotted names, versions, snake_case, and words that mix letters with digits."""
    bare = token.strip(".:-+/%")
    if not bare:
        return False
    has_letters = any(c.isalpha() for c in bare)
    return (
        "_" in bare
        or "/" in bare
        or bool(re.search(r"\w\.\w", bare) if has_letters else re.search(r"\d\.\d+\.\d", bare))
        or (has_letters and any(map(_is_numeral, bare)))
    )


def _quotations(text: str, stands: Callable[[str], bool]) -> tuple[str, list[str], int]:
    """The text without its quotations, what is wrong with them, and how many there are.

    A quoted line may hold quotation marks itself, so marks are paired in whichever way makes every quotation stand;
    where no way does, each mark is paired with the next that closes it.
    """
    runs = list(_MARK.finditer(text))
    if len(runs) > _MARKS:
        return "", [f"holds {len(runs)} quotation marks"], 1
    near = max(4, 4096 // max(1, len(runs)))  # closing marks tried for each opening one
    good, ends = [False] * len(runs) + [True], [-1] * len(runs)

    def inside(i: int, k: int) -> bool:
        quoted = text[runs[i].end() : runs[k].start()]
        span = text[runs[i].start() : runs[k].end()]  # a line of nothing but marks, or an empty string
        return stands(quoted) if quoted.strip() else stands(span) or stands(span[1:-1])

    for i in reversed(range(len(runs))):
        if _is_free(runs, i, text, stands):
            good[i], ends[i] = good[i + 1], i
        elif (k := next((k for k in _closing(runs, i, text, near) if good[k + 1] and inside(i, k)), -1)) > 0:
            good[i], ends[i] = True, k
    rest, reasons, quotes, at, i = "", [], 0, 0, 0
    while i < len(runs):
        k = ends[i] if ends[i] >= 0 else next(_closing(runs, i, text, 1), -1)
        if k < 0:
            reasons.append(f"opens a quotation with {runs[i][0]} that does not close")
        elif k > i:
            if ends[i] < 0 and not inside(i, k):
                reasons.append(f"quotes {text[runs[i].end() : runs[k].start()]!r}, which no cited evidence shows")
            rest, at, quotes = f"{rest}{text[at : runs[i].start()]} ", runs[k].end(), quotes + 1
        i = max(i, k) + 1
    return rest + text[at:], reasons, quotes


def _is_free(runs: list[re.Match[str]], i: int, text: str, stands: Callable[[str], bool]) -> bool:
    """An apostrophe, or the mark of an empty string as the evidence shows it."""
    run, mark = runs[i], runs[i][1]
    if mark in _SINGLE:
        in_word = run.start() > 0 and _is_wordy(text[run.start() - 1])
        return mark == "\u2019" or in_word or next(_closing(runs, i, text, 1), None) is None
    return len(run[0]) == 2 and stands(run[0])


def _closing(runs: list[re.Match[str]], i: int, text: str, limit: int) -> Iterator[int]:
    """Marks that may close the one at `i`, nearest first."""
    for k in range(i + 1, len(runs)):
        after = text[runs[k].end() : runs[k].end() + 1]
        if runs[k][1] in _PAIRS.get(runs[i][1], "") and not (runs[k][1] in _SINGLE and _is_wordy(after)):
            yield k
            limit -= 1
            if not limit:
                return


def _is_wordy(c: str) -> bool:
    return c.isalnum() or c == "_"


def _is_quoted(quoted: str, folded: str, known: Collection[str]) -> bool:
    """Words between marks stand in the evidence, or are one name of the vocabulary."""
    bare = _fold(quoted.strip("\u2026"))
    if not bare:
        return False
    is_cut = quoted.endswith("\u2026") and len(bare) >= _CUT
    return (bare in folded if is_cut else _stands(bare, folded, word=len(bare) < _SHORT)) or (
        " " not in bare and quoted.strip() in known
    )


def _stands(bare: str, folded: str, *, word: bool) -> bool:
    """Whether text stands in the evidence by itself: no number that is a part of a longer one at its ends.

    Args:
        word: no letter beside it either.
    """
    if not bare or bare not in folded:
        return False
    start = r"(?<![^\W_])" if word else ""
    end = r"(?![^\W_])" if word else ""
    if bare[0].isdigit():
        start += r"(?<!\d)(?<!\d\.)" + (r"(?<!\d,)" if re.match(r"\d{3}(?!\d)", bare) else "")
    if bare[-1].isdigit():
        end += r"(?!\d)" + ("" if re.search(r"\.\d+$", bare) else r"(?!\.\d)")
    return re.search(start + re.escape(bare) + end, folded) is not None


def _without(text: str, places: Iterable[str], known: Iterable[str]) -> str:
    """The text without names that hold quotation marks: those open no quotation."""
    for name in (*places, *known):
        if any(c in _PAIRS for c in name):
            text = _bare(text, name)
    return text


def _bare(text: str, phrase: str) -> str:
    """The text without a phrase, where it stands by itself."""
    if not phrase or phrase not in text:
        return text
    return re.sub(rf"(?<![^\W_]){re.escape(phrase)}(?![^\W_])", " ", text)


def _places(e: Evidence) -> list[str]:
    return [e.file or "", " ".join(e.argv or ())]


def _shown(e: Evidence) -> list[str]:
    """Everything a piece of evidence shows, field by field."""
    value = e.value if isinstance(e.value, str) else json.dumps(e.value, default=str, ensure_ascii=False)
    where = [e.file, f"{e.file}:{e.line}" if e.file and e.line else None, e.line, e.member]
    who = [f"{name} {x}" for name in ("rank", "step", "attempt") if (x := getattr(e, name)) is not None]
    lists = [" ".join(e.argv or ()), *(e.searched or ())]
    fields = [e.text, value, *where, *lists, *who, e.host, e.variant, e.time, e.key]
    return [str(field) for field in fields if field is not None]


def _visible(text: str) -> str:
    """Without characters that take no room: they would split what people read as one number."""
    return "".join(c for c in text if c != _APART and unicodedata.category(c) != "Cf")


def _fold(text: str) -> str:
    return " ".join(text.split()).casefold()


def _numbers(text: str) -> set[Decimal]:
    """Numbers of a text; `1,271.3` may be one number with grouped digits, or two fields of a table."""
    found = (token for pattern in (_GROUPED, _PLAIN) for token in pattern.findall(text))
    return {Decimal(token.replace(",", "")).copy_abs() for token in found}


def _shows_number(token: str, numbers: Collection[Decimal]) -> bool:
    """A number may be rounded where it has decimals: it counts within half a unit of its last digit."""
    bare = token.rstrip("%").replace(",", "").lower()
    value = Decimal(bare).copy_abs()  # exact, however many digits
    mantissa, _, exponent = bare.partition("e")
    digits = len(mantissa.partition(".")[2])
    slack = Decimal(0)
    if value and exponent and not digits:  # 1e-05 is printed for 1.0004e-05
        slack = value * Decimal("0.00051")
    elif digits and (value or not exponent):
        slack = Decimal("0.5000001") * Decimal(10) ** (int(exponent or 0) - digits) + value * Decimal("1e-9") + _LEAST
    as_share = token.endswith("%")
    return any(abs(n - value) <= slack or (as_share and abs(100 * n - value) <= slack) for n in numbers)


# ----------
# What a model claims, held against what it was shown: the gate for its words, a vote for its verdict.
#
# A model sees text with secrets taken out and control tokens broken, so its quotations are compared in that form. Its
# verdict adds a vote to the ranking; it never makes a status, which predicates alone decide.

VOTE = 4.0  # log odds for a cause that a model names with at least one sentence on evidence that stands
ABSTAINS = 1.0  # log odds for none of the causes, where a model finds too little to tell
_NUMBERED = re.compile(r"(<SECRET:[a-z_]+):\d+>")


def as_shown(text: str, redactor: Redactor) -> str:
    """Text as a model was shown it, with the numbers of taken-out secrets left away."""
    return _NUMBERED.sub(r"\1>", harmless(redactor.redact(text)))


def through_gate(
    sentences: Iterable[Sentence],
    evidence: Mapping[str, Evidence],
    known: Sequence[str],
    documents: Iterable[str] = (),
) -> tuple[list[Sentence], list[str]]:
    """The sentences of a model that may stand, and what is wrong with each of the others, in its own words."""
    redactor, apart, kept, dropped = Redactor(), frozenset(documents), [], []
    for s in sentences:
        cited = {
            i: e.with_(text=f"{e.text}\n{as_shown(e.text, redactor)}", value=_shown_value(e, redactor))
            for i in s.cites if (e := evidence.get(i)) is not None
        }  # fmt: skip
        asked = s.model_copy(update={"text": _NUMBERED.sub(r"\1>", s.text)})
        if reasons := faults(asked, cited, known, apart):
            dropped.append(f"{s.text[:160]!r} {'; it '.join(reasons[:3])}")
        else:
            kept.append(s)
    return kept, dropped


def _shown_value(e: Evidence, redactor: Redactor) -> object:
    return f"{e.value}\n{as_shown(e.value, redactor)}" if isinstance(e.value, str) else e.value


def objections(diagnosis: Diagnosis, causes: Mapping[str, str]) -> list[str]:
    """Why a model's verdict goes back to it once: no such cause, or predicates that confirm another one."""
    if diagnosis.cause is not None and diagnosis.cause not in causes:
        return [f"{diagnosis.cause!r} is no cause of the vocabulary"]
    first = leader(diagnosis.hypotheses)
    if diagnosis.cause is None or first is None or not is_settled(diagnosis.hypotheses):
        return []
    if first.cause in (diagnosis.cause, *diagnosis.ruled_out):
        return []
    held = ", ".join(first.supported_by[:6])
    return [f"{first.cause} is confirmed by its predicates ({held}): say on which evidence it is wrong, or name it"]


def settled_cause(diagnosis: Diagnosis, causes: Mapping[str, str]) -> str:
    """The cause to report: the model's where the vocabulary has it, otherwise what the evidence carries."""
    if diagnosis.cause in causes:
        return str(diagnosis.cause)
    return verdict(diagnosis.hypotheses) if diagnosis.by_model else INSUFFICIENT


def stands(
    cause: str, ranked: list[Hypothesis], kept: Sequence[Sentence], evidence: Mapping[str, Evidence]
) -> bool:  # fmt: skip
    """Whether anything bears a model's verdict: a sentence of its own on evidence, or something positive we found."""
    if cause == INSUFFICIENT or any(i in evidence for s in kept for i in s.cites):
        return True
    return any(h.cause == cause and h.positive for h in ranked)


def voted(
    cause: str, ranked: list[Hypothesis], kept: Sequence[Sentence], evidence: Mapping[str, Evidence],
    page: Playbook | None,
) -> list[Hypothesis]:  # fmt: skip
    """The ranking with the model's vote, which counts only where a sentence of its own stands on evidence."""
    stands = any(i in evidence for s in kept for i in s.cites)
    if cause == INSUFFICIENT:
        return with_vote(ranked, cause, ABSTAINS, None)
    return with_vote(ranked, cause, VOTE if stands else 0.0, page)


def ranking(ranked: list[Hypothesis]) -> Ranked:
    """The verdict of the evidence alone, as it stands beside a model's."""
    cause = verdict(ranked)
    leader = next((h for h in ranked if h.cause == cause), None)
    return Ranked(id=cause, confidence=round(leader.probability, 4) if leader else 0.0, status=status(cause, ranked))


def status(cause: str, ranked: list[Hypothesis]) -> Status:
    """The status of a cause by the ranking of evidence alone: a model's vote moves no status."""
    leader = next((h for h in ranked if h.cause == cause), None)
    if cause == HEALTHY:
        return "healthy" if verdict(ranked) == HEALTHY else "hypothesis"
    if cause == INSUFFICIENT:
        return "insufficient_evidence"
    if leader is None or verdict(ranked) != cause:
        return "hypothesis"
    return "confirmed" if is_settled(ranked) else "likely"


def answered(diagnosis: Diagnosis, facts: Facts, known: Sequence[str]) -> tuple[Report | None, list[str]]:
    """The report for a question that asks for no diagnosis, of the sentences that stand; None when none does."""
    evidence = {e.id: e for found in facts.by_key.values() for e in found}
    kept, dropped = through_gate(diagnosis.sentences, evidence, known)
    if not any(s.cites for s in kept):
        return None, dropped or ["no sentence of the answer cites evidence"]
    report = Report(status="answer", root_cause=RootCause(id=None, confidence=0.0), summary=kept)
    report.meta.planner = "llm"
    ids = dict.fromkeys(i for s in kept for i in s.cites)
    report.evidence = [CitedEvidence(**asdict(evidence[i])) for i in ids if i in evidence]
    return report, dropped


# ----------
# The last look before evidence counts: does the file really say that, there?
#
# A reader that is off by a line would put an invented quotation under a true verdict. Looking again costs a seek for
# each line, and what does not hold is left out and told as our bug.


def verified(evidence: list[Evidence], workspace: Workspace) -> tuple[list[Evidence], int]:
    """The evidence whose quoted lines stand where they say, and how many do not.

    Packed and UTF-16 files are passed: their offsets count decoded bytes, and reading them again to compare would
    cost a second pass.
    """
    paths = {f.name: f.path for f in workspace.files}
    kept: list[Evidence] = []
    opened: dict[str, BinaryIO | None] = {}
    try:
        for e in evidence:
            if e.kind != "line" or e.offset is None or e.file not in paths or _stands_there(e, paths[e.file], opened):
                kept.append(e)
    finally:
        for stream in opened.values():
            if stream is not None:
                stream.close()
    return kept, len(evidence) - len(kept)


def _stands_there(e: Evidence, path: Path, opened: dict[str, BinaryIO | None]) -> bool:
    name = e.file or ""
    if name not in opened:
        opened[name] = _open(path)
    stream = opened[name]
    if stream is None or e.offset is None:
        return True
    stream.seek(max(0, e.offset - 1))
    data: bytes = stream.read(LINE_CAP * 2 + 1)
    if e.offset:
        before, data = data[:1], data[1:]
        if before != b"\n":
            return False
    line = data.split(b"\n", 1)[0][:LINE_CAP].decode(errors="replace").rstrip("\r")
    return line.startswith(e.text.rstrip("\r\ufffd"))


def _open(path: Path) -> BinaryIO | None:
    try:
        stream = open_regular(path)
        head = stream.read(4)
    except (ParseError, OSError):
        return None
    packed = head[:2] in (b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff") or head == b"\x28\xb5\x2f\xfd" or b"\0" in head
    if packed:
        stream.close()
        return None
    return stream
