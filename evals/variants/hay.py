"""Bury an incident in ordinary lines, or among the logs of healthy ranks; what is right does not change by it.

Ordinary lines stand before the first line of a log that speaks of trouble (where none does, anywhere), never within a
block of lines that belong together and never beside a deciding line. Step lines lie on the way between the two of the
log around them; the others are what such a framework prints in debug mode (`ordinary.yaml`). Stamps go on from the
line before to the line after. Order and text of the incident's own lines stay.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ...agent.core.errors import UsageError
from ..case import Case
from . import ranks
from .stamps import between, stamp
from .steps import refined

LOGS = (".log", ".out", ".err")
POOL = 20_000  # different ordinary lines; more are these again
TROUBLE = re.compile(
    r"Traceback|Error\b|ERROR|Exception|[Ff]atal|FATAL|[Ff]ailed|FAILED|[Kk]illed|[Aa]bort|Segmentation"
    r"|[Tt]ime(?:d )?out|\bnan\b|\bNaN\b|\binf\b|OOM|out of memory|SIG[A-Z]{3,}|[Ww]atchdog|[Aa]ssert"
    r"|core dumped|CRITICAL"
)
_BELONGS = re.compile(r"^(?:\s|[})\]|+=*#>-]|$)|[\r\x1b]")  # goes on with the line before
_OPEN = re.compile(r"[:,({\[\\|]\s*$|^\s*$|^[|+=*-]")  # goes on in the line behind
_SIZE = re.compile(r"(\d+)(x|MB|GB|ranks)", re.IGNORECASE)


def bury(case: Case, size: str, into: Path) -> Case | None:
    """The case with its files in a folder that does not exist yet; None where it has no log, or knows no ranks.

    Args:
        size: `100x` of what its logs hold, `20MB`, `1GB`, or `1024ranks`.

    Raises:
        UsageError: no such size.
    """
    number, unit = parsed(size)
    logs = _logs(case.files)
    if not logs or (unit == "ranks" and not ranks.known(case.files, logs)):
        return None
    shutil.copytree(case.folder, into, symlinks=True, ignore=lambda _, names: {"incident.yaml"} & set(names))
    buried = replace(case, folder=into)
    logs = _logs(buried.files)
    if unit == "ranks":
        ranks.add(buried, logs, number, TROUBLE)
        return buried
    held = sum(p.stat().st_size for p in logs)
    more = held * (number - 1) if unit == "x" else number * 10 ** (6 if unit == "mb" else 9) - held
    pool = ordinary(case, _words(logs)) if more > 0 else []
    for log in logs if more > 0 else ():
        _fill(buried, log, more * log.stat().st_size // max(held, 1), pool)
    return buried


def parsed(size: str) -> tuple[int, str]:
    """Number and unit (`x`, `mb`, `gb`, `ranks`) of a size.

    Raises:
        UsageError: it is none.
    """
    m = _SIZE.fullmatch(size.strip())
    if m is None or not int(m[1]):
        raise UsageError(f"no such size: {size}", "sizes are like 100x, 20MB, 1GB or 1024ranks")
    return int(m[1]), m[2].lower()


def _logs(files: Path) -> list[Path]:
    """The logs of a run that are text; where it has none, its largest other text."""
    found = [p for p in sorted(files.rglob("*")) if p.is_file() and not p.is_symlink() and p.stat().st_size]
    logs = [p for p in found if p.suffix in LOGS or p.name.startswith("slurm-")]
    logs = logs or sorted((p for p in found if p.suffix == ".txt"), key=lambda p: p.stat().st_size)[-1:]
    return [p for p in logs if b"\0" not in p.read_bytes()[:4096]]


@cache
def _table() -> dict[str, Any]:
    return yaml.safe_load(Path(__file__).with_name("ordinary.yaml").read_text(encoding="utf-8"))


def _words(logs: Sequence[Path]) -> str:
    return "\n".join(p.read_text(encoding="utf-8", errors="replace")[:200_000] for p in logs)


def ordinary(case: Case, text: str, count: int = POOL) -> list[str]:
    """Lines that a healthy job of this framework prints, always the same for an incident."""
    forms = [
        line
        for row in _table().values()
        if not row["needs"] or any(word in text for word in row["needs"])
        for line in row["lines"]
    ]
    chance = random.Random(case.id)
    return [
        chance.choice(forms).format(
            n=n, r=chance.randrange(8), d=chance.randrange(1, 9999), h=f"{chance.getrandbits(40):010x}",
            f=f"{chance.uniform(0.2, 90):.2f}",
        )
        for n in range(count)
    ]  # fmt: skip


def _fill(case: Case, log: Path, more: int, pool: Sequence[str]) -> None:
    """Put about `more` bytes of ordinary lines between the lines of a log."""
    name = log.relative_to(case.files).as_posix()
    old = log.read_bytes().decode("utf-8", "surrogateescape").split("\n")
    places = gaps(old, [m.text for m in case.marks if m.file == name])
    each, line_at = max(more // len(places), 1), 0
    with log.open("w", encoding="utf-8", errors="surrogateescape", newline="") as out:
        for i, line in enumerate(old):
            if i in places:
                line_at = _write(out, old, i, each, pool, line_at)
            out.write(line if i == len(old) - 1 else f"{line}\n")


def _write(out: Any, old: Sequence[str], i: int, size: int, pool: Sequence[str], at: int) -> int:
    """Ordinary lines of `size` bytes ahead of line `i`; returns how far the pool was read."""
    before = next((x for x in reversed(old[:i]) if stamp(x)), None)
    after = next((x for x in old[i:] if stamp(x)), None)
    show = between(before, after)
    stamped = len(show(0.0))
    steps = list(refined(old[i - 1], old[i])) if i else []
    lines = max((size - sum(map(len, steps))) // (80 + stamped), 1)
    every = max(lines // (len(steps) + 1), 1)
    waiting: Iterator[str] = iter(steps)
    for k in range(lines):
        if steps and k % every == every - 1 and (step := next(waiting, None)) is not None:
            out.write(f"{step}\n")
        text = pool[(at + k) % len(pool)]
        out.write(f"{show((k + 1) / (lines + 1)) if stamped else ''}{text}\n")
    for step in waiting:
        out.write(f"{step}\n")
    return at + lines


def gaps(lines: Sequence[str], marks: Sequence[str]) -> set[int]:
    """Numbers of the lines ahead of which ordinary lines may stand; the very top where there is no other place."""
    end = next((i for i, line in enumerate(lines) if TROUBLE.search(line)), len(lines) - 1)
    decides = {i for i, line in enumerate(lines) if any(text in line for text in marks)}
    found = {
        i
        for i in range(1, end + 1)
        if i < len(lines)
        and not _BELONGS.search(lines[i])
        and not _OPEN.search(lines[i - 1])
        and not {i - 1, i} & decides
    }
    return found or {0}
