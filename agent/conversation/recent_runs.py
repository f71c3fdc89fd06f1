"""Folders that look like runs, and reports that failed jobs left there: a cheap look at names, bounded in time."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .recent import Recent, read_report

SECONDS, ENTRIES, DEPTH = 0.5, 20_000, 3
REPORT = "doctor-report.json"
_STATS = 200  # files of a folder whose time is looked at
_LOG = re.compile(
    r"\.(log|out|err)(\.\d+)?(\.gz|\.zst)?$|^(stdout|stderr|train[\w-]*\.txt|nohup\.out|slurm-\d[\w-]*\.out)", re.I
)
_METRICS = re.compile(r"^events\.out\.tfevents|^trainer_state\.json$|^run-\w+\.wandb$|^metrics\.(jsonl|csv)$", re.I)
_CHECKPOINT = re.compile(
    r"^(checkpoint[-_]\d+|global_?step_?\d+|iter_\d+|step[-_=]?\d+|epoch[-_=]?\d+.*|latest_checkpointed_iteration\.txt"
    r"|.*\.(safetensors|ckpt|pt|pth|distcp))$",
    re.I,
)
_CONFIG = re.compile(
    r"\.(ya?ml|sbatch|slurm|toml)$|^(ds_?config.*\.json|config\.json|training_args\.bin|launch.*\.sh)", re.I
)
# Parts of a run that have a folder of their own: what they hold speaks for the folder above.
_PART = re.compile(
    r"^(logs?|ckpts?|checkpoints?|tb|tensorboard|tb_logs|wandb|metrics|slurm|outputs?|lightning_logs"
    r"|(rank|node|host|worker|attempt|version)[-_.]?\d+|\d{1,4})$",
    re.I,
)
_PLUMBING = frozenset(("__pycache__", "node_modules", "site-packages", "venv", "proc", "sys", "dev"))


@dataclass(slots=True)
class RunFolder:
    """A folder with what a run leaves; `time` is that of its newest sign."""

    path: Path
    time: float = 0.0
    logs: int = 0
    metrics: int = 0
    checkpoints: int = 0
    configs: int = 0

    @property
    def is_run(self) -> bool:
        """A log or measurements tell of a run; checkpoints alone may be a model, settings alone a program."""
        return bool(self.logs or self.metrics or (self.checkpoints and self.configs))

    @property
    def holds(self) -> str:
        """What was seen, in words."""
        counted = (("log", self.logs), ("checkpoint", self.checkpoints))
        said = [f"{n} {word}{'s' if n > 1 else ''}" for word, n in counted if n]
        return ", ".join([*said[:1], "metrics", *said[1:]] if self.metrics else said)

    def take(self, other: RunFolder) -> None:
        """Count what a part of this run holds."""
        self.time = max(self.time, other.time)
        self.logs += other.logs
        self.metrics += other.metrics
        self.checkpoints += other.checkpoints
        self.configs += other.configs


@dataclass(slots=True)
class Around:
    """What lies in a folder and below: runs and reports; `more` where the look ended before all was seen."""

    runs: list[RunFolder] = field(default_factory=list)
    reports: list[Recent] = field(default_factory=list)
    more: bool = False


def look_around(
    folder: Path,
    known: frozenset[str] = frozenset(),
    seconds: float = SECONDS,
    wanted: Callable[[], bool] = lambda: True,
) -> Around:
    """Runs and reports in a folder and at most `DEPTH` below it, both newest first. Links are not followed.

    Args:
        known: sessions whose reports the state folder has; theirs are not listed again.
        wanted: asked between folders; the look ends where nobody wants it any more.
    """
    around, end, left = Around(), time.monotonic() + seconds, ENTRIES
    found: dict[Path, RunFolder] = {}
    queue: deque[tuple[Path, int]] = deque([(folder, 0)])
    while queue:
        if time.monotonic() > end or left <= 0 or not wanted():
            around.more = True
            break
        at, depth = queue.popleft()
        signs = RunFolder(at)
        for entry in _entries(at):
            left -= 1
            if left <= 0 or time.monotonic() > end:
                around.more = True
                break
            if _is_folder(entry):
                if depth < DEPTH and not _CHECKPOINT.match(entry.name) and not _passed(entry.name):
                    queue.append((Path(entry.path), depth + 1))
                elif _CHECKPOINT.match(entry.name):
                    _count(signs, entry)
            elif entry.name == REPORT:
                around.reports += _report(entry, known)
            else:
                _count(signs, entry)
        found[_run_of(at, folder)] = _together(found.get(_run_of(at, folder)), signs, _run_of(at, folder))
    around.runs = sorted((r for r in found.values() if r.is_run), key=lambda r: (-r.time, str(r.path)))
    around.reports.sort(key=lambda r: -r.time)
    return around


def _together(run: RunFolder | None, signs: RunFolder, at: Path) -> RunFolder:
    run = run or RunFolder(at)
    run.take(signs)
    return run


def _run_of(at: Path, top: Path) -> Path:
    """The folder of the run that a folder is a part of."""
    while at != top and _PART.match(at.name):
        at = at.parent
    return at


def _passed(name: str) -> bool:
    return name.startswith(".") or name in _PLUMBING


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _count(signs: RunFolder, entry: os.DirEntry[str]) -> None:
    """Take a name as the sign that it is."""
    for pattern, kind in ((_METRICS, "metrics"), (_LOG, "logs"), (_CHECKPOINT, "checkpoints"), (_CONFIG, "configs")):
        if pattern.search(entry.name):
            setattr(signs, kind, getattr(signs, kind) + 1)
            break
    else:
        return
    if kind != "configs" and signs.logs + signs.metrics + signs.checkpoints <= _STATS:
        try:
            signs.time = max(signs.time, entry.stat(follow_symlinks=False).st_mtime)
        except OSError:
            return


def _report(entry: os.DirEntry[str], known: frozenset[str]) -> list[Recent]:
    try:
        changed = entry.stat(follow_symlinks=False).st_mtime
        if entry.is_symlink():
            return []
    except OSError:
        return []
    report = read_report(Path(entry.path), changed, own=False)
    return [] if report.session in known else [report]
