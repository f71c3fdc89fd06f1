"""Lines of trouble that are no failure of their own: consequences, exit codes, signals, kills, error lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .anchors import cascade_kind, is_harmless, is_progress, told_harmless
from .failure import Read
from .files import RunFile
from .hearsay import stated

_EXIT = re.compile(
    r"exit ?code *[:=]? *(?P<a>-?\d{1,5})|return code *[:=]? *(?P<b>-?\d{1,5})"
    r"|exit(?:ed)?(?: with)? (?:status|code) *[:=]? *(?P<c>-?\d{1,5})"
    r"|[Ee]xited with exit code (?P<d>\d{1,3})|ExitCode=(?P<e>\d{1,3}):(?P<f>\d{1,2})"
)
_SIGNAL = re.compile(
    r"\bSIG(?:KILL|SEGV|ABRT|BUS|ILL|FPE|TERM|INT|HUP|USR1|USR2|PIPE)\b|[Ss]ignal (?P<n>\d{1,2})\b"
    r"|Killed by signal (?P<m>\d{1,2})"
)
_KILLED = re.compile(
    r"(?:^|[\s:])Killed(?:\s+(?:python|torchrun|accelerate|bash|srun|\S+\.py|\S*python\S*)\b.*)?\.?$|oom[-_]kill(?!_disable|[\s:=]+\d)"
    r"|OOM Killed|OOMKilled|Out of memory: Kill"
)
_ERRORISH = re.compile(
    r"(?i)(?:^|[\s\[(:])(?:fatal|error)s? ?[:!]|\bfatal\b|\bFAILED\b|NCCL WARN|\bpanicked at\b"
    r"|command not found|can't open file|: \d+: \S+: not found$|^\S+: No such file|\bnot enough memory\b"
)
_NAMES = {
    9: "SIGKILL",
    11: "SIGSEGV",
    6: "SIGABRT",
    7: "SIGBUS",
    4: "SIGILL",
    8: "SIGFPE",
    15: "SIGTERM",
    2: "SIGINT",
    1: "SIGHUP",
    10: "SIGUSR1",
}


@dataclass(frozen=True, slots=True)
class Note:
    """A line of trouble that is no failure unit: kind is cascade, exit, killed or error."""

    kind: str
    value: str | int
    file: RunFile
    read: Read

    @property
    def rank(self) -> int | None:
        s = self.read.stripped
        return s.rank if s.rank is not None else self.file.rank


def notes(read: Read, file: RunFile, inside: bool) -> Iterator[Note]:
    """What a line tells beside failures; `inside`: it is part of one."""
    body = read.body
    shown = stated(body[:2000])
    if is_harmless(shown):
        return
    kind = cascade_kind(shown)
    if kind and not (inside and kind in ("worker_gone", "peer_lost")):
        yield Note("cascade", kind, file, read)
    if m := _EXIT.search(shown):
        code = next((g for g in m.groups()[:4] if g), None) or (f"-{m['f']}" if m["f"] and m["f"] != "0" else m["e"])
        if code and int(code):
            yield Note("exit", int(code), file, read)
    if (m := _SIGNAL.search(shown)) and "SIGTERM handler" not in shown:
        number = m["n"] or m["m"]
        name = _NAMES.get(int(number)) if number else m[0]
        if name:
            yield Note("signal", name, file, read)
    if _KILLED.search(shown) and "Killing" not in shown:
        yield Note("killed", "Killed", file, read)
    if inside or kind or shown[:1] in ("{", " ", "\t") or is_progress(shown):
        return
    if (read.stripped.level in ("error", "fatal") or _ERRORISH.search(shown)) and not told_harmless(shown):
        yield Note("error", shown.strip()[:400], file, read)
