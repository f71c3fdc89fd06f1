"""What a supervisor (`doctor run`) wrote down of a job: strictly read, as the file may be cut off, or not ours."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ..run.files import RunFile

if TYPE_CHECKING:
    from ..run.workspace import Workspace

SCHEMA = "traindoctor.run/1"
LIMIT = 1 << 20  # bytes of one record
RECORDS, ITEMS, WORD = 4096, 256, 400  # of one run; of one list; characters of one text
PLACE = re.compile(r"(?:(?:^|/)try_(?P<attempt>\d{1,6})/|^|/)(?:record|rank_(?P<rank>\d{1,6}))\.json$")
_SIGNAL = re.compile(r"SIG[A-Z0-9+]{2,12}")


@dataclass(frozen=True, slots=True)
class Told:
    """A request to end that the job got from outside."""

    signal: str
    at: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class Death:
    """A process of the job that was gone before the job's end. `signal` and `code`: empty, None where nobody knows."""

    pid: int
    rank: int | None = None
    name: str = ""
    at: str = ""
    signal: str = ""
    code: int | None = None
    worker: bool = False  # of a data loader, not a rank


@dataclass(slots=True)
class JobRecord:
    """One attempt at a job, or one rank of it. What the record lacks or gives in another form is None or empty.

    `code` is what a shell would see (128 and the number of a signal); bytes and seconds are plain numbers.
    """

    file: RunFile
    attempt: int
    rank: int | None = None
    state: str = ""
    command: list[str] = field(default_factory=list)
    host: str = ""
    began: str = ""
    ended: str = ""
    seconds: float | None = None
    code: int | None = None
    signal: str = ""
    told: list[Told] = field(default_factory=list)
    died: list[Death] = field(default_factory=list)
    memory_peak: int | None = None
    memory_limit: int | None = None
    memory_limit_of: str = ""
    oom_kills: int | None = None
    disk_path: str = ""
    disk_free: int | None = None
    inodes_free: int | None = None
    last_step: int | None = None
    step_seconds: float | None = None
    hang_seconds: float | None = None
    hang_limit: float | None = None
    hang_step: int | None = None
    hang_stacks: list[str] = field(default_factory=list)
    went_on: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether the end of the job was seen."""
        return self.code is not None and self.state != "running"

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise than with code 0."""
        return self.over and self.code != 0

    @property
    def hung(self) -> bool:
        """Whether it stood still and was not seen to go on."""
        return self.hang_seconds is not None and not self.went_on

    @property
    def memory_share(self) -> float | None:
        """The highest use of memory as a share of its limit."""
        if not self.memory_limit or self.memory_peak is None:
            return None
        return round(self.memory_peak / self.memory_limit, 3)


def job_records(ws: Workspace) -> list[JobRecord]:
    """The records of all attempts of the runs that are diagnosed, by run, attempt and rank; read once."""
    return ws.memo("job records", lambda: _all(ws))


def last_records(ws: Workspace) -> list[JobRecord]:
    """Of each run the records of its last attempt: one, or one for each rank that had a supervisor of its own."""
    records = job_records(ws)
    newest = {r.file.run: r.attempt for r in records}
    return [r for r in records if r.attempt == newest[r.file.run]]


def _all(ws: Workspace) -> list[JobRecord]:
    found: list[JobRecord] = []
    for file in ws.files:
        place = PLACE.search(file.name) if file.role == "record" and not file.good else None
        if place is None:
            continue
        if len(found) >= RECORDS:
            ws.tell(file.name, f"more than {RECORDS} records of supervised jobs: the rest was not read")
            break
        record = _read(ws, file, int(place["attempt"] or 1), int(place["rank"]) if place["rank"] else None)
        if record is not None:
            found.append(record)
    return sorted(found, key=lambda r: (r.file.run, r.attempt, -1 if r.rank is None else r.rank))


def _read(ws: Workspace, file: RunFile, attempt: int, rank: int | None) -> JobRecord | None:
    if file.size > LIMIT:
        ws.tell(file.name, f"longer than the record of a job can be ({LIMIT >> 20} MiB)")
        return None
    try:
        data = json.loads(ws.read(file, LIMIT).decode(errors="replace"))
    except (ValueError, RecursionError):
        ws.tell(file.name, "no JSON: the record of the job was cut off or is damaged")
        return None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        ws.tell(file.name, f"not the record of a job (schema {SCHEMA})")
        return None
    return _record(_Fields(data), file, attempt, rank)


def _record(top: _Fields, file: RunFile, attempt: int, rank: int | None) -> JobRecord:
    exit_, memory, disk = top.part("exit"), top.part("memory"), top.part("disk")
    steps, hang = top.part("steps"), top.part("hang")
    own = top.whole("rank")
    return JobRecord(
        file, attempt, own if own is not None else rank, top.word("state"), top.words("command"), top.word("host"),
        top.word("began"), top.word("ended"), top.number("seconds"), exit_.whole("code", -255, 255),
        exit_.named_signal(),
        told=[Told(s, t.word("at"), t.word("by")) for t in top.parts("told_to_end") if (s := t.named_signal())],
        died=[
            Death(
                d.whole("pid") or 0, d.whole("rank"), d.word("name"), d.word("at"), d.named_signal(),
                d.whole("code", -255, 255), d.flag("worker"),
            )
            for d in top.parts("died")
        ],
        memory_peak=memory.whole("peak_bytes"), memory_limit=memory.whole("limit_bytes"),
        memory_limit_of=memory.word("limit_of"), oom_kills=memory.whole("oom_kills"),
        disk_path=disk.word("path"), disk_free=disk.whole("free_bytes"), inodes_free=disk.whole("inodes_free"),
        last_step=steps.whole("last"), step_seconds=steps.number("median_seconds"),
        hang_seconds=hang.number("quiet_seconds") if hang.known else None, hang_limit=hang.number("limit_seconds"),
        hang_step=hang.whole("last_step"),
        hang_stacks=[s for s in hang.words("stacks") if ".." not in PurePath(s).parts],
        went_on=hang.flag("went_on"), notes=top.words("notes"),
    )  # fmt: skip


class _Fields:
    """One object of a record, asked for values of one form each; what has another form is not there."""

    def __init__(self, data: Any) -> None:
        self._data: dict[str, Any] = data if isinstance(data, dict) else {}

    @property
    def known(self) -> bool:
        return bool(self._data)

    def part(self, key: str) -> _Fields:
        return _Fields(self._data.get(key))

    def parts(self, key: str) -> list[_Fields]:
        return [_Fields(v) for v in self._items(key) if isinstance(v, dict)]

    def word(self, key: str) -> str:
        value = self._data.get(key)
        return value[:WORD] if isinstance(value, str) else ""

    def words(self, key: str) -> list[str]:
        return [v[:WORD] for v in self._items(key) if isinstance(v, str)]

    def flag(self, key: str) -> bool:
        return self._data.get(key) is True

    def whole(self, key: str, low: int = 0, high: int = 1 << 63) -> int | None:
        value = self._data.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high else None

    def number(self, key: str) -> float | None:
        value = self._data.get(key)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return None
        return float(value) if math.isfinite(value) and 0 <= value < 1e12 else None

    def named_signal(self) -> str:
        value = self._data.get("signal")
        return value if isinstance(value, str) and _SIGNAL.fullmatch(value) else ""

    def _items(self, key: str) -> list[Any]:
        value = self._data.get(key)
        return value[:ITEMS] if isinstance(value, list) else []
