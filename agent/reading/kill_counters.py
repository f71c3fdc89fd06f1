"""Readings of the kernel's counter of memory kills: did it move while the job ran?

`grep oom_kill /proc/vmstat` and `memory.events` of a control group print `oom_kill N`; scripts note it before and
after. A counter that stands where it stood says that nobody was killed for memory in between. A control group's own
counter, printed with its name, starts at zero with the group: one reading tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .anchor_lines import Hit

COUNTER = re.compile(r"^\s*oom_kill[\s:=]+(\d{1,9})\s*$")
OF_GROUP = re.compile(r"\bmemory\.(?:oom_control|events(?:\.local)?)\b.{0,200}?\boom_kill[\s:=]+([1-9]\d{0,8})\b")


def kills_between(hits: Iterable[Hit]) -> list[tuple[Hit, int]]:
    """The last reading of each file that holds several, and by how much it is above the first one."""
    read: dict[str, list[tuple[Hit, int]]] = {}
    for hit in hits:
        if m := COUNTER.match(hit.text):
            read.setdefault(hit.file.name, []).append((hit, int(m[1])))
    return [(told[-1][0], told[-1][1] - told[0][1]) for told in read.values() if len(told) > 1]


def kills_of_group(hits: Iterable[Hit]) -> list[tuple[Hit, int]]:
    """Readings of a control group's own counter that count a kill."""
    return [(hit, int(m[1])) for hit in hits if (m := OF_GROUP.search(hit.text))]
