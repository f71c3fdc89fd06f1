"""Limits that the run's own scripts put on it: a command that ends it after a time, a loop that kills what is quiet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .files import Line, RunFile
from .logpass import logpass

if TYPE_CHECKING:
    from ..workspace import Workspace

MOST = 256 << 10  # bytes of a script that are read
SAID_BEFORE = 6  # lines above a kill in which the script says what it is about to do
TIMEOUT = re.compile(
    r"(?:^|[\s;&|(`\"'/])timeout\s+(?:(?:-[sk]|--signal|--kill-after)[ =]?\s*\S+\s+|-{1,2}[\w-]+(?:=\S+)?\s+)*[\"']?"
    r"(?P<limit>\$\{?\w+\}?|\d+(?:\.\d+)?[smhd]?)[\"']?\s+(?P<command>\S.*)$"
)
LAUNCHES = re.compile(
    r"python|torchrun|accelerate|deepspeed|srun|mpirun|composer|\.py\b|\.sh\b|\$[{(]?\w*(?:cmd|command)", re.I
)
ENDED_124 = re.compile(r"(?i)(?:status|code|rc|exit\w*|with|returned|ended)\W{0,4}(?:status|code)?\W{0,3}\b124\b(?!\w)")
KILLS = re.compile(
    r"(?:^|[\s;&|(])(?:kill|pkill|killall)\s+(?!-0\b)\S|\bscancel\s+\S|os\.kill(?:pg)?\(|\.(?:kill|terminate|send_signal)\(|"
    r"kubectl delete pod"
)
TRIED = re.compile(r"kill\s+-0\b|,\s*0\s*\)")  # looks whether a process is there
SAYS = re.compile(
    r"\b(?:echo|printf|logger|print|log(?:ger|ging)?\.\w+)\b[^\"']{0,20}(?P<q>[\"'])(?P<text>.+?)(?P=q)\s*\)?\s*(?:>|$)"
)
FILLED = re.compile(r"\$\([^()]*(?:\([^()]*\)[^()]*)*\)|\$\{[^}]*\}|\$\w+|\{[^{}]*\}|%[-\d.]*[sdf]|\\[nt]")
LOOPS = re.compile(r"(?m)^\s*(?:while|until|for)\b")
LEAST = 8  # letters of a sentence that tell it from others


@dataclass(frozen=True, slots=True)
class Ended:
    """What a script of the run did to it: the line of a log that tells, and the line of the script that did it."""

    what: str
    log: tuple[RunFile, Line]
    script: tuple[RunFile, Line]


def timeouts(ws: Workspace) -> Iterator[Ended]:
    """A status of 124 beside a launch under `timeout`: the limit ran out."""
    told = next(_log_lines(ws, ENDED_124), None)
    if told is None:
        return
    for file, lines in _scripts(ws):
        for line in lines:
            m = TIMEOUT.search(line.text)
            if m and not line.text.lstrip().startswith("#") and LAUNCHES.search(m["command"]):
                yield Ended(f"timeout {m['limit']}", told, (file, line))
                return


def watchers(ws: Workspace) -> Iterator[Ended]:
    """A loop that kills, and in a log the very sentence that it says before."""
    for file, lines in _scripts(ws):
        text = "\n".join(x.text for x in lines)
        if not (LOOPS.search(text) and "sleep" in text):
            continue
        for i, line in enumerate(lines):
            if line.text.lstrip().startswith(("#", "trap ")) or not KILLS.search(line.text) or TRIED.search(line.text):
                continue
            for said in lines[max(0, i - SAID_BEFORE) : i + 1]:
                pattern = _sentence(said.text)
                told = next(_log_lines(ws, pattern), None) if pattern else None
                if told is not None:
                    yield Ended(line.text.strip()[:120], told, (file, line))
                    return


def _sentence(text: str) -> re.Pattern[str] | None:
    """What a line of a script prints, with anything where values are filled in; None where it says too little."""
    m = SAYS.search(text)
    if m is None:
        return None
    fixed = FILLED.split(m["text"])
    if sum(c.isalpha() for part in fixed for c in part) < LEAST:
        return None
    return re.compile(".{0,80}".join(re.escape(part) for part in fixed))


def _scripts(ws: Workspace) -> Iterator[tuple[RunFile, list[Line]]]:
    for file in ws.by_role("code", "config", "other"):
        if (
            file.path.suffix in (".sh", ".bash", ".py", ".sbatch", ".slurm", "")
            and 0 < file.size <= MOST
            and not file.good
        ):
            yield file, list(ws.lines(file))


def _log_lines(ws: Workspace, pattern: re.Pattern[str]) -> Iterator[tuple[RunFile, Line]]:
    """Lines at the end of the logs that match, last first."""
    for summary in logpass(ws).files.values():
        h = summary.harvest
        if summary.file.role != "log" or summary.file.good or not pattern.search(h.tail.decode(errors="replace")):
            continue
        rows = h.tail.split(b"\n")
        end = h.tail_offset + len(h.tail)
        for back, data in enumerate(reversed(rows)):
            begin = end - len(data)
            if pattern.search(data[:2000].decode(errors="replace")):
                yield summary.file, Line(h.tail_line + len(rows) - back, begin, data)
            end = begin - 1
