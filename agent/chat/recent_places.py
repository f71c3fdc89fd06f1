"""What a typed line could mean: a path that is there, a path that is not, or a question; and how it may go on."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..core.errors import UsageError
from ..safety.fences import one_line
from .recent import Recent, read_report

LISTED = 2_000  # entries of a folder that are offered
_PATHLIKE = re.compile(r"^(?:/|~|\.{1,2}(?:/|$))|^[^\s?]*/[^\s?]*$")


@dataclass(frozen=True, slots=True)
class Place:
    """An entry of a folder, as it would be typed."""

    text: str
    folder: bool


@dataclass(frozen=True, slots=True)
class Meant:
    """What a line is: `path` is set where something is there, `why` where it looks like a path and nothing is."""

    kind: Literal["nothing", "path", "no path", "question"]
    path: Path | None = None
    why: str = ""


def looks_like_path(text: str) -> bool:
    """Whether a text is written as a path: from the root, a home or here, or one word with a slash."""
    return bool(_PATHLIKE.match(text.strip()))


def meant(text: str, here: Path) -> Meant:
    """Tell a path from a question; looks at the disk, which may hang. `here` is where relative paths begin."""
    text = text.strip()
    if not text:
        return Meant("nothing")
    try:
        path = there(text, here)
    except UsageError as e:
        return Meant("no path", why=str(e)) if looks_like_path(text) else Meant("question")
    return Meant("path", path)


def there(text: str, here: Path) -> Path:
    """The folder or file that a text names, absolute.

    Raises:
        UsageError: there is none.
    """
    named = one_line(text)[:200]
    try:
        path = here / Path(text).expanduser()
        kind = path.stat().st_mode
    except RuntimeError:
        raise UsageError(f"{named}: whose home is meant is not known") from None
    except FileNotFoundError:
        raise UsageError(f"no such folder or file: {named}") from None
    except (OSError, ValueError) as e:
        raise UsageError(f"{named}: {getattr(e, 'strerror', None) or 'names no file'}") from None
    if kind & 0o170000 not in (0o040000, 0o100000):
        raise UsageError(f"{named} is neither a folder nor a file")
    return path


def completions(text: str, here: Path) -> list[Place]:
    """Entries that a half typed path may go on with, folders first; hidden ones where their dot is typed.

    Looks at the disk, which may hang.
    """
    if text in ("~", "..", "."):
        return [Place(f"{text}/", True)]
    lead, _, start = text.rpartition("/")
    lead = f"{lead}/" if "/" in text else ""
    try:
        folder = here / Path(lead).expanduser() if lead else here
        with os.scandir(folder) as entries:
            found = []
            for entry in entries:
                if len(found) >= LISTED:
                    break
                if entry.name.startswith(start) and (start.startswith(".") or not entry.name.startswith(".")):
                    found.append(_place(lead, entry))
    except (OSError, ValueError, RuntimeError):
        return []
    return sorted((p for p in found if p), key=lambda p: (not p.folder, p.text.lower()))


def _place(lead: str, entry: os.DirEntry[str]) -> Place | None:
    try:
        if entry.is_dir():
            return Place(f"{lead}{entry.name}/", True)
        return Place(f"{lead}{entry.name}", False) if entry.is_file() else None
    except OSError:
        return None


def shared(places: list[Place], text: str) -> str:
    """How far all completions agree: what the tab key makes of a text."""
    texts = [p.text for p in places if p.text == one_line(p.text)]  # what cannot be typed is chosen from the list
    if not texts:
        return text
    first, last = min(texts), max(texts)
    same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:same] if same > len(text) else text


# ----------
# Folders that look like runs, and reports that failed jobs left there: a cheap look at names, bounded in time.

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
