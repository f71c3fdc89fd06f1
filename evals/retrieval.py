"""How well passages are found: recall, reciprocal rank and refusals over `questions.yaml`, by way of ranking.

Playbooks are counted once each (a playbook is found by any of its passages), sections of documents once each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from ..index.places import Sources
from ..index.search import Ranking, Result, search

QUESTIONS = Path(__file__).with_name("questions.yaml")
WAYS: tuple[Ranking, ...] = ("vectors", "words", "both")
DEPTH = 40  # passages asked for, so that five different documents are among them
Ask = Callable[[str], list[Result]]


class QuestionsUnusable(Exception):
    """The file of questions cannot be read; the message is one line for the user."""


@dataclass(frozen=True, slots=True)
class Score:
    """Shares over a set of questions. `refused` is the share of questions that got no answer at all."""

    asked: int
    recall_1: float
    recall_3: float
    recall_5: float
    mrr: float
    refused: float
    missed: tuple[str, ...] = ()


def measure(sources: Sources, cache: Path | None = None, path: Path = QUESTIONS) -> dict[str, dict[str, Score]]:
    """Way of ranking -> set of questions -> score. `documents` is measured where documents were added.

    The index of the sources has been built; where it has not, the ways that need vectors are left out.

    Raises:
        QuestionsUnusable: the file is not there, or has another form.
    """
    data = _questions(path)
    table: dict[str, dict[str, Score]] = {}
    for way in WAYS:

        def ask(question: str, way: Ranking = way) -> list[Result]:
            return search(question, k=DEPTH, sources=sources, cache_dir=cache, by=way)

        if way == "words" or not search("loss is nan", k=1, sources=sources, cache_dir=cache, by=way).degraded:
            table[way] = _table(data, ask)
    return table


def _questions(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        for name in ("playbooks", "documents"):
            data[name] = [(str(question), [str(w) for w in wanted]) for question, wanted in data.get(name, [])]
        data["nothing"] = [str(q) for q in data.get("nothing", [])]
    except OSError as e:
        raise QuestionsUnusable(f"{path}: {e.strerror}") from None
    except (yaml.YAMLError, AttributeError, TypeError, ValueError, UnicodeDecodeError):
        raise QuestionsUnusable(f"{path}: not in the form of the built-in questions.yaml") from None
    return data


def _table(data: dict[str, Any], ask: Ask) -> dict[str, Score]:
    scores = {"playbooks": _score(data["playbooks"], ask, _is_playbook)}
    documents = [r for r in ask("training troubleshooting") if r.kind == "document"]
    if documents:
        scores["documents"] = _score(data["documents"], ask, _is_section)
    nothing = [(q, ()) for q in data["nothing"]]
    scores["nothing"] = _score(nothing, ask, lambda r, wanted: False)
    return scores


def _is_playbook(r: Result, wanted: Sequence[str]) -> bool | None:
    return r.cause in wanted if r.kind == "playbook" else None


def _is_section(r: Result, wanted: Sequence[str]) -> bool | None:
    """Whether a passage stands in one of the sections `file > heading`; None for what is no document."""
    if r.kind != "document":
        return None
    name, headings = Path(r.document).name, " > ".join(r.headings)
    pairs = (w.partition(" > ")[::2] for w in wanted)
    return any(name.startswith(start) and heading in headings for start, heading in pairs)


def _score(rows: Iterable[Sequence[Any]], ask: Ask, fits: Callable[[Result, Sequence[str]], bool | None]) -> Score:
    places: list[int] = []
    missed: list[str] = []
    refused = 0
    for question, wanted in rows:
        found = ask(question)
        refused += not found
        place = _place(found, wanted, fits)
        places.append(place)
        if not 0 < place <= 3:
            missed.append(question)
    count = len(places) or 1

    def within(k: int) -> float:
        return round(sum(0 < p <= k for p in places) / count, 3)

    mrr = round(sum(1 / p for p in places if p) / count, 3)
    return Score(len(places), within(1), within(3), within(5), mrr, round(refused / count, 3), tuple(missed))


def _place(found: list[Result], wanted: Sequence[str], fits: Callable[[Result, Sequence[str]], bool | None]) -> int:
    """Place of the first thing that fits, counted from 1 over different documents or sections; 0 for none."""
    seen: dict[tuple[str, ...], bool] = {}
    for r in found:
        fitting = fits(r, wanted)
        if fitting is None:
            continue
        key = (r.document, *r.headings) if r.kind == "document" else (r.document,)
        seen[key] = seen.get(key, False) or fitting
    return next((n for n, fitting in enumerate(seen.values(), 1) if fitting), 0)


def lines(table: dict[str, dict[str, Score]]) -> list[str]:
    """The table as text."""
    out = [f"{'ranking':<9}{'questions':<11}{'asked':>6}{'recall@1':>10}{'@3':>7}{'@5':>7}{'MRR':>7}{'refused':>9}"]
    for way, scores in table.items():
        for name, s in scores.items():
            columns = ((s.recall_1, 10), (s.recall_3, 7), (s.recall_5, 7), (s.mrr, 7))
            figures = "".join(f"{v:>{w}.2f}" for v, w in columns)
            shown = figures if name != "nothing" else " " * 31
            out.append(f"{way:<9}{name:<11}{s.asked:>6}{shown}{s.refused:>9.2f}")
    return out


def as_dict(table: dict[str, dict[str, Score]]) -> dict[str, Any]:
    """JSON-ready."""
    return {way: {name: asdict(s) for name, s in scores.items()} for way, scores in table.items()}
