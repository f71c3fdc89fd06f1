"""Which cause words mean: by id, playbook, title or name, by a term of the glossary, by what playbooks say."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ..core.own_files import KNOWLEDGE, read_table
from ..core.playbook import Playbook
from ..core.types import Evidence
from ..reading.settings.catalogue import entries

LIMIT = 400  # characters of a question that are read
LEAST = 0.30  # share of the words' information that a passage must have
NEAR = 0.8  # of the best fit, from which another cause may be meant as well
MOST = 4
_ID = re.compile(r"\b([a-z]+)[./]([a-z0-9_]+)\b")
_WORD = re.compile(r"[a-z0-9]+")
# words that carry no cause: how one asks, and what every run has
_ASKING = """a an and are as at be because been but by can cause caused could did do does for from has have how i if in
is isn it its just like may maybe might my no not of on or our out really run s should so some sort t than that the
their then there they this to too was we what whether why will with would you about issue issues problem problems error
errors bad wrong due simply perhaps possibly sure kind thing"""
_PLAIN = frozenset(_ASKING.split())


@dataclass(frozen=True, slots=True)
class Meaning:
    """Causes that words name, the nearest first; `playbook` where one of them is named itself.

    `near` are causes that only come near; they are offered, never taken.
    """

    words: str
    causes: tuple[str, ...] = ()
    playbook: str = ""
    near: list[str] = field(default_factory=list)
    named: bool = False  # by id, title or name, rather than by coming near what a playbook says


def meaning(words: str, playbooks: Sequence[Playbook]) -> Meaning:
    """What a question or a part of one names."""
    text = " ".join(words.split())[:LIMIT]
    for step in (_named, _titled, _everyday, _called):
        causes, slug = step(text, playbooks)
        if causes:
            return Meaning(text, tuple(dict.fromkeys(causes))[:MOST], slug, named=True)
    fitting, near = _fitting(text, playbooks)
    return Meaning(text, tuple(fitting), "", near)


def _named(text: str, playbooks: Sequence[Playbook]) -> tuple[list[str], str]:
    """By an id or a slug as it stands."""
    known, slugs = {p.cause for p in playbooks}, {p.slug: p for p in playbooks}
    for m in _ID.finditer(text.lower()):
        if (slug := f"{m[1]}/{m[2]}") in slugs and "/" in m[0]:
            return [slugs[slug].cause], slug
        if (cause := f"{m[1]}.{m[2]}") in known:
            return [cause], ""
        if slug in slugs:
            return [slugs[slug].cause], slug
    return [], ""


@cache
def _names() -> list[tuple[re.Pattern[str], list[str]]]:
    table = read_table(KNOWLEDGE / "intents.yaml")["names"]
    return [(re.compile(rf"\b(?:{row['said']})\b", re.IGNORECASE), row["means"]) for row in table]


def _everyday(text: str, playbooks: Sequence[Playbook]) -> tuple[list[str], str]:
    """By what people call it, as `intents.yaml` lists it."""
    known = {p.cause for p in playbooks}
    found = next((means for pattern, means in _names() if pattern.search(text)), [])
    return [c for c in found if c in known], ""


def _titled(text: str, playbooks: Sequence[Playbook]) -> tuple[list[str], str]:
    asked = _stems(text)
    if not asked:
        return [], ""
    for p in playbooks:
        if _stems(p.title) == asked:
            return [p.cause], p.slug
    return [], ""


def _called(text: str, playbooks: Sequence[Playbook]) -> tuple[list[str], str]:
    """By the name of the cause or playbook ("a straggler", "shared memory too small"), whole in the words."""
    asked = _stems(text)
    best: dict[str, int] = {}
    for p in playbooks:
        if p.cause.startswith("none."):
            continue  # "is this run healthy?" asks anew
        for name in (p.cause.partition(".")[2], p.slug.partition("/")[2]):
            own = _stems(name.replace("_", " "))
            if own and own <= asked and (len(own) > 1 or len(asked) <= 3):
                best[p.cause] = max(best.get(p.cause, 0), len(own))
    most = max(best.values(), default=0)
    return [c for c, n in best.items() if n == most], ""


def _fitting(text: str, playbooks: Sequence[Playbook]) -> tuple[list[str], list[str]]:
    """By a glossary term that leads to a playbook, by words of titles, and by what the playbooks say."""
    from ...index import lexicon

    by_slug = {p.slug: p for p in playbooks}
    asked = _stems(text)
    if not asked:
        return [], []
    known = lexicon.load()
    scores, overlap = known.scores(" ".join(w for w in _WORD.findall(text.lower()) if w not in _PLAIN))
    fit: dict[str, float] = {}
    share: dict[str, float] = {}
    for number, score in scores.items():
        if book := by_slug.get(known.chunks[number].document):
            fit[book.cause] = max(fit.get(book.cause, 0.0), score)
            share[book.cause] = max(share.get(book.cause, 0.0), overlap[number])
    top = max(fit.values(), default=0.0) or 1.0
    value = {c: s / top for c, s in fit.items()}
    for p in playbooks:
        title = _title(p.title, p.cause)
        value[p.cause] = max(value.get(p.cause, 0.0), value.get(p.cause, 0.0) * 0.6 + len(title & asked) / len(asked))
        if title >= asked:
            share[p.cause] = 1.0
    for entry in entries(text):
        if entry.see and (book := by_slug.get(entry.see) or by_slug.get(entry.see.replace(".", "/"))):
            value[book.cause], share[book.cause] = value.get(book.cause, 0.0) + 0.5, 1.0
    order = sorted((c for c in value if not c.startswith("none.")), key=lambda c: -value[c])
    sure = [c for c in order if share.get(c, 0.0) >= LEAST and value[c] >= NEAR * value[order[0]]]
    return sure[:MOST], [c for c in order[:MOST] if c not in sure and share.get(c, 0.0) > LEAST / 2]


@cache
def _title(title: str, cause: str) -> frozenset[str]:
    return _stems(f"{title} {cause.partition('.')[2].replace('_', ' ')}")


@cache
def _stems(text: str) -> frozenset[str]:
    """Words that say something, without the ends that number and tense give them."""
    return frozenset(_stem(w) for w in _WORD.findall(text.lower().replace("_", " ")) if w not in _PLAIN)


def _stem(word: str) -> str:
    for end in ("ation", "ated", "ing", "ies", "ed", "es", "s"):
        if word.endswith(end) and len(word) - len(end) >= 4:
            return word[: -len(end)]
    return word


# ----------
# What the question asserts. It steers the ranking and the search, and is never cited as evidence.

_STEP = re.compile(r"\bstep\s+(\d[\d,]*)(k?)\b", re.IGNORECASE)
_QUESTION_WORD = re.compile(r"[\w][\w'./%-]*")


@cache
def _symptoms() -> dict[str, re.Pattern[str]]:
    table = read_table(KNOWLEDGE / "symptoms.yaml")
    return {name: _either(patterns) for name, patterns in table.items()}


@cache
def _table() -> dict[str, Any]:
    return read_table(KNOWLEDGE / "complaints.yaml")


@cache
def _complaints() -> tuple[re.Pattern[str], dict[str, re.Pattern[str]]]:
    return _either(_table()["unless"]), {name: _either(of) for name, of in _table()["complaints"].items()}


@cache
def _ordinary() -> re.Pattern[str]:
    return _either([*_table()["asking"], *_table()["ordinary"]])


def _either(patterns: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{p})" for p in patterns), re.IGNORECASE)


@cache
def _asking() -> re.Pattern[str]:
    return _either(_table()["asking"])


def says_nothing(question: str) -> bool:
    """Whether a question is of words alone by which anything is asked: why, fix it, what do I tell my team."""
    return all(_asking().fullmatch(w.strip("'./-").removesuffix("'s")) for w in _QUESTION_WORD.findall(question))


def complaints(question: str) -> list[str]:
    """What a question complains of that no clean end and no falling loss refutes."""
    unless, kinds = _complaints()
    if unless.search(question):
        return []
    return [name for name, p in kinds.items() if p.search(question)] + ["particular"] * _is_particular(question)


def left_by(cause: str, symptoms: Collection[str]) -> tuple[str, ...]:
    """What of a complaint, in words, a cause does not bring about; nothing where it brings about any of it."""
    table = _table()["not_brought_about"]
    of = [table[name] for name in table if name in symptoms]
    left = [entry["words"] for entry in of if cause.partition(".")[0] in entry["by"]]
    return tuple(left) if len(left) == len(of) else ()


def _is_particular(question: str) -> bool:
    """Whether it speaks of something that is not in every run: by the number of its words that are not ordinary.

    A question of which hardly a word is ordinary is in another language, of which nothing is known.
    """
    words = {w.strip("'./-").lower().removesuffix("'s") for w in _QUESTION_WORD.findall(question)} - {""}
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
