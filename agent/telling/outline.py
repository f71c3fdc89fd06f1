"""A report as titled sections of short items: what terminal and markdown both print, decided once.

Every text passes `sanitize` here, so that whatever a run wrote into its logs or file names comes out inert.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..safety.fences import one_line

if TYPE_CHECKING:  # a screen that is drawn before there is any report must not wait for its models
    from ..core.report import Before, ByHand, Choice, CitedEvidence, Differential, Patch, Report, Sentence

EVIDENCE_SHOWN = 12
RIVALS_SHOWN = 4
CITES_SHOWN = 4
ALIKE_SHOWN = 4
CHANGES_SHOWN = 12  # lines of a patch; `doctor apply` shows all of it
NEGLIGIBLE = 0.005  # a rival below it would read as 0 %
QUOTE = 240  # characters of a cited line that people are shown; the JSON report has all of it

_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_STATUS = {
    "confirmed": "confirmed",
    "likely": "likely",
    "hypothesis": "a hypothesis",
    "healthy": "healthy",
    "insufficient_evidence": "insufficient evidence",
    "answer": "an answer",
}


@dataclass(frozen=True, slots=True)
class Item:
    """One entry: a short mark before it, its text, a verbatim quotation, changed lines, commands, a remark."""

    text: str
    mark: str = ""
    quote: str = ""
    changes: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A title and its items; `prose` items are sentences of one paragraph."""

    title: str
    items: list[Item] = field(default_factory=list)
    prose: bool = False


@dataclass(frozen=True, slots=True)
class Outline:
    """The verdict in one line, what it means, where it broke first, and the sections that bear it out."""

    verdict: str
    certainty: str
    title: str
    first_failure: str
    sections: list[Section]
    footer: list[str]


def outline(report: Report) -> Outline:
    """The report in the order a person reads it; empty sections are left out."""
    found = [_answer(report)] if report.status == "answer" else [
        _summary(report), _beside(report), _evidence(report), _chain(report), _also(report), _differential(report)
    ]  # fmt: skip
    sections = [*found, _fixes(report), _again(report), _next_steps(report), _checked(report)]
    root = report.root_cause
    percent = f", {_percent(root.confidence)}" if report.status in ("confirmed", "likely", "hypothesis") else ""
    return Outline(
        verdict=one_line(root.id or root.title or "answer"),
        certainty=f"{_STATUS[report.status]}{percent}",
        title=one_line(root.title) if root.id else "",
        first_failure=_first_failure(report),
        sections=[s for s in sections if s.items],
        footer=_footer(report),
    )


def place(e: CitedEvidence) -> str:
    """Where a piece of evidence stands: `logs/rank3.log:812`, a command, a record of a binary file."""
    if e.kind == "absent":
        return f"{e.key}: looked for, not there"
    if e.kind == "document":
        return one_line(f"{e.file} > {e.member}" if e.member else e.file or "")
    if e.file:
        return one_line(f"{e.file}:{e.line}" if e.line else f"{e.file} {e.member or ''}".rstrip())
    return one_line(" ".join(e.argv or ())) or e.key


def _percent(share: float) -> str:
    """Whole percents; never a certainty that is none."""
    return "<1%" if share < 0.005 else ">99%" if share > 0.995 else f"{share:.0%}"


def _first_failure(report: Report) -> str:
    f = report.root_cause.first_failure
    said = [f"{name} {value}" for name, value in (("rank", f.rank), ("host", f.host), ("step", f.step))
            if value is not None]  # fmt: skip
    said += [f"at {f.time}"] if f.time else []
    said += [f"in attempt {f.attempt}"] if f.attempt is not None and f.attempt > 1 else []
    return one_line(", ".join(said))


def _summary(report: Report) -> Section:
    """Sentences that say more than where a line stands; the lines themselves follow as evidence."""
    by_id = {e.id: e for e in report.evidence}
    told = [s for s in report.summary if not _only_quotes(s, by_id)]
    return Section("What happened", [Item(f"{one_line(s.text)}{_marks(s.cites)}") for s in told], prose=True)


def _beside(report: Report) -> Section:
    """What the evidence says without the model, where the two part."""
    alone = report.meta.ranking
    if alone is None or alone.id == report.root_cause.id:
        return Section("Without the model")
    percent = f", {_percent(alone.confidence)}" if alone.confidence else ""
    text = f"The evidence by itself points to {alone.id} ({_STATUS[alone.status]}{percent}). The model disagrees."
    return Section("Without the model", [Item(one_line(text))])


def _answer(report: Report) -> Section:
    """Each sentence with where it stands: in a document, or in a file of the run."""
    by_id = {e.id: e for e in report.evidence}
    items = []
    for s in report.summary:
        places = dict.fromkeys(place(by_id[i]) for i in s.cites if i in by_id)
        items.append(Item(one_line(s.text), mark=_cited(s.cites), remark=one_line(", ".join(places))))
    return Section("Answer", items)


def _only_quotes(s: Sentence, by_id: dict[str, CitedEvidence]) -> bool:
    cited = by_id.get(s.cites[0]) if s.cites else None
    return bool(cited and cited.file and cited.line and s.text.startswith(f"{cited.file}:{cited.line}"))


def _cited(cites: list[str]) -> str:
    more = len(cites) - CITES_SHOWN
    return ", ".join(cites[:CITES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _marks(cites: list[str]) -> str:
    return f" [{_cited(cites)}]" if cites else ""


def _evidence(report: Report) -> Section:
    """What the summary and the chain cite, in the order they cite it, each line once, lines that read alike once."""
    by_id = {e.id: e for e in report.evidence}
    wanted = [i for s in report.summary for i in s.cites] + [link.evidence for link in report.chain]
    if report.status not in ("confirmed", "likely"):  # then the rivals are what there is to read
        rivals = report.differential[:RIVALS_SHOWN]
        wanted += [i for d in rivals for i in (*d.supported_by[:2], *d.contradicted_by[:2])]
    lines: dict[object, CitedEvidence] = {}
    for cited in (by_id[i] for i in wanted if i in by_id):
        lines.setdefault((cited.file, cited.line) if cited.line else cited.id, cited)
    alike: dict[str, list[CitedEvidence]] = {}
    for cited in lines.values():
        alike.setdefault(_template(cited), []).append(cited)
    groups = list(alike.values())[:EVIDENCE_SHOWN]
    items = [_evidence_item(group[0], group[1:]) for group in groups]
    more = len(report.evidence) - sum(map(len, groups))
    if more > 0:
        items.append(Item(f"{more} more in the JSON report"))
    return Section("Evidence", items)


def _template(e: CitedEvidence) -> str:
    """What a line says apart from its numbers: ranks that say the same say it once."""
    return f"{e.kind} {_NUMBERS.sub('#', e.text)}" if e.line and e.text.strip() else e.id


def _evidence_item(e: CitedEvidence, alike: list[CitedEvidence]) -> Item:
    if e.kind == "absent":
        looked = ", ".join(e.searched or []) or "the files of the run"
        default = "" if e.value is None else f"; the default then is {e.value}"
        return Item(place(e), mark=e.id, remark=one_line(f"searched {looked}{default}"))
    who = [f"rank {e.rank}"] if e.rank is not None else []
    who += [e.variant] if e.variant else []
    where = f"{place(e)} ({one_line(', '.join(who))})" if who else place(e)
    text = e.text.strip() if e.text.strip() else f"{e.key} = {e.value}"
    same = ", ".join(place(other) for other in alike[:ALIKE_SHOWN])
    more = f" and {len(alike) - ALIKE_SHOWN} more" if len(alike) > ALIKE_SHOWN else ""
    return Item(where, mark=e.id, quote=_shortened(one_line(text)), remark=f"alike: {same}{more}" if alike else "")


def _shortened(text: str, limit: int = QUOTE) -> str:
    return text if len(text) <= limit else f"{text[:limit].rstrip()} ..."


def _chain(report: Report) -> Section:
    """From cause to cascade; left out where there is nothing but the cause."""
    if len({link.role for link in report.chain}) < 2:
        return Section("How it went")
    by_id = {e.id: e for e in report.evidence}
    items: dict[str, Item] = {}
    for link in report.chain:
        cited = by_id.get(link.evidence)
        listed = bool(cited and cited.line and link.text.startswith(f"{cited.file}:{cited.line}"))
        text = f"{place(cited)}: {cited.text.strip()}" if cited and listed else link.text
        item = Item(f"{_shortened(one_line(text), 120)} [{link.evidence}]", mark=link.role)
        items.setdefault(f"{link.role} {_template(cited) if cited else link.evidence}", item)
    return Section("How it went", list(items.values()))


def _also(report: Report) -> Section:
    items = [Item(f"{one_line(a.id)}{_marks(a.cites)}", mark=_percent(a.confidence)) for a in report.also]
    return Section("Also found", items)


def _differential(report: Report) -> Section:
    """The rivals: what speaks for each, against it, and what is not known."""
    rivals = [d for d in report.differential if d.id != report.root_cause.id]
    rivals = [d for d in rivals if d.confidence >= NEGLIGIBLE] or rivals[:1]
    return Section("Also considered", [_rival(d) for d in rivals[:RIVALS_SHOWN]])


def _rival(d: Differential) -> Item:
    why = []
    if d.supported_by:
        why.append(f"for it {_cited(d.supported_by)}")
    if d.contradicted_by:
        why.append(f"against it {_cited(d.contradicted_by)}")
    if d.missing:
        why.append(f"missing: {'; '.join(m.removesuffix(' seen') for m in d.missing[:3])}")
    return Item(one_line(d.id), mark=_percent(d.confidence), remark=one_line("; ".join(why) or "nothing supports it"))


def _fixes(report: Report) -> Section:
    """Each repair with what its patches change, the command that makes them, and what is left to the user."""
    patches = {p.id: p for p in report.patches}
    items = []
    for number, fix in enumerate(report.fixes, 1):
        own = [patches[p] for p in fix.patches if p in patches]
        changes = [one_line(line) for p in own for line in _changed_lines(p)]
        commands = [f"doctor apply {report.session} {' '.join(p.id for p in own)}"] if own and report.session else []
        commands += [one_line(c) for c in fix.commands]
        remarks = [f"risk: {fix.risk}" if fix.risk else "", *map(_by_hand, fix.by_hand)]
        remarks.append(f"then check: {fix.verify}" if fix.verify else "")
        text = one_line(fix.named) + (f": {one_line(fix.why)}" if fix.why else "")
        remark = one_line("; ".join(r.rstrip(".") for r in remarks if r))
        items.append(Item(text, f"{number}.", changes=tuple(changes), commands=tuple(commands), remark=remark))
    return Section("What to do", items)


def _changed_lines(patch: Patch) -> list[str]:
    """The file and the lines that a patch takes out and puts in, the first of many."""
    by = ", proposed by the model" if patch.by == "model" else ""
    rows = [row.rstrip("\r") for row in patch.diff.split("\n")[2:] if row[:1] in ("+", "-")]
    more = [f"... {len(rows) - CHANGES_SHOWN} more lines"] if len(rows) > CHANGES_SHOWN else []
    return [f"{patch.id}: {patch.file}{by}", *(_shortened(row) for row in rows[:CHANGES_SHOWN]), *more]


def _by_hand(hand: ByHand) -> str:
    if not hand.text:
        return f"no patch{f' for {hand.where}' if hand.where else ''}: {hand.why}"
    what = f"by hand: {hand.text}"
    where = f" in {hand.where}" if hand.where else ""
    return f"{' '.join(what.split())}{where}{f' ({hand.why})' if hand.why else ''}"


def _again(report: Report) -> Section:
    """What starting the job again does, without which nodes, and from which checkpoint at what cost."""
    r = report.restart
    if r is None or not (r.choices or r.before or r.from_checkpoint or r.advice != "fix_first"):
        return Section("Starting again")
    from ..core.report import Choice
    from ..repair.restart import outcome_of

    outcome = outcome_of(report.root_cause.id)
    said = [outcome.again if r.advice == outcome.advice else "Starting it again did not help before: repair it first."]
    if r.exclude:
        said.append(f"Leave out {', '.join(r.exclude)}.")
    elif r.advice == "restart_excluding":
        said.append("The evidence does not name the node at fault; the next steps say how to find it.")
    items = [Item(one_line(" ".join(said)))]
    choices = r.choices or ([Choice(checkpoint=r.from_checkpoint, clean=True)] if r.from_checkpoint else [])
    items += [_choice(choice, best=number == 0) for number, choice in enumerate(choices)]
    items += [Item(one_line(_earlier(before)), mark="before") for before in r.before]
    return Section("Starting again", items)


def _choice(choice: Choice, *, best: bool) -> Item:
    """A checkpoint, whether it is known to be clean and what is lost with it; of the best, why and how to go on."""
    known = " (read whole, clean)" if choice.clean else "" if choice.step == 0 else " (not proved clean)"
    lost = f", {choice.lost_steps} steps lost" if choice.lost_steps is not None else ""
    lost += f", {choice.lost_gpu_hours:g} GPU-hours" if choice.lost_gpu_hours is not None else ""
    return Item(
        one_line(f"{choice.checkpoint}{known}{lost}"), mark="from",
        commands=tuple(map(one_line, choice.resume[: int(best)])), remark=one_line(choice.why) if best else "",
    )  # fmt: skip


def _earlier(before: Before) -> str:
    """An earlier diagnosis of the same kind: when, what it has in common, where it was."""
    shared = [name for name in before.same if name != "cause"]
    nodes = f" on {', '.join(before.nodes)}" if before.nodes else ""
    return f"{before.time[:10]}: the same cause, the same {' and '.join(shared)}{nodes} (session {before.session})"


def _next_steps(report: Report) -> Section:
    return Section("Next steps", [Item(one_line(step), mark="-") for step in report.next_steps])


def _checked(report: Report) -> Section:
    """Three different answers, kept apart: found something, clean, could not be checked."""
    by_outcome: dict[str, list[str]] = {}
    for c in report.checked:
        by_outcome.setdefault(c.outcome, []).append(c.tool)
    items = [
        Item(", ".join(dict.fromkeys(by_outcome[outcome])), mark=said)
        for outcome, said in (("finding", "found"), ("clean", "clean"), ("not_applicable", "nothing to read"))
        if outcome in by_outcome
    ]
    stopped = [c for c in report.checked if c.outcome in ("failed", "not_allowed")]
    items += [Item(one_line(f"{c.tool}: {c.why}"), mark="not checked") for c in stopped]
    return Section("Checked", items)


def _made(report: Report) -> str:
    """By whom, and what that cost."""
    m = report.meta
    if not m.model_calls:
        return "made without a model"
    cost = f", cost {m.cost:.4f}" if m.cost is not None else ""
    agrees = " (the evidence alone says the same)" if m.ranking and m.ranking.id == report.root_cause.id else ""
    used = f"{m.model_calls} requests, {m.tokens.in_} tokens in and {m.tokens.out} out{cost}"
    by = f"verdict by {m.model}{agrees}" if m.planner == "llm" else f"verdict without {m.model}, which was asked"
    return one_line(f"{by}, {used}")


def _footer(report: Report) -> list[str]:
    m = report.meta
    lines = [f"doctor {m.version}, {_made(report)}, {m.tool_calls} checks in {m.seconds:.1f} s"]
    lines += [one_line(f"from this team's history: {text}") for text in m.history]
    lines += [one_line(f"limited: {text}") for text in m.degraded]
    if report.session:
        lines.append(f"kept as {report.session}: doctor sessions show {report.session}")
    return lines
