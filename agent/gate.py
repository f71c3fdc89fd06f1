"""The claim gate: a sentence may only say what the evidence it cites shows.

Every number, path, quotation and identifier of a sentence must occur in that evidence; every cited id must
exist; the cause must be in the vocabulary. Who wrote the sentence (a planner of ours or a model) makes no
difference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from .report import Sentence
from .types import Evidence

_QUOTED = re.compile('\u201c([^\u201d]+)\u201d|"([^"]{3,})"|`([^`]+)`')
_TOKEN = re.compile(r"[\w./:+\-]*\w")
_NUMBER = re.compile(r"^[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?%?$", re.IGNORECASE)
_GROUPED = re.compile(r"(?<![\d.])[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d.])")
_PLAIN = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d{1,3})?", re.IGNORECASE)
_CITE = re.compile(r"\bE\d+\b")


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
    text = sentence.text
    for phrase in known:
        text = text.replace(phrase, " ")
    shown = "\n".join(_shown(evidence[i]) for i in sentence.cites)
    folded = _fold(shown)
    numbers = _numbers(shown)
    reasons = []
    for match in _QUOTED.finditer(text):
        quote = next(g for g in match.groups() if g)
        if _fold(quote.rstrip("\u2026")) not in folded:
            reasons.append(f"quotes {quote!r}, which no cited evidence shows")
    for token in _TOKEN.findall(_QUOTED.sub(" ", _CITE.sub(" ", text))):
        if _NUMBER.match(token):
            if not _shows_number(token, numbers):
                reasons.append(f"says {token}, which no cited evidence shows")
        elif _is_identifier(token) and _fold(token.strip(".:")) not in folded:
            reasons.append(f"names {token}, which no cited evidence shows")
    reasons = list(dict.fromkeys(reasons))
    if not sentence.cites and (reasons or _QUOTED.search(text)):
        reasons = reasons or ["asserts something and cites nothing"]
    return reasons


def _is_identifier(token: str) -> bool:
    """Paths, dotted names, snake_case, and words that mix letters with digits."""
    bare = token.strip(".:-+/")
    return bool(bare) and (
        "_" in bare
        or "/" in bare
        or bool(re.search(r"\w\.\w", bare))
        or (any(c.isdigit() for c in bare) and any(c.isalpha() for c in bare))
    )


def _shown(e: Evidence) -> str:
    value = e.value if isinstance(e.value, str) else json.dumps(e.value, default=str)
    where = f"{e.file} {e.file}:{e.line} {e.line} {e.member} {' '.join(e.argv or ())} {' '.join(e.searched or ())}"
    who = f"rank {e.rank} step {e.step} attempt {e.attempt} {e.host or ''} {e.variant or ''} {e.time or ''}"
    return f"{e.text}\n{value}\n{where}\n{who}\n{e.key}"


def _fold(text: str) -> str:
    return " ".join(text.split()).casefold()


def _numbers(text: str) -> set[float]:
    """Numbers of a text; `1,271.3` may be one number with grouped digits, or two fields of a table."""
    return {abs(float(token.replace(",", ""))) for pattern in (_GROUPED, _PLAIN) for token in pattern.findall(text)}


def _shows_number(token: str, numbers: set[float]) -> bool:
    """A number may be rounded, so it counts when it is within half a unit of its last digit."""
    bare = token.rstrip("%").replace(",", "")
    value = abs(float(bare))
    mantissa, _, exponent = bare.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    slack = 0.5000001 * 10.0 ** (int(exponent or 0) - digits) if digits or exponent else 0.0
    candidates = {value, value / 100} if token.endswith("%") else {value}
    return any(abs(n - c) <= slack + 1e-9 * max(1.0, c) for n in numbers for c in candidates)
