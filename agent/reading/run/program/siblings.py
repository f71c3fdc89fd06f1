"""Several runs side by side in one folder: which of them is meant."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath

from ..clocks import stamp_of
from ..files import RunFile

LATER = 3 * 24 * 3600.0  # seconds between the end of a run and the start of one that does not go on from it
_PARTS = re.compile(
    r"(?:^|[-_.])(?:rank|node|host|worker|proc(?:ess)?|gpu|attempt|restart|try|version|epoch|step|checkpoint|shard|part)s?[-_.]?\d*$"
    r"|^\d+$|^(?:logs?|train\w*|eval\w*|val\w*|test\w*|data\w*|models?|outputs?|results?|metrics|tb|tensorboard|wandb|samples?"
    r"|std(?:out|err)|console|launcher|nohup)$",
    re.IGNORECASE,
)
_COMPARES = re.compile(
    r"(?i)\b(?:than|compar\w+|versus|vs|both|either|earlier|previous\w*|before|used to"
    r"|others?|last|since|differ\w*|same)\b"
)
_WORD = r"(?<![\w\-]){}(?![\w\-])"


def left_aside(
    files: Iterable[RunFile], question: str, lines: Callable[[RunFile], list[str]], root: str = ""
) -> dict[str, str]:
    """Folders of runs that are not meant, with a slash at their ends, and logs of such; and why.

    A question that names some of the runs by their folders is about these. Otherwise a run that ended days before the
    newest began, and of which that one does not speak, was an earlier one.

    Args:
        lines: the first lines of a log.
    """
    aside: dict[str, str] = {}
    files = list(files)
    compares = _COMPARES.search(question)  # whoever compares means the earlier ones too
    for runs in [] if compares else _logs(files, root):
        aside |= {run.rstrip("/"): why for run, why in _earlier(runs, lines).items()}
    for runs in _groups(files, root):
        named = {run for run in runs if re.search(_WORD.format(re.escape(PurePosixPath(run).name)), question, re.I)}
        if named:
            told = ", ".join(sorted(PurePosixPath(r).name for r in named))
            aside |= {f"{run}/": f"the question is about {told}" for run in runs if run not in named}
        elif not compares:
            aside |= _earlier(runs, lines)
    return aside


def names_run(question: str, log: str) -> bool:
    """Whether a question names a log's run: the log's own name or one of the folders above it, ordinary words apart."""
    path = PurePosixPath(log)
    words = [w for w in (*path.parts[:-1], path.stem) if not _PARTS.search(w) and len(w) > 2]
    return any(re.search(_WORD.format(re.escape(word)), question, re.IGNORECASE) for word in words)


def _groups(files: Iterable[RunFile], root: str) -> list[dict[str, list[RunFile]]]:
    """Folders beside each other that hold logs or metrics each."""
    found: dict[str, dict[str, list[RunFile]]] = defaultdict(lambda: defaultdict(list))
    for f in files:
        if f.role not in ("log", "metrics") or not f.name.startswith(root):
            continue
        parts = PurePosixPath(f.name).parts
        for depth in range(1, min(len(parts), 6)):
            found["/".join(parts[: depth - 1])]["/".join(parts[:depth])].append(f)
    groups = []
    for runs in found.values():
        own = {run: held for run, held in runs.items() if not _PARTS.search(PurePosixPath(run).name)}
        if len(own) > 1:
            groups.append(own)
    return groups


def _logs(files: Iterable[RunFile], root: str) -> list[dict[str, list[RunFile]]]:
    """Logs beside each other in one folder, each a run of its own if its times say so."""
    found: dict[str, dict[str, list[RunFile]]] = defaultdict(dict)
    for f in files:
        if f.role == "log" and f.name.startswith(root) and not _PARTS.search(PurePosixPath(f.name).stem):
            found[PurePosixPath(f.name).parent.as_posix()][f.name] = [f]
    return [logs for logs in found.values() if len(logs) > 1]


def _earlier(runs: Mapping[str, list[RunFile]], lines: Callable[[RunFile], list[str]]) -> dict[str, str]:
    texts = {run: [line for f in held if f.role == "log" for line in lines(f)] for run, held in runs.items()}
    stamps = {run: [s.value for s in map(stamp_of, t) if s and s.kind == "date"] for run, t in texts.items()}
    if not all(stamps.values()):  # times of two kinds are not compared
        stamps = {run: _written(held) for run, held in runs.items()}
    if not all(stamps.values()):
        return {}
    spans = {run: (min(times), max(times)) for run, times in stamps.items()}
    newest = max(spans, key=lambda r: spans[r][0])
    return {
        f"{run}/": f"it ended days before {PurePosixPath(newest).name} began"
        for run, (_, end) in spans.items()
        if spans[newest][0] - end > LATER and not any(PurePosixPath(run).name in line for line in texts[newest])
    }


def _written(files: Iterable[RunFile]) -> list[float]:
    """When files were last written; those of a copy are all of one time, and tell nothing."""
    found = []
    for f in files:
        try:
            found.append(f.path.stat().st_mtime)
        except OSError:
            return []
    return found
