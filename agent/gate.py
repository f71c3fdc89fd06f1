"""The claim gate: a sentence may only say what the evidence it cites shows.

Every number, path, quotation and identifier of a sentence must occur in that evidence, as a whole and not as a part
of a longer one; every cited id must exist; the cause must be in the vocabulary. Who wrote the sentence (a planner of
ours or a model) makes no difference.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import Decimal

from .report import Sentence
from .types import Evidence

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
