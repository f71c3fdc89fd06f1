"""How long the batch was that failed: the lengths that progress lines print, the last held against those before."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .files import Line

LENGTH = re.compile(
    r"\b(?:num_|n_|max_|input_|padded_|total_)?(?:tokens?|seq(?:uence)?s?(?:[ _]?len(?:gth)?s?)?|len(?:gth)?s?|"
    r"frames|shape|padded(?: to)?|width)\b['\"]?\s{0,2}[:=]?\s{0,2}(?:torch\.Size)?[(\[\s]{0,3}"
    r"(?P<sizes>\d{1,9}(?:\s{0,2}[x\u00d7,]\s{0,2}\d{1,9}){0,3})",
    re.IGNORECASE,
)
LEAST = 3  # lines before the last one that show what is usual
OUTLYING = 4.0  # times the longest that was seen before


def outlying(lines: Sequence[Line], at: int) -> tuple[Line, int, int] | None:
    """The last batch's line and length before line `at`, where it is far longer than all that were told before.

    The third is the longest of those, which passed.

    Lines are compared that name the length in the same words; of several sizes the greatest counts.
    """
    series: dict[str, list[tuple[Line, int]]] = {}
    for line in lines[:at]:
        for m in LENGTH.finditer(line.text[:400]):
            name = re.sub(r"[\W\d]+", " ", m[0][: m.start("sizes") - m.start()]).strip().lower()
            series.setdefault(name, []).append((line, max(int(n) for n in re.findall(r"\d+", m["sizes"]))))
    for told in series.values():
        before = [size for _, size in told[:-1]]
        line, last = told[-1]
        if len(before) >= LEAST and last > OUTLYING * max(before) > 0:
            return line, last, max(before)
    return None
