"""Evidence in sentences. Each sentence quotes what it cites, so that it passes the gate by construction."""

from __future__ import annotations

import math
from collections.abc import Iterable

from .report import Sentence
from .types import Evidence

# What says more as a sentence of its own than as place and quotation.
IN_WORDS = {
    "stack.group": "{value}.",
    "stack.rank_odd_one_out": "Rank {value} stands elsewhere than the others: {quote}.",
    "flight.rank_behind": "Rank {value} is behind the others: {quote}.",
    "skew.slow_rank": "Rank {value} is the slow one: {quote}.",
}
# Here the line says it all: the number only repeats it, or is how a tool ranked the line.
_NUMBER_UNTOLD = ("error.", "settings.", "log.")
QUOTE = 180  # characters of a line that a sentence quotes


def place(e: Evidence) -> str:
    """Where a piece of evidence stands: `logs/rank3.log:812`, a command, or the tool that looked."""
    if e.file and e.line:
        return f"{e.file}:{e.line}"
    return e.file or " ".join(e.argv or ()) or e.tool


def quote(text: str, limit: int = QUOTE) -> str:
    """A line between curly quotes, cut at a word with an ellipsis."""
    text = " ".join(text.split())
    if len(text) > limit:
        text = text[:limit].rsplit(" ", 1)[0] + "\u2026"
    return f"\u201c{text}\u201d"


def sentence(e: Evidence) -> Sentence:
    """One observed fact in words, with its citation."""
    name = e.key.replace("_", " ").replace(".", " ")
    if e.kind == "absent":
        looked = ", ".join((e.searched or [])[:3])
        return Sentence(text=f"{e.key} is not set anywhere{f' in {looked}' if looked else ''}.", cites=[e.id])
    shown = quote(e.text) if e.text.strip() else ""
    value = e.value
    if e.key in IN_WORDS and (shown or "{quote}" not in IN_WORDS[e.key]):
        return Sentence(text=IN_WORDS[e.key].format(value=value, quote=shown), cites=[e.id])
    tells = isinstance(value, int | float) and not isinstance(value, bool) and not e.key.startswith(_NUMBER_UNTOLD)
    lead = f"{name} {_number(value)}" if tells else ""
    middle = f"{lead}: {shown}" if lead and shown else lead or shown or name
    return Sentence(text=f"{place(e)}: {middle}", cites=[e.id])


def _number(value: object) -> str:
    """A number as people read it. A rounded one keeps a decimal, so that the gate knows how far it may be off."""
    if not isinstance(value, float) or not math.isfinite(value):
        return str(value)
    if 1000 <= abs(value) < 1e6:
        return f"{value:.1f}"
    text = f"{value:.4g}" if abs(value) < 1e6 else f"{value:.3e}"
    whole = "." not in text and "e" not in text and not value.is_integer()
    return f"{text}.0" if whole else text


def listing(evidence: Iterable[Evidence], limit: int) -> list[Sentence]:
    """One sentence for each line that is cited, however many keys it carries."""
    seen: set[object] = set()
    out = []
    for e in evidence:
        where = (e.file, e.line) if e.line else e.key
        if where in seen:
            continue
        seen.add(where)
        out.append(sentence(e))
        if len(out) == limit:
            break
    return out
