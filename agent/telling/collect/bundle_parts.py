"""The members of a bundle as they come together: texts under safe names, and what the manifest says of each file."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ...core.errors import ParseError
from ...reading.run.files import RunFile
from ...reading.run.workspace import Workspace
from ...reading.stacks.flight_dump import LIMIT, load
from ...tools.tool import all_tools, guarded
from .cleaning import Cleaning

if TYPE_CHECKING:
    import numpy as np

    from ...reading.curves.series import Series
    from .pieces import Context

NAME_BYTES = 200  # of one part of a name; file systems take 255
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


@dataclass(slots=True)
class Contents:
    """Texts by member name, within a bound. `files` are rows of the manifest; `out` is what had no room."""

    limit: int
    cleaning: Cleaning = field(default_factory=Cleaning)
    texts: dict[str, str] = field(default_factory=dict)
    files: list[dict[str, Any]] = field(default_factory=list)
    out: list[dict[str, str]] = field(default_factory=list)
    used: int = 0
    _taken: set[str] = field(default_factory=set)

    @property
    def room(self) -> int:
        return max(0, self.limit - self.used)

    def add(self, name: str, text: str) -> str | None:
        """Put a text in; its member's name, or None where the bundle is full."""
        size = len(text.encode("utf-8", "replace"))
        name = self._free(safe_name(self.cleaning.text(name)))
        if size > self.room:
            self.out.append({"member": name, "why": "the bundle is full"})
            return None
        self.used += size
        self.texts[name] = text
        return name

    def add_data(self, name: str, data: Any) -> str | None:
        """The same for plain data, each value cleaned beside its name."""
        return self.add(name, json.dumps(self.cleaning.data(data), indent=1, ensure_ascii=False) + "\n")

    def row(self, file: RunFile, kept: str, why: str = "", member: str | None = None) -> None:
        """Say of a file of the run what became of it."""
        row: dict[str, Any] = {"name": file.name, "role": file.role, "bytes": file.size, "kept": kept}
        self.files.append(row | ({"member": member} if member else {}) | ({"why": why} if why else {}))

    def settled(self) -> dict[str, bytes]:
        """Every text as bytes, after all of them were gone through for every secret."""
        self.cleaning.data(self.files)  # names of files that stay away may tell secrets too
        self.cleaning.settle(self.texts)
        return {self.cleaning.text(name): text.encode("utf-8", "replace") for name, text in self.texts.items()}

    def _free(self, name: str) -> str:
        number, free = 1, name
        while free.casefold() in self._taken:  # a file system may not tell capitals apart
            number += 1
            free = f"{name}~{number}"
        self._taken.add(free.casefold())
        return free


def safe_name(name: str) -> str:
    """A name for an archive: relative, without parts that lead elsewhere, without control characters, not too long."""
    parts = [p for p in name.split("/") if p not in ("", ".", "..")]
    return "/".join(_part(_CONTROL.sub("_", p).encode("utf-8", "replace").decode()) for p in parts) or "unnamed"


def _part(part: str) -> str:
    data = part.encode()
    if len(data) <= NAME_BYTES:
        return part
    return data[: NAME_BYTES - 17].decode(errors="ignore") + "~" + hashlib.sha256(data).hexdigest()[:16]


# ----------
# What the run's files say of settings, versions and checkpoints, as plain data with the place of each.

SETTINGS, VERSIONS, SAVES, FILES = 5000, 2000, 500, 200


def settings(ws: Workspace, context: Context) -> dict[str, Any]:
    """Settings by canonical name, as asked for and as used, each with file and line."""
    from ...reading.settings.settings import read_settings

    found = read_settings(ws)
    rows = [
        {
            "name": s.name, "value": context.value(s.value, s.file.name, s.line.offset, len(s.line.data)),
            "key": s.key, "used": s.used, "default": s.default, "framework": s.framework,
            "file": s.file.name, "line": s.line.number,
        }
        for s in found.all
    ]  # fmt: skip
    rows.sort(key=lambda r: (r["name"].startswith("other."), r["name"], r["file"], r["line"]))
    return {"frameworks": sorted(found.frameworks), "settings": rows[:SETTINGS], "more": max(0, len(rows) - SETTINGS),
            "problems": found.problems[:FILES]}  # fmt: skip


def environment(ws: Workspace) -> dict[str, Any]:
    """Versions and facts about the machine that the run's files tell, each value once, with its first place."""
    from ...reading.settings.versions import read_environment

    found = read_environment(ws)
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for name, value, file, line in [
        *((v.package, v.version, v.file, v.line) for v in found.versions),
        *((f.key, f.value, f.file, f.line) for f in found.facts),
    ]:
        row = rows.setdefault(
            (name, str(value)), {"name": name, "value": value, "file": file.name, "line": line.number, "times": 0}
        )
        row["times"] += 1
    told = sorted(rows.values(), key=lambda r: (r["name"], str(r["value"])))
    return {"told": told[:VERSIONS], "more": max(0, len(told) - VERSIONS), "problems": found.problems[:FILES]}


def saves(ws: Workspace) -> list[dict[str, Any]]:
    """Checkpoints by their structure: names, sizes, steps; nothing of their content."""
    from ...reading.checkpoints.layouts import checkpoints

    return [
        {
            "name": c.name, "framework": c.framework, "step": c.step, "bytes": c.size, "unfinished": c.marks,
            "written": datetime.fromtimestamp(c.written, UTC).isoformat(timespec="seconds") if c.written else None,
            "files": {part: [[c.within(f), f.size] for f in files[:FILES]] for part, files in c.files.items()},
        }
        for c in checkpoints(ws)[-SAVES:]
    ]  # fmt: skip


# ----------
# Curves as small tables: thinned, with extremes kept and the stretch around the event whole.
#
# A table of a file that cannot go in itself (event files, databases, one long JSON) stands among the run's files, so
# that the curves of a bundle are read again when it is replayed.

POINTS = 1000  # buckets of a curve: each keeps its first, least, greatest and last point
AROUND = 200  # points on each side of an event
COLUMNS = 100
TABLES = 300


def by_file(ws: Workspace) -> dict[str, list[Series]]:
    """Curves as they are printed, by file; what the readers derive (paces) is left to them."""
    from ...reading.curves.curves import curves

    found: dict[str, list[Series]] = {}
    for series in curves(ws).series:
        kept = found.setdefault(series.file.name, [])
        if len(kept) < COLUMNS and not any(k.raw == series.raw and k.variant == series.variant for k in kept):
            kept.append(series)
    return dict(sorted(found.items())[:TABLES])


def table(series: list[Series], events: list[int]) -> str:
    """CSV with a row for each step that is kept, and a column for each curve; an empty cell where a curve has none.

    Args:
        events: steps around which every point is kept.
    """
    rows: dict[tuple[str, int, float], dict[str, float]] = {}
    named = [s for s in series if s.variant]
    for one in series:
        for turn, step, value in _points(one, events):
            rows.setdefault((one.variant or "", turn, step), {})[one.raw] = value
    columns = list(dict.fromkeys(s.raw for s in series))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*(["run"] if named else []), "step", *columns])
    for variant, turn, step in sorted(rows):
        cells = [_cell(rows[variant, turn, step].get(c)) for c in columns]
        writer.writerow([*([variant] if named else []), _cell(step), *cells])
    return out.getvalue()


def stands_in(file: RunFile, kept_whole: bool) -> bool:
    """Whether a file's curves can only be replayed from a table of them."""
    from ...reading.curves.curves import is_binary

    return is_binary(file) or (file.path.suffix.lower() == ".json" and not kept_whole)


def _points(series: Series, events: list[int]) -> Iterator[tuple[int, float, float]]:
    """Kept points as (how often the steps had gone back before it, step, value)."""
    import numpy as np

    turns = np.concatenate(([0], np.cumsum(np.diff(series.steps) < 0)))
    for i in np.flatnonzero(_kept(series, events)):
        yield int(turns[i]), float(series.steps[i]), float(series.values[i])


def _kept(series: Series, events: list[int]) -> np.ndarray:
    import numpy as np

    from ...reading.curves.series import extremes

    count = len(series)
    starts = np.unique(np.linspace(0, count, min(POINTS, count), endpoint=False).astype(int))
    keep = extremes(series.values, starts)
    finite = np.isfinite(series.values)
    changes = np.flatnonzero(finite[1:] != finite[:-1])
    keep[changes] = keep[changes + 1] = True
    for event in events:
        near = int(np.argmin(np.abs(series.steps - event)))
        keep[max(0, near - AROUND) : near + AROUND + 1] = True
    return keep


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


# ----------
# Flight-recorder dumps as JSON: secrets can be taken out of text only, and JSON replays as well as the pickle.

LATEST = 64  # entries whose stacks are kept where a dump is too long as a whole


def dumps(ws: Workspace) -> list[RunFile]:
    """Files that are dumps which can be read, in the order of their names."""
    from ...reading.stacks.flight_recordings import recordings

    found = {d.file.name: d.file for r in recordings(ws) for d in r.dumps.values()}
    return [found[name] for name in sorted(found)]


def as_json(ws: Workspace, file: RunFile, room: int) -> tuple[str, bool]:
    """A dump as JSON of at most `room` bytes, and whether it is all there.

    Raises:
        ParseError: it is damaged, hostile, or too long even for its last entry.
    """
    content = load(ws.read(file, LIMIT + 1))
    for whole, shown in _shorter(content):
        try:
            text = json.dumps(shown, separators=(",", ":"), ensure_ascii=False, skipkeys=True)
        except (TypeError, ValueError, RecursionError) as e:
            raise ParseError(f"not to be written as JSON: {str(e)[:80]}") from None
        if len(text) <= room:
            return text, whole
    raise ParseError("no room for it")


def _shorter(content: dict[str, Any]) -> Iterator[tuple[bool, dict[str, Any]]]:
    """The dump, without stacks but of the latest entries, then with ever fewer of the latest entries."""
    yield True, content
    entries = content.get("entries")
    if not isinstance(entries, list):
        return
    bare = [{k: v for k, v in e.items() if k != "frames"} if isinstance(e, dict) else e for e in entries[:-LATEST]]
    count = len(entries)
    while count:
        yield False, {**content, "entries": [*bare, *entries[-LATEST:]][-count:]}
        count //= 2


# ----------
# What this machine says when it is asked: the checks of GPUs, kernel, host and scheduler, variables, packages.

TOOLS = ("gpu_status", "xid_errors", "host_health", "slurm_job", "ib_status", "package_conflicts")
SECONDS = 60.0  # for each of them
VARIABLES = re.compile(
    r"^(?:CUDA|NVIDIA|NCCL|TORCH|PYTORCH|GLOO|UCX|OMP|MKL|SLURM|HIP|ROCR|RCCL|NVTE|TRITON|TOKENIZERS|VLLM|HF_HOME|"
    r"(?:LOCAL_|GROUP_|ROLE_)?RANK$|(?:LOCAL_)?WORLD_SIZE$|MASTER_|LD_LIBRARY_PATH$|PYTHONPATH$|VIRTUAL_ENV$|"
    r"CONDA_PREFIX$)"
)


def asked(ws: Workspace, tell: Callable[[str], None]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the checks of the machine answer; a bug in one costs its answer, not the bundle."""
    for name in TOOLS:
        tell(name.replace("_", "-"))
        result, _ = guarded(all_tools()[name], ws, {}, SECONDS)
        told = [e.as_dict() for e in result.evidence]
        yield name, {"tool": name, "outcome": result.outcome, "summary": result.summary, "text": result.text,
                     "evidence": told}  # fmt: skip


def variables() -> str:
    """Telling variables of the shell that collects, one a line."""
    return "".join(f"{k}={v}\n" for k, v in sorted(os.environ.items()) if VARIABLES.search(k))


def packages(ws: Workspace) -> str:
    """Versions in the environment of the named processes, else of our own interpreter; the first line says which."""
    from ...reading.settings.versions import listing

    told = [str(p) for p in ws.pids] or [sys.prefix]
    argv = [sys.executable, "-I", "-m", "traindoctor.agent.jobs.probes.packages", *told]
    found = listing(ws.shell(argv, 20.0).stdout)
    whose = "the named processes" if ws.pids else "the environment that doctor runs in, which may not be the job's"
    return f"# {whose}\n" + "".join(f"{p.name}=={p.version}\n" for p in found.packages)
