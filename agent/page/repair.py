"""What to do: fixes with their diffs and commands, and from which checkpoint to start again."""

from __future__ import annotations

import shlex

from ..outline import Section
from ..report import Before, ByHand, Choice, Patch, Report, ReportFix, Restart
from ..sanitize import one_line
from .markup import Html, clipped, joined, raw, tag, within
from .story import command, left_out

FIXES, ORDERS, PATCHES, CHOICES, BEFORE = 12, 20, 12, 12, 12
DIFF_LINES, DIFF_WIDTH = 240, 240  # of one diff, of one line of it
_TEXT = 1_200
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
    why = f": {clipped(one_line(hand.why), _TEXT)}" if hand.why else None
    text = tag("pre", tag("code", clipped(hand.text, 4_000)), class_="cmd text") if hand.text else None
    return joined(tag("p", tag("b", clipped(where, 300)), why), text)


def _said(name: str, text: str) -> Html | None:
    return tag("p", tag("b", f"{name}: "), clipped(one_line(text), _TEXT)) if text else None


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
    said = [tag("p", clipped(item.text, _TEXT)) for item in advice.items if not item.mark] if advice else []
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
