"""The page as a whole: what comes in which order, and the head that forbids everything but its own style."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from ...core.report import Before, ByHand, Choice, CitedEvidence, Differential, Patch, Report, ReportFix, Restart
from ...reading.run.roles import PAGE
from ...reading.run.workspace import Workspace
from ...reading.scan.windows import nearby
from ...safety.fences import one_line
from ...safety.redact import Redactor
from ..collect.cleaning import without_secrets
from ..outline import NEGLIGIBLE, Outline, Section, outline, place
from .figures import drawn, figures
from .page_evidence import RIVALS, SIGNS, Shown, Window, evidence, shown, windows
from .page_markup import POLICY, STYLE, Html, clipped, idents, joined, linked, raw, tag, within
from .plot import Figure

# ----------
# The words of the page: the verdict on top, sections that terminal and markdown have too, the chain, the rivals.


ITEMS, LINKS = 40, 40  # shown of a section, of the chain
_TEXT, _SIGN = 1_200, 200  # characters of an item, of a sign
_BYTES = 100_000  # of a section
_AGAIN = {
    "restart": "Start it again as it is.",
    "restart_excluding": "Start it again on other machines.",
    "fix_first": "Repair it before you start it again.",
    "stop": "Do not go on with it.",
}


def verdict(report: Report, outline: Outline) -> Html:
    """What everybody reads: the cause, how sure it is, where it broke first, and what to do."""
    title = clipped(outline.title or outline.verdict, 300)
    rows: list[tuple[str, Html | str]] = []
    if outline.first_failure:
        rows.append(("First failure", clipped(outline.first_failure, 300)))
    if report.fixes:
        rows.append(("First to do", tag("a", clipped(one_line(report.fixes[0].named), 200), href="#fixes")))
    if report.restart:
        rows.append(("Start again?", tag("a", _AGAIN[report.restart.advice], href="#again")))
    if report.question:
        rows.append(("Asked", clipped(" ".join(report.question.split()), 600)))
    for run in report.runs[:8]:
        kind = "Healthy run" if run.good else "Run"
        rows.append((kind, clipped(one_line(f"{run.root} ({run.state})"), 300)))
    listed = [joined(tag("dt", name), tag("dd", value)) for name, value in rows]
    status = tag("span", clipped(outline.certainty, 80), class_=f"status {report.status.replace('_', '-')}")
    cause = tag("code", clipped(outline.verdict, 120)) if outline.title else None
    return tag("header", tag("p", status, " ", cause), tag("h1", title), tag("dl", *listed))


def words(section: Section, known: Collection[str]) -> Html:
    """A section as terminal and markdown have it."""
    if section.prose:
        told, more = within([joined(linked(clipped(i.text, _TEXT), known), " ") for i in section.items], _BYTES)
        return joined(tag("p", *told), left_out(more, "are"))
    items = []
    for item in section.items[:ITEMS]:
        mark = tag("b", idents(clipped(item.mark, 120), known), " ") if item.mark not in ("", "-") else None
        remark = tag("small", clipped(item.remark, _TEXT)) if item.remark else None
        said = tag("q", clipped(item.quote, _TEXT)) if item.quote else None
        orders = [command(c) for c in item.commands[:ITEMS]]
        items.append(tag("li", mark, linked(clipped(item.text, _TEXT), known), said, remark, *orders))
    kept, more = within(items, _BYTES)
    return joined(tag("ul", *kept, class_="plain"), left_out(more + max(len(section.items) - ITEMS, 0), "are"))


def left_out(more: int, verb: str = "is") -> Html | None:
    """That further items stand in the JSON report alone."""
    return tag("p", f"{more:,} more {verb} in the JSON report.", class_="note") if more > 0 else None


def command(text: str) -> Html:
    """A command on a line of its own; one click takes all of it."""
    return tag("pre", tag("code", clipped(one_line(text), 4_000)), class_="cmd")


def chain(report: Report, known: Collection[str]) -> Html | None:
    """The steps from cause to cascade, in the order of events; with their time, step and rank."""
    by_id = {e.id: e for e in report.evidence}
    steps = []
    for link in report.chain[:LINKS]:
        cited = by_id.get(link.evidence)
        told = cited is not None and bool(cited.line) and link.text.startswith(f"{cited.file}:{cited.line}")
        text = cited.text.strip() if told and cited and cited.text.strip() else link.text
        when = clipped(_when(cited), 160) if cited else ""
        head = joined(tag("b", link.role), " ", idents(link.evidence, known), f" {when}" if when else None)
        steps.append(tag("li", tag("div", head), tag("div", clipped(one_line(text), 400), class_="said"),
                         class_=link.role))  # fmt: skip
    if not steps:
        return None
    return joined(tag("ol", *steps, class_="chain"), left_out(len(report.chain) - LINKS, "are"))


def _when(e: CitedEvidence) -> str:
    known = (e.time, f"step {e.step}" if e.step is not None else "", f"rank {e.rank}" if e.rank is not None else "",
             f"attempt {e.attempt}" if e.attempt is not None else "", e.host, place(e))  # fmt: skip
    return one_line(", ".join(str(k) for k in known if k))


def rivals(report: Report, known: Collection[str]) -> Html | None:
    """The other causes that were weighed, and what rules each of them out."""
    others = [d for d in report.differential if d.id != report.root_cause.id]
    near = [d for d in others if d.confidence >= NEGLIGIBLE or d.contradicted_by]
    shown = sorted(near or others[:1], key=lambda d: -d.confidence)[:RIVALS]
    by_id = {e.id: e for e in report.evidence}
    if not shown:
        return None
    rest = len(others) - len(shown)
    note = f"{rest:,} more causes were weighed and are in the JSON report." if rest else None
    cards = [_rival(d, by_id, known) for d in shown]
    return joined(*cards, tag("p", note, class_="note") if note else None)


def _rival(d: Differential, by_id: dict[str, CitedEvidence], known: Collection[str]) -> Html:
    share = "under 1%" if d.confidence < NEGLIGIBLE else f"{d.confidence:.0%}"
    head = tag("h3", clipped(one_line(d.title or d.id), 200), " ", tag("code", clipped(one_line(d.id), 120)),
               f" {share}")  # fmt: skip
    rows = [("Against it", _signs(d.contradicted_by, by_id, known)), ("For it", _signs(d.supported_by, by_id, known))]
    missing = [clipped(one_line(m.removesuffix(" seen").removesuffix(" matching .")), _SIGN) for m in d.missing[:SIGNS]]
    rows.append(("Would show it, not seen", tag("ul", *(tag("li", m) for m in missing)) if missing else None))
    said = [joined(tag("dt", name), tag("dd", what)) for name, what in rows if what]
    nothing = None if said else tag("p", "Nothing speaks for it.")
    return tag("article", head, tag("dl", *said) if said else None, nothing)


def _signs(ids: list[str], by_id: dict[str, CitedEvidence], known: Collection[str]) -> Html | None:
    if not ids:
        return None
    rows = []
    for ident in ids[:SIGNS]:
        e = by_id.get(ident)
        if e is None:
            rows.append(tag("li", idents(ident, known)))
            continue
        text = "looked for, not there" if e.kind == "absent" else e.text.strip() or f"{e.value}"
        code = tag("code", clipped(one_line(e.key), 80))
        said = tag("span", clipped(one_line(text), _SIGN), class_="said")
        rows.append(tag("li", idents(ident, known), " ", code, " ", said))
    more = len(ids) - SIGNS
    return tag("ul", *rows, tag("li", f"and {more:,} more") if more > 0 else None)


# ----------
# Further questions of the conversation that a page is of, each with what was answered.

QUESTIONS = 60
_OTHERS_BYTES = 1_000_000  # of all of them
_LEFT_OUT = {"Checked"}  # every answer of a session tells the checks before it again


def asked_beside(reports: list[Report], known: Collection[str]) -> Html | None:
    """A card for each report that the page is not about, in the order of the questions.

    Args:
        reports: with the secrets taken out.
        known: evidence that the page shows; the rest is named, not linked.
    """
    if not reports:
        return None
    cards, more = within([_card(r, known) for r in reports[:QUESTIONS]], _OTHERS_BYTES)
    left = more + max(0, len(reports) - QUESTIONS)
    note = "The page above is of the last diagnosis. This was asked in the same conversation, in this order."
    rest = tag("p", f"{left:,} further questions are in the JSON export.", class_="note") if left else None
    return joined(tag("p", note, class_="note"), *cards, rest)


def _card(report: Report, known: Collection[str]) -> Html:
    said = outline(report)
    asked = " ".join(report.question.split()) or "(no question)"
    status = tag("span", clipped(said.certainty, 80), class_=f"status {report.status.replace('_', '-')}")
    cause = [" ", tag("code", clipped(said.verdict, 120))] if said.title else []
    title = tag("p", tag("b", clipped(said.title, 300))) if said.title else None
    parts = [joined(tag("h4", s.title), words(s, known)) for s in said.sections if s.items and s.title not in _LEFT_OUT]
    return tag("article", tag("h3", clipped(asked, 600)), tag("p", status, *cause), title, *parts)


# ----------
# What to do: fixes with their diffs and commands, and from which checkpoint to start again.

FIXES, ORDERS, PATCHES, CHOICES, BEFORE = 12, 20, 12, 12, 12
DIFF_LINES, DIFF_WIDTH = 240, 240  # of one diff, of one line of it
_REPAIR_TEXT = 1_200
_CARD_BYTES, _DIFF_BYTES, _ORDER_BYTES = 700_000, 90_000, 30_000
_ROWS = {"+": "add", "-": "del", "@": "hunk", "\\": "hunk"}


def fixes(report: Report) -> Html | None:
    """Each repair with why, risk, diffs, commands, what to do by hand and how to verify it."""
    patches = {p.id: p for p in report.patches}
    cards = [_fix(n, f, patches, report.session) for n, f in enumerate(report.fixes[:FIXES], 1)]
    told = {p for f in report.fixes for p in f.patches}
    cards += [_patch(p) for p in report.patches if p.id not in told][:PATCHES]
    kept, more = within(cards, _CARD_BYTES)
    return joined(*kept, left_out(more + max(len(report.fixes) - FIXES, 0), "are")) if cards else None


def _fix(number: int, fix: ReportFix, patches: dict[str, Patch], session: str) -> Html:
    own = [patches[p] for p in fix.patches if p in patches]
    parts: list[Html | str | None] = [tag("h3", f"{number}. {clipped(one_line(fix.named), 300)}")]
    parts += [_said("Why", fix.why), _said("Risk", fix.risk)]
    parts += [_patch(p, fix) for p in own[:PATCHES]]
    parts.append(left_out(len(own) - PATCHES, "patches are"))
    if own and session:
        ids = " ".join(shlex.quote(p.id) for p in own[:PATCHES])
        set_of = "They belong together: apply all or none." if len(own) > 1 else ""
        parts += [tag("p", f"Look at it and apply it (doctor undo takes it back). {set_of}".strip())]
        parts += [command(f"doctor apply {shlex.quote(session)} {ids}")]
    orders, more = within([command(c) for c in fix.commands[:ORDERS]], _ORDER_BYTES)
    parts += [*orders, left_out(more + max(len(fix.commands) - ORDERS, 0), "commands are")]
    parts += [_by_hand(hand) for hand in fix.by_hand[:ORDERS]]
    parts.append(left_out(len(fix.by_hand) - ORDERS, "changes by hand are"))
    told = fix.verify and any(fix.verify in p.verify for p in own)
    return tag("article", *parts, None if told else _said("Then check", fix.verify))


def _by_hand(hand: ByHand) -> Html:
    """A change that no patch carries: where it goes, why there is none, and the text to put in, if it is known."""
    lead = "By hand" if hand.text else "No patch"
    where = f"{lead}{' in ' if hand.text else ' for '}{one_line(hand.where)}" if hand.where else lead
    why = f": {clipped(one_line(hand.why), _REPAIR_TEXT)}" if hand.why else None
    text = tag("pre", tag("code", clipped(hand.text, 4_000)), class_="cmd text") if hand.text else None
    return joined(tag("p", tag("b", clipped(where, 300)), why), text)


def _said(name: str, text: str) -> Html | None:
    return tag("p", tag("b", f"{name}: "), clipped(one_line(text), _REPAIR_TEXT)) if text else None


def _patch(patch: Patch, fix: ReportFix | None = None) -> Html:
    """A diff. Its lines keep their signs, so that no colour is needed to read it.

    Args:
        fix: that it belongs to, whose words are not said again.
    """
    told = {t.rstrip(".") for t in (fix.named, fix.why, fix.risk, fix.verify)} if fix else set()
    words = (patch.title, patch.why, patch.risk, patch.verify)
    title, why, risk, verify = ("" if t.rstrip(".") in told else t for t in words)
    lines = patch.diff.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    rows, more = within([_diff_row(line, n) for n, line in enumerate(lines[:DIFF_LINES])], _DIFF_BYTES)
    more += max(len(lines) - DIFF_LINES, 0)
    note = f"{more:,} more lines of this diff are in the JSON report." if more else None
    by = tag("p", "Proposed by the model, not by a tested recipe: read it, you are always asked.", class_="warn")
    edits = tag("ul", *(tag("li", clipped(one_line(e), 300)) for e in patch.edits[:ORDERS])) if patch.edits else None
    return tag(
        "div", tag("h4", f"{one_line(patch.id)}: {clipped(one_line(patch.file), 300)}"),
        by if patch.by == "model" else None, _said("What", title), _said("Why", why), edits,
        tag("div", *rows, class_="diff"), tag("p", note, class_="note") if note else None,
        _said("Risk", risk), _said("Then check", verify), class_="patch",
    )  # fmt: skip


def _diff_row(line: str, number: int) -> Html:
    kind = "hunk" if number < 2 and line.startswith(("--- ", "+++ ")) else _ROWS.get(line[:1], "same")
    ended = line.removesuffix("\r")  # of a file with such line ends every row would show it
    return tag("div", clipped(one_line(ended), DIFF_WIDTH), "\n", class_=kind)


def again(restart: Restart | None, advice: Section | None) -> Html | None:
    """Whether and from where to start again: a row for each checkpoint, and what came before.

    Args:
        advice: as the other forms of the report say it.
    """
    if restart is None:
        return None
    said = [tag("p", clipped(item.text, _REPAIR_TEXT)) for item in advice.items if not item.mark] if advice else []
    parts = said or [tag("p", _ADVICE[restart.advice])]
    if restart.lost_gpu_hours is not None and not restart.choices:
        parts.append(tag("p", f"{restart.lost_gpu_hours:,.1f} GPU-hours are lost."))
    if restart.choices:
        parts.append(_choices(restart.choices))
    if restart.before:
        items = [tag("li", _earlier(b)) for b in restart.before[:BEFORE]]
        parts += [tag("h3", "This has come before"), tag("ul", *items)]
        parts += [left_out(len(restart.before) - BEFORE, "are") or raw("")]
    return joined(*parts)


_ADVICE = {
    "restart": "The same job may be started again.",
    "restart_excluding": "The same job fails again on the same machine; elsewhere it may be started as it is.",
    "fix_first": "Repair it first: as it is, the job fails again.",
    "stop": "Going on as it is costs hours and cannot help.",
}


def _choices(choices: list[Choice]) -> Html:
    names = ("checkpoint", "step", "clean", "steps lost", "GPU-hours lost", "why")
    rows = [tag("tr", *(tag("th", n, scope="col") for n in names))]
    for c in choices[:CHOICES]:
        clean = {True: "yes", False: "no", None: "" if c.step == 0 else "not read"}[c.clean]
        hours = "" if c.lost_gpu_hours is None else f"{c.lost_gpu_hours:,.1f}"
        cells = (_count(c.step), clean, _count(c.lost_steps), hours, clipped(one_line(c.why), 300))
        head = tag("th", clipped(one_line(c.checkpoint), 300), scope="row")
        rows.append(tag("tr", head, *(tag("td", cell) for cell in cells)))
    best, _ = within([command(c) for c in choices[0].resume[:ORDERS]], _ORDER_BYTES)
    how = joined(tag("p", "To go on from the first of them:"), *best) if best else None
    return joined(tag("div", tag("table", *rows), class_="wide"), left_out(len(choices) - CHOICES, "are"), how)


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _earlier(b: Before) -> str:
    same = f"same {' and '.join(b.same)}" if b.same else ""
    nodes = f"on {', '.join(b.nodes[:8])}" if b.nodes else ""
    what = f"{b.cause} ({b.status.replace('_', ' ')})"
    parts = (b.time, what, same, nodes, f"session {b.session}" if b.session else "")
    return clipped(one_line(", ".join(p for p in parts if p)), 400)


# ----------

MARKER = PAGE.decode()
_OWN = {"Evidence", "How it went", "Also considered", "What to do", "Starting again"}  # made here in another way


def as_html(report: Report, workspace: Workspace | None = None, others: Sequence[Report] = ()) -> str:
    """A report as one page with nothing outside of it: no script, no link but to itself, no secret.

    Args:
        workspace: the run's files, for the lines around the evidence and for the plots; without it both are left out.
        others: of the same conversation, in their order; they are told in short, below.
    """
    redactor, found = Redactor(), shown(report)
    seen = windows(workspace, found.cited) if workspace else []
    spans = list({id(w.span): w.span for w in seen}.values())
    told = found.told
    beyond = [*told[len(found.cited) :], *(e for r in others for e in r.evidence)]
    further = nearby(workspace, beyond) if workspace else ()
    part = report.model_copy(update={"evidence": told})
    [clean, *beside], texts = without_secrets([part, *others], [*(s.text for s in spans), *further], redactor)
    for span, text in zip(spans, texts, strict=False):
        span.text = text
    found = found.exchanged({id(e): c for e, c in zip(told, clean.evidence, strict=True)})
    plots = figures(report, workspace, redactor) if workspace else []
    return _page(clean, found, seen, plots, beside)


def _page(report: Report, found: Shown, seen: list[Window], plots: list[Figure], beside: list[Report]) -> str:
    said = outline(report)
    parts = _parts(report, said, found, seen, plots)
    parts.append(("others", "Also asked", asked_beside(beside, found.anchors)))
    links = [tag("a", title, href=f"#{ident}") for ident, title, content in parts if content]
    sections = [tag("section", tag("h2", title), content, id=ident) for ident, title, content in parts if content]
    body = tag("body", verdict(report, said), tag("nav", *links), tag("main", *sections), _footer(report, said, seen))
    title = clipped(f"{said.verdict} ({said.certainty})", 200)
    head = tag(
        "head", tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"), tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content="doctor"), tag("title", title), tag("style", raw(STYLE)),
    )  # fmt: skip
    return f"{MARKER}{tag('html', head, body, lang='en').text}\n"


def _parts(
    report: Report, said: Outline, found: Shown, seen: list[Window], plots: list[Figure]
) -> list[tuple[str, str, Html | None]]:
    """Sections in order, each with its anchor and title; those without content are None."""
    known = found.anchors
    titled = {s.title: s for s in said.sections}
    first = titled.get("What happened") or titled.get("Answer")
    parts: list[tuple[str, str, Html | None]] = []
    if first is not None:
        parts.append(("story", first.title, words(first, known)))
    curves = tag("div", *map(drawn, plots), class_="plots") if plots else None
    parts += [
        ("curves", "Curves", curves),
        ("chain", "How it went", chain(report, known)),
        ("fixes", "What to do", fixes(report)),
        ("again", "Starting again", again(report.restart, titled.get("Starting again"))),
        ("evidence", "Evidence", evidence(found, seen) if report.evidence else None),
        ("rivals", "What was ruled out" if report.status == "confirmed" else "Also considered", rivals(report, known)),
    ]
    rest = [s for s in said.sections if s is not first and s.title not in _OWN]
    return [*parts, *((f"more{n}", s.title, words(s, known)) for n, s in enumerate(rest, 1))]


def _footer(report: Report, said: Outline, seen: list[Window]) -> Html:
    lines = [tag("p", clipped(line, 1_000)) for line in said.footer[:40]]
    without = [] if seen or not report.evidence else [tag("p", "The lines around the evidence could not be read.")]
    return tag("footer", tag("hr"), *lines, *without)
