"""The stamps of a log: in what form they stand in front of its lines, and the same form for times between two lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

# Front of a line up to and with the stamp; what follows it up to the text is taken over as it is.
_FORMS = (
    (re.compile(r"^(\[?)(\d{4}-\d\d-\d\d)([ T])(\d\d:\d\d:\d\d)((?:[.,]\d{1,6})?)(Z?)(\]?)"), "%Y-%m-%d"),
    (re.compile(r"^(\[?)(\d{4}/\d\d/\d\d)([ T])(\d\d:\d\d:\d\d)((?:[.,]\d{1,6})?)(Z?)(\]?)"), "%Y/%m/%d"),
    (re.compile(r"^(\[?)()()(\d\d:\d\d:\d\d)((?:[.,]\d{1,6})?)(Z?)(\]?)(?=\s)"), ""),
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """A stamp as it stands at the front of a line, and the time it says."""

    time: datetime
    show: Callable[[datetime], str]


def stamp(line: str) -> Stamp | None:
    """The stamp at the front of a line; None where there is none of a known form."""
    for form, date in _FORMS:
        if m := form.match(line):
            day = m[2] or "2000-01-01"
            try:
                time = datetime.strptime(f"{day} {m[4]}", f"{date or '%Y-%m-%d'} %H:%M:%S")
            except ValueError:
                return None
            digits = m[5][1:]
            time += timedelta(microseconds=int(digits.ljust(6, "0")) if digits else 0)
            return Stamp(time, _shown(m, date))
    return None


def _shown(m: re.Match[str], date: str) -> Callable[[datetime], str]:
    mark, width = m[5][:1], len(m[5]) - 1

    def show(time: datetime) -> str:
        part = f"{mark}{time.microsecond:06d}"[: width + 1] if mark else ""
        return f"{m[1]}{time.strftime(date) if date else ''}{m[3]}{time:%H:%M:%S}{part}{m[6]}{m[7]}"

    return show


def between(before: str | None, after: str | None) -> Callable[[float], str]:
    """Stamps for lines between two lines: `share` of the way from one to the other. No stamps where neither has one."""
    first, last = stamp(before or ""), stamp(after or "")
    known = first or last
    if known is None:
        return lambda share: ""
    start, end = (first or known).time, (last or known).time
    span = max(end - start, timedelta(0))
    return lambda share: known.show(start + span * share) + " "
