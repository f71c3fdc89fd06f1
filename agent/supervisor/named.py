"""Files and folders that a job's command line names and that tell something of the run: script, settings, outputs."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

MOST = 12  # paths that are given to a diagnosis
ENTRIES, SECONDS = 4000, 1.0  # a larger tree, or one that takes longer to list, is left out
LARGEST = 4 << 20  # bytes of a file of settings or code
_READ = {".py", ".sh", ".bash", ".sbatch", ".slurm", ".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf"}
_FOLDER = re.compile(
    r"(?:^|[-_.])(?:out(?:put)?s?|saves?|log(?:s|ging|dir)?|ckpts?|checkpoints?|config|run|work|exp|tensorboard)"
    r"(?:[-_.]?(?:dir|directory|folder|path|root))?$"
)


def named_paths(argv: Sequence[str], run: Path, began: float, also: Sequence[str] = ()) -> list[str]:
    """What to read beside the folder of the run, the user's own wishes first; nothing twice.

    A folder counts where its option says so and something in it was written since the job began (`began`,
    `time.time()`): what an earlier job left there is no evidence of this one.
    """
    found: dict[str, None] = {}
    places = [run.resolve()]
    wanted = [(Path(p), True) for p in also] + [(p, False) for p in _named(argv, began)]
    for path, asked in wanted:
        try:
            real = path.expanduser().resolve()
            inside = any(real == p or p in real.parents for p in places)
            around = not asked and real.is_dir() and any(real in p.parents for p in places)
        except OSError:
            continue
        if inside or around or real == Path("/") or real == Path.home() or not real.exists() or len(found) >= MOST:
            continue
        found[str(real)] = None
        places.append(real)
    return list(found)


def _named(argv: Sequence[str], began: float) -> Iterator[Path]:
    option = ""
    for word in argv[1:]:
        if word.startswith("-") and "=" not in word:
            option = word.lstrip("-")
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if equals:
            option = name.rpartition(".")[2]
        else:
            value = word
        if not value or "\0" in value or len(value) > 4096:
            continue
        path = Path(value.removeprefix("@"))
        try:
            if path.suffix.lower() in _READ and path.is_file():
                if path.stat().st_size <= LARGEST:
                    yield path
            elif _FOLDER.search(option.lower()) and path.is_dir() and _written(path, began):
                yield path
        except OSError:
            continue
        option = ""


def _written(folder: Path, began: float) -> bool:
    """Whether something in it was written since the job began; false of a tree too large to be read in time."""
    new, entries, until = False, 0, time.monotonic() + SECONDS
    for here, _, names in os.walk(folder):
        entries += len(names) + 1
        if entries > ENTRIES or time.monotonic() > until:
            return False
        for name in names:
            try:
                new = new or Path(here, name).stat().st_mtime >= began - 2
            except OSError:
                continue
    return new
