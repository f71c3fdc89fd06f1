"""An alarm in words: one line for people, one object for programs."""

from __future__ import annotations

import json
from collections import Counter

from ..sanitize import one_line
from .alarm import Alarm
from .kinds import KINDS

_WIDE = 18


def line_of(alarm: Alarm, named: bool) -> str:
    """`18:03:12 alarm  loss_nan  rank 3  step 4012  loss is nan (train.log:812)`; `named`: with the run it is of."""
    grave = "earlier" if alarm.earlier else alarm.severity
    where = [f"rank {alarm.rank}"] if alarm.rank is not None else []
    where += [f"step {alarm.step:.12g}"] if alarm.step is not None else []
    place = alarm.file + (f":{alarm.line}" if alarm.line is not None else "")
    parts = [f"{alarm.time[11:19]} {grave:<7} {alarm.kind:<{_WIDE}}", *where]
    parts.append(alarm.text + (f"; usual: {alarm.usual}" if alarm.usual else "") + (f" ({place})" if place else ""))
    if alarm.again:
        parts.append("again")
    if named:
        parts.insert(1, alarm.run)
    return one_line("  ".join(parts))


def advice_of(alarm: Alarm) -> str:
    """What to do next, for the first alarm of its kind."""
    return f"{'':>9}-> {KINDS[alarm.kind].next}"


def json_of(alarm: Alarm) -> str:
    """The object of `--json`: ASCII, on one line."""
    return json.dumps(alarm.plain(), allow_nan=False)


def summary_of(counts: Counter[tuple[str, str]]) -> str:
    """How it went."""
    alarms = sum(n for (_, severity), n in counts.items() if severity == "alarm")
    notices = sum(counts.values()) - alarms
    kinds = ", ".join(sorted({kind for kind, severity in counts if severity == "alarm"}))
    told = f"{alarms} alarm{'s' if alarms != 1 else ''}" + (f" ({kinds})" if kinds else "")
    return f"{told}, {notices} notice{'s' if notices != 1 else ''}"
