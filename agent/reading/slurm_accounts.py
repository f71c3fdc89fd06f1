"""What Slurm says about jobs and nodes: `sacct` (parsable, plain or JSON) and `scontrol show job|node`.

Every reader yields `Row`s: a job, a step or a node as fields by their lower-case name, with the line they start on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .files import Line

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_PAIR = re.compile(r"(?:^|\s)(?P<name>[A-Z][\w/:]*)=(?P<value>.*?)(?=\s+[A-Z][\w/:.]*=|$)")
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[KMGTP]?)(?P<of>[nc]?)")
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+)(?:\.\d+)?")
_ID = re.compile(r"\d+(?:_\d+|_\[[\d,%-]+\]|\+\d+)?(?:\.(?:\w+))?")
_DASHES = re.compile(r"^-{3,}(?:\s+-{3,})+\s*$")


@dataclass(slots=True)
class Row:
    """A job (`77`), a step (`77.0`, `77.batch`) or a node. `line` is None where the source has no lines (JSON)."""

    kind: str
    id: str
    fields: dict[str, str]
    line: Line | None = None
    more: list[Line] = field(default_factory=list)  # further lines of the same block
    member: str = ""

    @property
    def job(self) -> str:
        """The job a step belongs to, without its array index."""
        return re.split(r"[._+]", self.id)[0]

    @property
    def is_step(self) -> bool:
        return self.kind == "job" and "." in self.id

    def get(self, *names: str) -> str:
        """The first of these fields that says something."""
        return next((v for n in names if (v := self.fields.get(n, "").strip()) not in {"", "None", "(null)"}), "")

    def line_with(self, word: str) -> Line | None:
        """The line of the block that holds a word, else its first."""
        return next((x for x in [self.line, *self.more] if x and word in x.text), self.line)


def rows(lines: Iterable[Line]) -> Iterator[Row]:
    """Rows of text, whichever forms it mixes."""
    header: list[str] = []
    columns: list[tuple[int, int]] = []
    block: Row | None = None
    before = ""
    for line in lines:
        text = line.text.rstrip()
        if started := _block(text, line):
            if block:
                yield block
            block, header, columns = started, [], []
        elif block and text.startswith(" ") and _PAIR.search(text):
            block.fields |= _pairs(text)
            block.more.append(line)
        elif block and text:
            yield block
            block = None
        if block is None and text.startswith("JobID|"):
            header, columns = text.lower().split("|"), []
        elif block is None and _DASHES.match(text) and before.lstrip().lower().startswith("jobid"):
            columns = [m.span() for m in re.finditer(r"-+", text)]
            header = [before[a:b].strip().lower() for a, b in columns]
        elif header and (cells := _cells(text, len(header), columns)) and _ID.fullmatch(cells[0]):
            yield Row("job", cells[0], dict(zip(header, cells, strict=False)), line)
        before = text
    if block:
        yield block


def _cells(text: str, width: int, columns: list[tuple[int, int]]) -> list[str]:
    cells = [text[a:b].strip() for a, b in columns] if columns else text.split("|")
    return cells if len(cells) in (width, width + 1) else []


def _block(text: str, line: Line) -> Row | None:
    """The first line of what scontrol shows of one job or node."""
    m = re.match(r"^(?:JobId=(?P<job>\d+)|NodeName=(?P<node>[\w.-]+))\b", text)
    return Row("job" if m["job"] else "node", m["job"] or m["node"], _pairs(text), line) if m else None


def _pairs(text: str) -> dict[str, str]:
    return {m["name"].lower(): m["value"].strip() for m in _PAIR.finditer(text)}


def json_rows(text: str) -> list[Row]:
    """Rows of `sacct --json`; empty where the text is something else."""
    try:
        found = json.loads(text)
        jobs = found["jobs"] if isinstance(found, dict) else None
        return [r for i, job in enumerate(jobs or []) if isinstance(job, dict) for r in _json_job(i, job)]
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
        return []


def _json_job(number: int, job: dict[str, Any]) -> Iterator[Row]:
    spent = job.get("time") or {}
    limit = _plain(spent.get("limit"))
    yield Row("job", str(job["job_id"]), {
        "state": _state(job), "exitcode": _exit(job.get("exit_code")), "elapsed": _clock(spent.get("elapsed")),
        "derivedexitcode": _exit(job.get("derived_exit_code")),
        "timelimit": _clock(limit * 60) if isinstance(limit, int) else "",
        "reqmem": f"{m}M" if isinstance(m := _plain((job.get("required") or {}).get("memory")), int) and m else "",
        "nodelist": str(job.get("nodes") or ""), "jobname": str(job.get("name") or ""),
        "by": str(job.get("kill_request_user") or ""),
    }, member=f"jobs[{number}]")  # fmt: skip
    for i, step in enumerate(job.get("steps") or []):
        name = str((step.get("step") or {}).get("id") or i)
        used = ((step.get("tres") or {}).get("requested") or {}).get("max") or []
        rss = next((t.get("count") for t in used if t.get("type") == "mem"), None)
        yield Row("job", name if "." in name else f"{job['job_id']}.{name}", {
            "state": _state(step), "exitcode": _exit(step.get("exit_code")), "maxrss": str(rss or ""),
        }, member=f"jobs[{number}].steps[{i}]")  # fmt: skip


def _state(of: dict[str, Any]) -> str:
    """`{"current": "FAILED"}`, in newer versions `["FAILED"]`; of a step the word itself."""
    state = of.get("state")
    state = state.get("current") if isinstance(state, dict) else state
    return str(state[0] if isinstance(state, list) and state else state or "")


def _exit(code: Any) -> str:
    """`code:signal`, as sacct prints it."""
    if not isinstance(code, dict):
        return ""
    signal = code.get("signal") or {}
    number = _plain(signal.get("id", signal.get("signal_id"))) if isinstance(signal, dict) else 0
    return f"{_plain(code.get('return_code')) or 0}:{number or 0}"


def _plain(value: Any) -> Any:
    """Newer versions wrap numbers: `{"set": true, "infinite": false, "number": 60}`."""
    if isinstance(value, dict):
        return value.get("number") if value.get("set") and not value.get("infinite") else None
    return value


def _clock(seconds: Any) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}" if isinstance(seconds, int) else ""


def size_bytes(text: str) -> int | None:
    """`74068K`, `60M`, `4Gn` as bytes; None for a size per core (`2Gc`), as the cores are not told beside it."""
    m = _SIZE.fullmatch(text.strip())
    return int(float(m["number"]) * UNITS[m["unit"]]) if m and m["of"] != "c" else None


def seconds(text: str) -> int | None:
    """`1-02:03:04` as seconds; None for UNLIMITED and the like."""
    m = _TIME.fullmatch(text.strip())
    if m is None:
        return None
    days, hours, minutes, rest = (int(m[n] or 0) for n in ("days", "hours", "minutes", "seconds"))
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest
