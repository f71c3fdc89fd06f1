"""Reports that answer a question without a diagnosis: what is known, whether it fits, what to repair before a start.

Every sentence shows the evidence it cites in the evidence's own words; none names a root cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Literal

from ..core.own_files import KNOWLEDGE, read_table
from ..core.playbook import Fix, Playbook, Predicate, SettingChange
from ..core.report import CitedEvidence, Report, ReportFix, RootCause, Sentence
from ..core.types import Call, Evidence
from ..repair.treatment.treatment_words import set_in_shell
from ..verdict.intent import FOLLOW_UPS
from ..verdict.predicates import Facts, judge
from .follow_up_answers import answer_follow_up

NAMED_CHECKS = "named checks"  # the intent of a question that names the checks to be made
SHOWN = 12  # items of one kind
WHOLE = 1  # passages shown whole; of the others their first words
FIRST = 240  # characters of those
LEVELS: dict[str, Literal["stops", "look", ""]] = {"stops": "stops", "look": "look", "known": ""}


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of `preflight.yaml`: the evidence it speaks of, what it says, where the repair stands."""

    key: str
    says: str
    page: str
    level: Literal["stops", "look", ""]
    predicate: Predicate | None

    def fits(self, e: Evidence) -> bool:
        if not fnmatchcase(e.key, self.key):
            return False
        return self.predicate is None or judge(self.predicate, Facts.of([e])).state == "true"


@cache
def _preflight() -> dict[str, Any]:
    return read_table(KNOWLEDGE / "preflight.yaml")


def preflight_calls(hardware: Mapping[str, Any]) -> list[Call]:
    """The checks of a preflight, in their order; `hardware` are the devices that the estimate is for."""
    rows = [(row["tool"], hardware if row["tool"] == "estimate_memory" else {}) for row in _preflight()["calls"]]
    return [Call(tool, dict(args), why="preflight") for tool, args in rows]


@cache
def _rows() -> tuple[_Row, ...]:
    return tuple(
        _Row(
            row["key"], row["says"], row.get("playbook", row.get("cause", "")), level,
            Predicate(key=row["key"], op=row["op"], value=row["value"]) if "op" in row else None,
        )
        for kind, level in LEVELS.items()
        for row in _preflight()[kind]
    )  # fmt: skip


def is_answered(intent: str, facts: Facts) -> bool:
    """Whether the calls of an intent found what answers it."""
    keys = {"knowledge": ("knowledge.entry", "knowledge.passage"), "fit": ("estimate.total_bytes",)}.get(intent)
    return keys is None or any(facts.get(key) for key in keys)


def answer(
    intent: str,
    facts: Facts,
    made: Sequence[Mapping[str, Any]],
    playbooks: Sequence[Playbook],
    *,
    question: str = "",
    earlier: Mapping[str, Any] | None = None,
    whole: Facts | None = None,
) -> Report:
    """The report for an intent; says so where nothing answers it.

    Args:
        facts: evidence of the calls that answer this question, and of no other.
        made: these calls with their outcomes, as the session keeps them.
        question: a follow-up's own words.
        earlier: the session's last diagnosis as plain data, which a follow-up is about.
        whole: all evidence of the session, under the same numbers.
    """
    looked_up = {r["call"]["tool"] for r in made} <= {"look_up"}
    if intent == NAMED_CHECKS:
        report = _made(facts, made)
    elif intent in FOLLOW_UPS:
        report = answer_follow_up(intent, question, earlier, whole or facts, facts, made, playbooks)
    elif intent == "knowledge" or looked_up:
        report = _known(facts)
    else:
        report = _fit(facts) if intent == "fit" else _launch(facts, made, playbooks)
    ids = dict.fromkeys(i for s in report.summary for i in s.cites)
    evidence = {e.id: e for found in (whole or facts).by_key.values() for e in found}
    report.evidence = [CitedEvidence(**asdict(evidence[i])) for i in ids if i in evidence]
    return report


def _report(title: str, sentences: list[Sentence]) -> Report:
    return Report(status="answer", root_cause=RootCause(id=None, title=title, confidence=0.0), summary=sentences)


def _known(facts: Facts) -> Report:
    """Entries of catalogues whole, then passages: the best one whole, where no entry says it already."""
    entries, passages = facts.get("knowledge.entry"), facts.get("knowledge.passage")
    if not entries and not passages:
        report = _report("Nothing in the playbooks or documents answers this.", [])
        report.next_steps = [
            "Name a run to have it diagnosed: doctor ask QUESTION --run FOLDER",
            "Add a document that knows: doctor index add FILE",
        ]
        return report
    whole = WHOLE if not entries else 0
    said = [Sentence(text=e.text, cites=[e.id]) for e in [*entries, *passages[:whole]]]
    said += [Sentence(text=_first(e.text), cites=[e.id]) for e in passages[whole:]]
    report = _report(str((entries or passages)[0].value), said)
    slugs = [(e.file or "").removeprefix("playbook ") for e in passages if (e.file or "").startswith("playbook ")]
    report.next_steps = [f"Read on: doctor playbook show {slug}" for slug in dict.fromkeys(slugs)]
    return report


def _made(facts: Facts, made: Sequence[Mapping[str, Any]]) -> Report:
    """What checks that the user named came to: of each its own line, then the evidence it found."""
    last = {call_of_result(r): r for r in made}
    title = "; ".join(f"{r['call']['tool'].replace('_', '-')}: {r['summary']}" for r in last.values())
    found = [e for kept in facts.by_key.values() for e in kept if e.kind != "absent"]
    told = [Sentence(text=e.text.strip() or f"{e.key} = {e.value}", cites=[e.id]) for e in found[:SHOWN]]
    report = _report(title or "No check was made.", told)
    if len(found) > SHOWN:
        report.next_steps = [f"{_count(len(found) - SHOWN, 'further piece')} of evidence: its whole output has them."]
    return report


def call_of_result(result: Mapping[str, Any]) -> str:
    """The identity of the call that made a result, by which the same call made again is known."""
    return Call(**result["call"]).identity


def _first(text: str) -> str:
    """The first sentences of a passage, cut where one ends."""
    text = " ".join(text.split())
    if len(text) <= FIRST:
        return text
    end = max(text.rfind(". ", 0, FIRST) + 1, text.rfind("; ", 0, FIRST))
    return text[:end] if end > FIRST // 3 else text[:FIRST].rsplit(" ", 1)[0] + " \u2026"


def _fit(facts: Facts) -> Report:
    """The estimate, what it assumed, and the changes that make it fit."""
    total = facts.get("estimate.total_bytes")
    if not total:
        report = _report("No model is described: there is nothing to estimate.", [])
        report.next_steps = [
            "Name the run or its config: doctor ask QUESTION --run FOLDER",
            "Or give the sizes: doctor tool estimate-memory --config Qwen2.5-7B --gpu 80 --ranks 8 --zero 3",
        ]
        return report
    fits = facts.get("estimate.fits")
    words = {"yes": "It fits.", "tight": "It fits only just.", "no": "It does not fit."}
    title = words[str(fits[0].value)] if fits else "How much it needs; the device's memory is not known."
    told = [*total[:1], *facts.get("estimate.parameters")[:1], *facts.get("estimate.assumed")[:1]]
    told += facts.get("estimate.change")[:SHOWN]
    return _report(title, [Sentence(text=f"{e.text}.", cites=[e.id]) for e in told])


def _launch(facts: Facts, made: Sequence[Mapping[str, Any]], playbooks: Sequence[Playbook]) -> Report:
    """What stops the job, then what is worth a look, each with its repair."""
    told: dict[str, list[tuple[_Row, Evidence]]] = {level: [] for level in LEVELS.values()}
    for row, e in _sorted(facts):
        told[row.level].append((row, e))
    stops, look = told["stops"], told["look"]
    title = f"{_count(len(stops), 'thing')} will go wrong" if stops else "Nothing found that stops it"
    title += f", {_count(len(look), 'thing')} to look at" if look else ""
    unchecked = sum(r["outcome"] in ("failed", "not_allowed") for r in made)
    title += f"; {_count(unchecked, 'check')} could not be made." if unchecked else "."
    if not any(r["outcome"] in ("finding", "clean") for r in made):
        title = "Nothing could be checked."
    report = _report(title, [_sentence(row, e) for found in told.values() for row, e in found[:SHOWN]])
    pages = _pages(playbooks)
    wanted = dict.fromkeys(row.page for row, _ in stops if row.page in pages)
    report.fixes = [_fix(pages[page]) for page in wanted if pages[page].fixes]
    hidden = len(stops[SHOWN:]) + len(look[SHOWN:])
    if hidden:
        report.next_steps.append(f"{_count(hidden, 'further thing')}: doctor tool lint-settings, find-hazards")
    return report


def _sorted(facts: Facts) -> list[tuple[_Row, Evidence]]:
    """Each piece of evidence that a row speaks for, by the order of the rows; what reads the same once."""
    ordinary = set(_preflight()["ordinary"])
    found: dict[tuple[int, str], tuple[_Row, Evidence]] = {}
    for e in (e for kept in facts.by_key.values() for e in kept):
        absent = e.kind == "absent" and not e.key.startswith("lint.")  # a lint may be that something is not set
        if e.key in ordinary or e.kind == "asked" or absent:
            continue
        number = next((n for n, row in enumerate(_rows()) if row.fits(e)), None)
        if number is not None:
            row = _rows()[number]
            found.setdefault((number, _said(row, e)), (row, e))
    return [found[place] for place in sorted(found)]


def _said(row: _Row, e: Evidence) -> str:
    text = " ".join(e.text.split())
    return row.says.format(value=str(e.value)[:300] if e.value is not True else text, text=text[:300] or e.value)


def _sentence(row: _Row, e: Evidence) -> Sentence:
    return Sentence(text=f"{_said(row, e).rstrip('.')}.", cites=[e.id], level=row.level)


def _pages(playbooks: Sequence[Playbook]) -> Mapping[str, Playbook]:
    """Playbooks by slug, and for each cause one, that named like it first."""
    pages = {p.slug: p for p in playbooks}
    for p in playbooks:
        if p.slug.replace("/", ".") == p.cause:
            pages[p.cause] = p
        pages.setdefault(p.cause, p)
    return pages


def _fix(page: Playbook) -> ReportFix:
    first = next((f for f in page.fixes if _for_any_run(f)), page.fixes[0])
    why = " ".join(filter(None, (first.why, first.text)))
    commands = [*(set_in_shell(k, v) for k, v in first.env.items()), *first.commands]
    return ReportFix(title=f"{page.title}: {first.title}", why=why, commands=commands)


def _for_any_run(fix: Fix) -> bool:
    """Whether a repair is one without a run whose evidence gives it its amounts."""
    amounts = any(isinstance(change, SettingChange) and change.amount for change in fix.settings.values())
    return not (fix.finds or fix.when or (amounts and not fix.text))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
