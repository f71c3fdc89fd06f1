"""Text as the terms that lexical search counts: words, identifiers whole and in parts, lightly stemmed."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-/]*[A-Za-z0-9_]|[A-Za-z0-9]")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_STOP = frozenset(
    """a about after again all also am an and any are as at be because been before being but by
    can could d did do does doing down during each for from get gets getting got had has have
    having he her here him his how i if in into is it its just ll m me more most my no nor not now
    of off on once only or other our out over own re s same she should so some such t than that
    the their them then there these they this those through to too under until up us use used
    using ve very was we were what when where which while who why will with would you your please
    help happen happens happening like seem seems keep keeps every""".split()  # noqa: SIM905
)
_ENDINGS = (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", "e"), ("s", ""))


def terms(text: str) -> list[str]:
    """Terms of a text, in order, with repetitions.

    An identifier gives itself and its parts: `CUDA_VISIBLE_DEVICES` finds `visible` too.
    """
    found: list[str] = []
    for token in _TOKEN.findall(text):
        low = token.lower()
        parts = [p.lower() for p in _PART.findall(token)]
        if len(parts) > 1:
            found.append(low)
        else:
            parts = [low]
        found += [stem(p) for p in parts if p not in _STOP and len(p) < 40]
    return found


def stem(word: str) -> str:
    """A word without its most common English endings; short words and numbers stay."""
    if len(word) < 5 or not word.isalpha():
        return word[:-1] if len(word) == 4 and word.endswith("s") and not word.endswith("ss") else word
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and not word.endswith(("ss", "us", "is")):
            root = word[: -len(ending)] + instead
            if len(root) >= 3:
                word = root
                break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]  # clipping -> clipp -> clip
    return word[:-1] if len(word) > 4 and word.endswith("e") else word
