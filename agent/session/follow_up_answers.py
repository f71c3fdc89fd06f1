"""Answers to follow-ups: from the session's evidence and the calls just made, each sentence with what it stands on.

Nothing here is remembered by a planner: the verdict is that of the earlier report, a cause is weighed anew against all
evidence, and what a tool was asked for comes from its result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from ..core.playbook import Playbook
from ..core.report import Report, ReportFix, RootCause, Sentence
from ..core.types import Evidence
from ..verdict.intent import follow_up
from ..verdict.meaning import asked
from ..verdict.predicates import Facts
from ..verdict.salience import place, quote
from ..verdict.steer import Sounds, heard
from ..verdict.weighing import Weighed, share, weigh

SHOWN = 14  # sentences of one kind
CITES = 8
NEGLIGIBLE = 0.005  # a rival below it is named only where there is no other
SURE = {
    "confirmed": "Confirmed: everything its playbook requires holds, nothing contradicts it and no rival is near.",
    "likely": "Likely, not confirmed: evidence speaks for it, but not all that would prove it is there.",
    "hypothesis": "Only a hypothesis: it is the best that the evidence allows.",
    "healthy": "Progress was seen to the end, and nothing stood out.",
    "insufficient_evidence": "Not at all: the evidence identifies no cause.",
}
RANK = {
    "last_line": "Among its last lines", "failure": "It failed", "consequence": "It reports a consequence",
    "frame": "The innermost frame", "last_step": "Its last step", "furthest_other_step": "The furthest of the others",
    "stack": "It stands in", "named_by_others": "Others say of it", "world_size": "The size of the run",
    "seen": "Looked for", "no_dump": "Flight recorder", "last_collective": "Flight recorder",
    "collective_differs": "Flight recorder",
}  # fmt: skip
SUPPOSED = {
    "set_now": "Now", "new_conflict": "A new conflict", "still_conflict": "Still a conflict",
    "conflict_gone": "A conflict less", "conflict_line": "Where", "memory": "Memory",
    "memory_assumed": "For that", "memory_unknown": "Memory", "batch": "Batch",
    "rate_of_former_batch": "The learning rate was chosen for the former batch",
    "recommended_for": "Recommended", "folklore": "Known", "known": "Known",
}  # fmt: skip


def answer_follow_up(
    intent: str, question: str, earlier: Mapping[str, Any] | None, whole: Facts, facts: Facts,
    made: Sequence[Mapping[str, Any]], playbooks: Sequence[Playbook],
) -> Report:  # fmt: skip
    """The report that answers a follow-up.

    Args:
        earlier: the session's last diagnosis as plain data; None where there was none.
        whole: all evidence of the session.
        facts: evidence of the calls that answer this question.
        made: these calls with their outcomes, as the session keeps them.
    """
    before = _read(earlier)
    found = follow_up(question, earlier)
    about = found.about if found and found.name == intent else {}
    match intent:
        case "why_not":
            return _weighed(weigh(about.get("about", question), *_against(whole, before, playbooks)), before)
        case "check_rank":
            return _ranks(facts, made, about)
        case "what_if":
            return _supposed(facts, made)
        case "show_lines":
            return _lines(facts, made, about)
        case "show_evidence":
            return _shown(whole, about.get("evidence", "").upper())
    if before is None:
        return _report("There is no earlier diagnosis in this session that can be read.", [])
    return {"because": _because, "sure": _sure, "verify": _verify, "act": _act, "checked": _checked}[intent](
        before, whole, playbooks
    )


def _read(earlier: Mapping[str, Any] | None) -> Report | None:
    """The earlier report; None where another version wrote it."""
    try:
        return Report.model_validate(earlier) if earlier else None
    except ValidationError:
        return None


def _report(title: str, sentences: list[Sentence]) -> Report:
    return Report(status="answer", root_cause=RootCause(id=None, title=title, confidence=0.0), summary=sentences)


def _against(
    whole: Facts, before: Report | None, playbooks: Sequence[Playbook]
) -> tuple[Facts, Sequence[Playbook], Sounds]:
    """The evidence as the diagnosis weighed it: a doubt must not speak for what it doubts."""
    question = before.question if before else ""
    observed = [e for found in whole.by_key.values() for e in found if e.kind != "asked"]
    facts = Facts.of([*asked(question), *observed], whole.looked)
    return facts, playbooks, heard(question, facts)


def _weighed(w: Weighed, before: Report | None) -> Report:
    if w.cause is None:
        report = _report(f"No cause is known that \u201c{w.asked[:120]}\u201d could mean.", w.sentences)
        report.next_steps = ["Name it by id or in other words: doctor playbook list"]
        return report
    said = list(w.sentences)
    if before and w.leader and before.root_cause.id not in (None, w.leader.cause):
        said.insert(1, Sentence(
            text=f"With what was looked at since, the evidence puts {w.leader.cause} first; the earlier report said "
            f"{before.root_cause.id}.", cites=w.leader.supported_by[:CITES],
        ))  # fmt: skip
    head = "the evidence puts it first" if w.is_leader else share(w.own)
    head += f", behind {w.leader.cause}" if w.own and w.leader and not w.is_leader else ""
    report = _report(f"{w.cause}: {head}.", said)
    report.next_steps = [f"Read: doctor playbook show {w.playbook}"]
    report.next_steps += [f"Check: doctor tool {name.replace('_', '-')}" for name in w.checks[:3]]
    return report


def _told(
    facts: Facts, made: Sequence[Mapping[str, Any]], namespace: str, labels: Mapping[str, str], subject: str,
    *, each_rank: bool = False,
) -> Report:  # fmt: skip
    """Evidence of one tool, a line each, with what it shows and, where there are several, of which rank."""
    title = str(made[0]["summary"]) if made else f"{subject}: nothing was looked at."
    by_place: dict[object, tuple[list[str], Evidence, list[str]]] = {}
    for e in facts.get(f"{namespace}*"):
        label = labels.get(e.key.removeprefix(namespace), e.key.removeprefix(namespace).replace("_", " "))
        if each_rank and e.rank is not None:
            label = f"Rank {e.rank}: {label[0].lower()}{label[1:]}"
        entry = by_place.setdefault((e.file, e.line) if e.line else e.id, ([], e, []))
        entry[0].append(label)
        entry[2].append(e.id)
    said = [
        Sentence(text=f"{' / '.join(dict.fromkeys(names))}: {_words(e)}", cites=ids)
        for names, e, ids in by_place.values()
    ]
    report = _report(title, said[: 2 * SHOWN])
    if len(said) > 2 * SHOWN:
        report.next_steps.append(f"{len(said) - 2 * SHOWN} further facts are in the session's evidence")
    return report


def _ranks(facts: Facts, made: Sequence[Mapping[str, Any]], about: Mapping[str, str]) -> Report:
    """One rank, or several one after the other."""
    report = _told(facts, made, "rank_view.", RANK, f"Rank {about.get('ranks', '')}", each_rank=len(made) > 1)
    if len(made) > 1:
        report.root_cause.title = " | ".join(str(m["summary"]) for m in made)
    if int(about.get("count", 0)) > len(made) > 0:
        report.next_steps.append(f"Only the first {len(made)} of these ranks were looked at: ask for the others")
    return report


def _words(e: Evidence) -> str:
    """What a piece of evidence shows, with where it stands."""
    if e.kind == "absent":
        default = f"; the default then is {e.value}" if e.value is not None else ""
        return f"nothing in {', '.join((e.searched or [])[:4])}{default}."
    if e.kind == "document":
        return e.text
    text = e.text.strip()
    return f"{place(e)}: {quote(text, 400)}" if e.line and text else f"{place(e)}: {text or e.value}"


def _supposed(facts: Facts, made: Sequence[Mapping[str, Any]]) -> Report:
    if not made:
        report = _report("No setting and value are named that could be changed.", [])
        report.next_steps = [
            "Name both: what if micro_batch_size=4",
            "Or: doctor tool what-if --setting lr --value 1e-5",
        ]
        return report
    return _told(facts, made, "what_if.", SUPPOSED, "The change")


def _lines(facts: Facts, made: Sequence[Mapping[str, Any]], about: Mapping[str, str]) -> Report:
    """The lines as they stand; says so where the one asked for does not exist."""
    found = facts.get("log.line")
    if not found:
        return _report(str(made[0]["summary"]) if made else "No line was read.", [])
    first, last = found[0], found[-1]
    title = f"{first.file}, lines {first.line} to {last.line}"
    wanted = int(about["line"]) if "line" in about else None
    if wanted and not any(e.line == wanted for e in found):
        title = f"{first.file} has no line {wanted}: its last lines follow"
    said = [Sentence(text=f"{place(e)}: {quote(e.text, 1000)}", cites=[e.id]) for e in found]
    asked_for = [s for s, e in zip(said, found, strict=True) if e.line == wanted and "end" not in about]
    return _report(title, [*asked_for, *(s for s in said if s not in asked_for)])


def _shown(whole: Facts, name: str) -> Report:
    e = next((e for found in whole.by_key.values() for e in found if e.id == name), None)
    if e is None:
        return _report(f"There is no evidence {name} in this session.", [])
    value = "" if e.value in (None, True) else f" = {str(e.value)[:200]}"
    report = _report(f"{name}: {e.key}{value} (from {e.tool})", [Sentence(text=_words(e), cites=[name])])
    if e.file and e.line:
        report.next_steps = [f"Around it: doctor tool read-lines --file {e.file} --start {max(1, e.line - 10)}"]
    return report


def _because(before: Report, whole: Facts, playbooks: Sequence[Playbook]) -> Report:
    """The earlier report's own sentences, then the chain."""
    said = list(before.summary[:SHOWN])
    roles = {"cause": "The cause shows here", "trigger": "It was set off here", "symptom": "It shows here",
             "cascade": "It followed"}  # fmt: skip
    quoted = {s.text for s in said}
    said += [
        Sentence(text=f"{roles[link.role]}: {link.text}", cites=[link.evidence])
        for link in before.chain
        if link.text not in quoted
    ]
    return _report(_verdict(before), said)


def _sure(before: Report, whole: Facts, playbooks: Sequence[Playbook]) -> Report:
    """How sure the verdict is, what speaks against it, which rivals are left, and what could not be looked at."""
    lead = before.differential[0] if before.differential else None
    said = [Sentence(text=SURE[before.status], cites=(lead.supported_by if lead else [])[:CITES])]
    if lead and lead.contradicted_by:
        said.append(Sentence(text="This speaks against it.", cites=lead.contradicted_by[:CITES]))
    if lead and lead.missing:
        said.append(Sentence(text=f"Not known: {'; '.join(lead.missing[:3])}."))
    rivals = before.differential[1:5]
    for rival in [d for d in rivals if d.confidence >= NEGLIGIBLE] or rivals[:1]:
        parts = [f"missing: {'; '.join(rival.missing[:2])}"] if rival.missing else []
        parts += [f"against it: {', '.join(rival.contradicted_by[:4])}"] if rival.contradicted_by else []
        cites = [*rival.supported_by[:4], *rival.contradicted_by[:4]]
        tail = f"; {'; '.join(parts)}" if parts else ""
        said.append(
            Sentence(
                text=f"It could also be {rival.id} ({rival.title}), {_percent(rival.confidence)}{tail}.", cites=cites
            )
        )
    said += [Sentence(text=f"Also found, independently: {a.id}.", cites=a.cites[:CITES]) for a in before.also]
    unchecked = [c for c in before.checked if c.outcome in ("failed", "not_allowed")]
    said += [Sentence(text=f"Not checked: {c.tool}: {c.why}") for c in unchecked[:4]]
    return _report(_verdict(before), said)


def _verify(before: Report, whole: Facts, playbooks: Sequence[Playbook]) -> Report:
    """What would confirm the cause: what is missing, the checks that could give it, and how each repair is verified."""
    cause = before.root_cause.playbook or before.root_cause.id or ""
    said: list[Sentence] = []
    checks: list[str] = []
    if before.status not in ("healthy", "insufficient_evidence"):
        w = weigh(cause, *_against(whole, before, playbooks))
        said = [s for s in w.sentences if s.text.startswith(("For it", "Required", "Not known", "Against"))]
        checks = [f"Check: doctor tool {name.replace('_', '-')}" for name in w.checks[:4]]
    report = _report(f"How to verify {before.root_cause.id or 'it'}", said[:SHOWN])
    report.fixes = [ReportFix(title=f.title, verify=f.verify) for f in before.fixes if f.verify][:4]
    report.next_steps = list(dict.fromkeys([*checks, *_without_reading(before.next_steps)]))[:8]
    return report


def _act(before: Report, whole: Facts, playbooks: Sequence[Playbook]) -> Report:
    """The earlier report's repairs and advice, with what its cause stands on."""
    lead = before.differential[0].supported_by if before.differential else []
    said = [Sentence(text=f"For {before.root_cause.id} ({before.root_cause.title}).", cites=lead[:CITES])]
    if before.status in ("hypothesis", "insufficient_evidence"):
        said.append(Sentence(text="The cause is not established: collect what is missing before a repair."))
    report = _report(_verdict(before), said)
    report.fixes, report.patches, report.restart = before.fixes, before.patches, before.restart
    report.next_steps = before.next_steps
    return report


def _checked(before: Report, whole: Facts, playbooks: Sequence[Playbook]) -> Report:
    words = {"finding": "Found something", "clean": "Clean", "not_applicable": "Nothing there to look at",
             "not_allowed": "Not allowed", "failed": "Could not be checked"}  # fmt: skip
    said = []
    for outcome, label in words.items():
        rows = [c for c in before.checked if c.outcome == outcome]
        why = outcome in ("finding", "failed", "not_allowed")
        told = [f"{c.tool} ({c.why[:100]})" if why else c.tool for c in rows[: 2 * SHOWN]]
        if told:
            said.append(Sentence(text=f"{label}: {'; '.join(dict.fromkeys(told))}.", cites=_ids(whole, rows)))
    return _report(f"{len(before.checked)} checks were made", said)


def _ids(whole: Facts, rows: Iterable[Any]) -> list[str]:
    """The first evidence of each of these checks."""
    first: dict[str, str] = {}
    for found in whole.by_key.values():
        for e in found:
            if e.id and e.tool:
                first.setdefault(e.tool, e.id)
    return [first[c.tool] for c in rows if c.tool in first][:CITES]


def _verdict(before: Report) -> str:
    root = before.root_cause
    sure = f", {_percent(root.confidence)}" if before.status in ("confirmed", "likely", "hypothesis") else ""
    return f"{root.id}: {root.title} ({before.status.replace('_', ' ')}{sure})"


def _percent(confidence: float) -> str:
    return "under 1 %" if confidence < 0.01 else f"{round(100 * confidence)} %"


def _without_reading(steps: Iterable[str]) -> list[str]:
    return [s for s in steps if not s.startswith("Read: ")]
