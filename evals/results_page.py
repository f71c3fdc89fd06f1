"""An evaluation as one HTML page: totals, confusion by family and by cause, reliability, the misses.

The page stands alone: no script, nothing is loaded, no link leads anywhere. All texts are escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from html import escape

from . import compare, reliability
from .score import HEALTHY, INSUFFICIENT, Score
from .table import cell, grouped, summary

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1c1c1c; background: #fff;
  max-width: 75em; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; margin: .6em 0 }
th, td { padding: .2em .6em; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left }
th { font-weight: 600 } td.hit { background: #d9efdc } td.off { background: #f6d8d3 }
.wide { overflow-x: auto } code { font-size: 13px } ul { padding-left: 1.2em }
.matrix td, .matrix th { padding: .15em .4em; font-size: 13px }
.matrix th.up { writing-mode: vertical-rl; text-align: left }
svg text { font: 12px system-ui, sans-serif; fill: currentColor }
@media (prefers-color-scheme: dark) { body { color: #e6e6e6; background: #16181b }
  th, td { border-color: #3a3d42 } td.hit { background: #1f4a2a } td.off { background: #5a2620 } }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_SHARES = ("incidents", "exact", "lenient", "top3", "evidence_recall", "evidence_precision", "fix", "brier", "ece",
           "false_alarms", "abstained_rightly", "abstained_wrongly", "invented", "seconds_median")  # fmt: skip
_SIZE, _EDGE = 320, 40


def page(scores: Sequence[Score], title: str = "Evaluation", changes: compare.Changes | None = None) -> str:
    """The page as text.

    Args:
        changes: what got better and worse since an earlier evaluation.
    """
    scores = list(scores)
    order = {"easy": 0, "medium": 1, "hard": 2}
    difficulty = sorted(grouped(scores, lambda s: s.difficulty).items(), key=lambda kv: order.get(kv[0], 9))
    rows = [("all", scores), *difficulty, *grouped(scores, lambda s: s.family).items()]
    parts = [
        f"<h1>{escape(title)}</h1>",
        _totals(rows),
        *([_changes(changes)] if changes else []),
        "<h2>Confidences</h2>",
        _reliability(scores),
        "<h2>Confusion by family</h2><p>Rows: what was right. Columns: what was said. An abstention is no family.</p>",
        _matrix(scores, _family),
        "<h2>Confusion by cause</h2><p>Only causes that were missed or wrongly named.</p>",
        _matrix([s for s in scores if not s.exact], lambda cause: cause),
        "<h2>Misses</h2>",
        _misses(scores),
    ]
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    body = "\n".join(parts)
    head += f"<title>{escape(title)}</title><style>{STYLE}</style>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def _totals(rows: Iterable[tuple[str, list[Score]]]) -> str:
    head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in _SHARES)
    lines = []
    for name, group in rows:
        t = summary(group)
        lines.append(f"<tr><td>{escape(name)}</td>{''.join(f'<td>{cell(t[n])}</td>' for n in _SHARES)}</tr>")
    return f'<div class="wide"><table><tr><th></th>{head}</tr>{"".join(lines)}</table></div>'


def _changes(found: compare.Changes) -> str:
    lists = "".join(
        f"<h3>{title}</h3><ul>{''.join(f'<li><code>{escape(row)}</code></li>' for row in rows)}</ul>"
        for title, rows in (("Better", found.better), ("Worse", found.worse), ("Other", found.other))
        if rows
    )
    first = escape(compare.as_lines(found)[0])
    return f"<h2>Since the baseline</h2><p>{first}</p>{lists}"


def _family(cause: str) -> str:
    return cause if cause in (HEALTHY, INSUFFICIENT) else cause.partition(".")[0]


def _matrix(scores: Sequence[Score], of: Callable[[str], str]) -> str:
    """A table of right against said. Where several causes are right, the row is that of the one said, or the first."""
    counts: Counter[tuple[str, str]] = Counter()
    for s in scores:
        said = of(s.said) if s.said else "no answer"
        right = said if s.exact else of(s.expected[0])
        counts[right, said] += 1
    rows = sorted({right for right, _ in counts})
    columns = sorted({said for _, said in counts})
    if not rows:
        return "<p>None.</p>"
    head = "".join(f'<th class="up">{escape(c)}</th>' for c in columns)
    lines = []
    for right in rows:
        cells = []
        for said in columns:
            n = counts[right, said]
            kind = ' class="hit"' if n and said == right else ' class="off"' if n else ""
            cells.append(f"<td{kind}>{n or ''}</td>")
        lines.append(f"<tr><th>{escape(right)}</th>{''.join(cells)}</tr>")
    return f'<div class="wide"><table class="matrix"><tr><th></th>{head}</tr>{"".join(lines)}</table></div>'


def _reliability(scores: Sequence[Score]) -> str:
    """Share of right verdicts by stated confidence, as a picture and a table; the diagonal is perfect."""
    found = reliability.bins(scores)
    most = max((b.n for b in found), default=1)

    def at(x: float, y: float) -> tuple[float, float]:
        return round(_EDGE + x * _SIZE, 1), round(_EDGE / 2 + (1 - y) * _SIZE, 1)

    parts = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        (x, low), (_, y) = at(tick, 0), at(0, tick)
        parts.append(f'<text x="{x}" y="{low + 16}" text-anchor="middle">{tick}</text>')
        parts.append(f'<text x="{_EDGE - 6}" y="{y + 4}" text-anchor="end">{tick}</text>')
    (x0, y0), (x1, y1) = at(0, 0), at(1, 1)
    parts.append(
        f'<rect x="{x0}" y="{y1}" width="{_SIZE}" height="{_SIZE}" fill="none" stroke="currentColor" opacity=".4"/>'
    )
    parts.append(f'<line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" stroke="currentColor" stroke-dasharray="4 4"/>')
    for b in found:
        x, y = at(b.confidence, b.right)
        radius = round(4 + 10 * (b.n / most) ** 0.5, 1)
        said = f"{b.low:.1f} to {b.high:.1f}: {b.n} verdicts, stated {b.confidence:.2f}, right {b.right:.2f}"
        parts.append(
            f'<circle cx="{x}" cy="{y}" r="{radius}" fill="#3b6fb6" opacity=".75"><title>{said}</title></circle>'
        )
    wide, high = _SIZE + 2 * _EDGE, _SIZE + int(1.5 * _EDGE)
    rows = "".join(
        f"<tr><td>{b.low:.1f} to {b.high:.1f}</td><td>{b.n}</td><td>{b.confidence:.2f}</td><td>{b.right:.2f}</td></tr>"
        for b in found
    )
    figures = (
        f"Expected calibration error {cell(reliability.ece(found))}, Brier score {cell(reliability.brier(scores))}."
    )
    return (
        f'<svg role="img" aria-label="share of right verdicts by stated confidence" width="{wide}" height="{high}" '
        f'viewBox="0 0 {wide} {high}">{"".join(parts)}</svg><p>{figures} Across: stated; up: right; size: how many.</p>'
        f"<table><tr><th>stated</th><th>n</th><th>mean</th><th>right</th></tr>{rows}</table>"
    )


def _misses(scores: Sequence[Score]) -> str:
    rows = []
    for s in (s for s in scores if not s.exact):
        said = s.error or f"{s.said} ({s.status}, {s.confidence:.2f})"
        then = f"; then {', '.join(s.top[1:])}" if len(s.top) > 1 else ""
        kind = "acceptable" if s.lenient else "right one among the first three" if s.top3 else "wrong"
        lines = "".join(f"<li>not cited: <code>{escape(m)}</code></li>" for m in s.missed_marks)
        rows.append(
            f"<li><b>{escape(s.id)}</b> ({escape(s.difficulty)}, {kind}): said {escape(said)}; expected "
            f"{escape(' or '.join(s.expected))}{escape(then)}{f'<ul>{lines}</ul>' if lines else ''}</li>"
        )
    return f"<ul>{''.join(rows)}</ul>" if rows else "<p>None.</p>"
