"""Time stamps of log lines: read where they stand, and compared only where that means something.

A stamp may know the whole date, month and day only (glog, syslog), the time of day only, or seconds since boot.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Literal

Kind = Literal["date", "day", "clock", "uptime"]

_MONTHS = {
    m: i for i, m in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1)
}
_CLOCK = r"(?P<h>[01]\d|2[0-4]):(?P<mi>[0-5]\d):(?P<s>[0-6]\d)(?:[.,:](?P<f>\d{1,9}))?"
_SHAPES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    (
        "date",
        re.compile(
            r"(?<!\d)(?P<y>(?:19|20)\d\d)[-/](?P<mo>\d\d)[-/](?P<d>\d\d)[T _]"
            + _CLOCK
            + r"(?:\s?(?P<z>Z|UTC|[+-]\d\d:?\d\d)(?![\d:]))?"
        ),
    ),
    (
        "date",
        re.compile(
            r"(?P<name>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) (?P<d>[ \d]\d) "
            + _CLOCK
            + r" (?P<y>(?:19|20)\d\d)"
        ),
    ),
    ("day", re.compile(r"(?:^|[\[\s:])(?P<level>[IWEFVC])(?P<mo>\d\d?)(?P<d>\d\d) " + _CLOCK)),
    ("day", re.compile(r"(?P<name>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) (?P<d>[ \d]\d) " + _CLOCK)),
    ("day", re.compile(r"(?:^|\s|\[)(?P<mo>\d\d)[-/](?P<d>\d\d)(?:[-/]\d\d)? " + _CLOCK)),
    ("uptime", re.compile(r"^\[ *(?P<up>\d{1,9}\.\d{3,9})\]")),
    ("clock", re.compile(r"(?:^|[\[\s(])" + _CLOCK + r"(?=$|[\]\s),|])")),
)
LOOK = 160  # characters of a line in which its stamp must start


@dataclass(frozen=True, slots=True)
class Stamp:
    """When a line was written, as far as it says.

    `value` is seconds: since 1970 (date, UTC where a zone is given, otherwise as printed), since the start of a
    leap year (day), since midnight (clock), since boot (uptime). `text` is the stamp as printed, glog's without its
    level: `E1122 19:00:46` is told as `11-22 19:00:46`.
    """

    kind: Kind
    value: float
    text: str


def stamp_of(text: str) -> Stamp | None:
    """The first time stamp near the start of a line; progress bars (`[41:20<1:31:40`) are none."""
    head = text[:LOOK]
    if ":" not in head and not head.startswith("["):
        return None
    for kind, shape in _SHAPES:
        m = shape.search(head)
        if m and (found := _read(kind, m)) is not None:
            return found
    return None


def _read(kind: Kind, m: re.Match[str]) -> Stamp | None:
    g = m.groupdict()
    text = m[0].strip(" [](:")
    if g.get("level"):
        text = f"{g['mo']:0>2}-{g['d']} {text.partition(' ')[2]}"  # the level is no part of the time
    if kind == "uptime":
        return Stamp(kind, float(g["up"]), text)
    day = int(g["h"]) * 3600 + int(g["mi"]) * 60 + int(g["s"]) + float(f"0.{g['f']}" if g.get("f") else 0)
    if kind == "clock":
        return Stamp(kind, day, text)
    month = _MONTHS[g["name"]] if g.get("name") else int(g["mo"])
    try:
        midnight = datetime(int(g.get("y") or 2000), month, int(g["d"]), tzinfo=_zone(g.get("z")))
    except ValueError:
        return None
    start = datetime(1970 if kind == "date" else 2000, 1, 1, tzinfo=UTC)
    return Stamp(kind, (midnight - start).total_seconds() + day, text)


def _zone(text: str | None) -> timezone:
    if not text or text in ("Z", "UTC"):
        return UTC
    sign = -1 if text[0] == "-" else 1
    digits = text[1:].replace(":", "")
    minutes = int(digits[:2]) * 60 + int(digits[2:])
    return timezone(sign * timedelta(minutes=min(minutes, 1439)))


def earlier(one: Stamp | None, other: Stamp | None) -> bool | None:
    """Whether `one` comes before `other`; None where the two cannot be compared (or are the same moment)."""
    if one is None or other is None:
        return None
    a, b = _comparable(one, other)
    return None if a is None or b is None or a == b else a < b


def _comparable(one: Stamp, other: Stamp) -> tuple[float | None, float | None]:
    if one.kind == other.kind:
        return one.value, other.value
    kinds = {one.kind, other.kind}
    if kinds == {"date", "day"}:
        return _in_year(one), _in_year(other)
    if "uptime" in kinds:
        return None, None
    return None, None  # a bare time of day says nothing about the day


def _in_year(stamp: Stamp) -> float:
    if stamp.kind == "day":
        return stamp.value
    when = datetime.fromtimestamp(stamp.value, UTC)
    return (when.replace(year=2000) - datetime(2000, 1, 1, tzinfo=UTC)).total_seconds()


def from_epoch(seconds: float) -> Stamp | None:
    """A stamp from seconds since 1970 (as torchelastic's error.json holds them)."""
    try:
        when = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None
    return Stamp("date", seconds, when.isoformat(timespec="seconds"))
