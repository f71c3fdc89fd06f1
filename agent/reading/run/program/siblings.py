"""Several runs side by side in one folder: which of them is meant."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from ..clocks import stamp_of
from ..files import RunFile

LATER = 3 * 24 * 3600.0  # seconds between the end of a run and the start of one that does not go on from it
FAR = 30 * 24 * 3600.0  # the same where the question compares: what is set beside a run is of its own weeks
_PARTS = re.compile(
    r"(?:^|[-_.])(?:rank|node|host|worker|proc(?:ess)?|gpu|attempt|restart|try|version|epoch|step|checkpoint|shard|part)s?[-_.]?\d*$"
    r"|^\d+$|^(?:logs?|train\w*|eval\w*|val\w*|test\w*|data\w*|models?|outputs?|results?|metrics|tb|tensorboard|wandb|samples?"
    r"|std(?:out|err)|console|launcher|nohup)$",
    re.IGNORECASE,
)
_COMPARES = re.compile(r"(?i)\b(?:than|compar\w+|versus|vs|both|either|others?|differ\w*|same)\b")
_RECALLS = re.compile(  # earlier runs of the person's own are meant, however old
    r"(?i)\b(?:earlier|previous\w*|used to|no longer|any ?more|ago|old(?:er)?|formerly|once (?:was|did|ran)"
    r"|it (?:was|did|worked|ran)|(?:worked|was|were|did|done|ran|had|fine|same) \w* ?before"
    r"|last (?:time|week|month|year|night|run|one|version|release)|yesterday"
    r"|since (?:(?:the|our|my|we|i) )?(?:upgrad|updat|mov|switch|chang|new|last|\w+day)\w*"
    r"|(?:in|since) (?:spring|summer|autumn|fall|winter|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)\w*)\b"
)
# Runs that are spoken of without their names.
_OTHERS = re.compile(
    r"(?i)\b(?:both|either|others?|another|the rest|siblings?|(?:all|each|every|which)(?: of)?(?: the| my| our| these)?"
    r" (?:runs?|one|jobs?|variants?)|sweep"
    r"|than (?:the |my |our |it |any )?(?:previous|last|old\w*|earlier|before|one|run|did|was|used))\b"
)
# What stands before a run that another is compared with.
_AGAINST = re.compile(
    r"(?i)\b(?:than|unlike|like|vs\.?|versus|against|compared? (?:to|with)|as|to|with|from|since|before|after)"
    r"(?: (?:the|my|our|in|run|job|of|that))*[ `'\"]*(?:[\w.\-]+/)*$"
)
_JOB = re.compile(r"(?i)slurm|\bjob|^\d|[-_.]?\d{4,}$|nccl|dmesg|smi\b|torchelastic")  # names that schedulers give
_WORD = r"(?<![\w\-]){}(?![\w\-])"
# An ordinary word names a run only where it is used as a name: `base` in "the base run", not "alone" in "one alone".
_AS_NAME = (
    r"(?:[`'\"/]{0}[`'\"/]|\b(?:run|job|folder|experiment|log|named|called) {0}\b"
    r"|\b{0} (?:run|job|one|experiment|log|folder)s?\b|\b{0}\.(?:log|txt|out|err|csv|jsonl?|ya?ml|sh)\b)"
)


def left_aside(
    files: Iterable[RunFile], question: str, lines: Callable[[RunFile], list[str]], root: str = ""
) -> dict[str, str]:
    """Folders of runs that are not meant, with a slash at their ends, and logs of such; and why.

    A question that names some of the runs by their folders is about these. Otherwise the newest is meant: what ended
    days before it began, and of which it does not speak, was an earlier one, wherever its log lies.

    Args:
        lines: the first and the last lines of a log.
    """
    files = list(files)
    recalls = _RECALLS.search(question)
    aside = _unnamed(files, question, root)
    if not recalls:
        left = [f for f in files if not any(f.name.startswith(folder) for folder in aside)]
        gap = FAR if _COMPARES.search(question) else LATER
        aside |= _earlier(left, question, lines, root, gap)
    return aside


def _unnamed(files: list[RunFile], question: str, root: str) -> dict[str, str]:
    """Folders and logs of the runs beside those that the question is about by their names; and why.

    A run that is named only to be compared with leaves it open which one is meant.
    """
    aside: dict[str, str] = {}
    if _OTHERS.search(question):
        return aside
    for units in _beside_each_other(files, root):
        named = {name for name in units if _is_named(name, question)}
        if any(not _only_compared(name, question) for name in named):
            why = f"the question is about {', '.join(sorted(named))}"
            others = [name for name in units.keys() - named if not _is_spoken(name, question)]
            aside |= {place: why for name in others for place in units[name]}
    return aside


def _is_spoken(name: str, question: str) -> bool:
    """Whether a name stands anywhere in a question, also as a part of a longer one: `run_inputs.sh` of `inputs`."""
    return re.search(rf"(?<![A-Za-z\d]){re.escape(name)}(?![A-Za-z\d])", question, re.IGNORECASE) is not None


def _only_compared(name: str, question: str) -> bool:
    """Whether a name stands only behind a word that compares with it."""
    at = re.compile(_WORD.format(re.escape(name)), re.IGNORECASE)
    return all(_AGAINST.search(question[: m.start()]) for m in at.finditer(question))


def _beside_each_other(files: Iterable[RunFile], root: str) -> Iterator[dict[str, set[str]]]:
    """Runs beside each other by their names, each with its places: folders (with a slash) and logs of the same kind."""
    for runs in _groups(files, root):
        yield {PurePosixPath(run).name: {f"{run}/"} for run in runs}
    logs: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for f in files:
        path = PurePosixPath(f.name)
        if f.role == "log" and f.name.startswith(root) and not (_PARTS.search(path.stem) or _JOB.search(path.stem)):
            folder = path.parent.as_posix()
            places = {f.name, f"{path.with_suffix('').as_posix()}/"}
            logs[folder, path.suffix][path.stem] |= places
    yield from (units for units in logs.values() if len(units) > 1)


def names_run(question: str, log: str) -> bool:
    """Whether a question names a log's run: the log's own name or one of the folders above it, ordinary words apart."""
    path = PurePosixPath(log)
    words = [w for w in (*path.parts[:-1], path.stem) if not _PARTS.search(w) and len(w) > 2]
    return any(_is_named(word, question) for word in words)


def _is_named(word: str, question: str) -> bool:
    form = _AS_NAME if word.isalpha() else _WORD
    return re.search(form.format(re.escape(word)), question, re.IGNORECASE) is not None


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


def _earlier(
    files: list[RunFile], question: str, lines: Callable[[RunFile], list[str]], root: str, gap: float
) -> dict[str, str]:
    """Logs, and folders of nothing but such, of times that the question does not mean: of all but the newest."""
    logs = {f.name: f for f in files if f.role == "log" and f.name.startswith(root)}
    texts = {name: lines(f) for name, f in logs.items()}
    spans = {name: (min(times), max(times)) for name, text in texts.items() if (times := _dates(text))}
    if not spans:  # no log tells its day: the folders' own times do
        spans = _written(_groups(files, root))
        texts = {name: [] for name in spans}
    meant = _meant(spans, [name for name in spans if names_run(question, name.removeprefix(root))], gap)
    if len(meant) == len(spans):
        return {}
    said = [line for name in meant for line in texts[name]]
    others = {name for name in spans if name not in meant and not _spoken_of(name.removeprefix(root), said)}
    newest = max(meant, key=lambda name: spans[name])
    last = spans[newest] == max(spans.values())
    shown = newest.removeprefix(root)
    why = f"it ended days before {shown} began" if last else f"it is of other days than {shown}, which is asked about"
    return dict.fromkeys(_folders(others, files, logs, root), why)


def _folders(others: set[str], files: list[RunFile], logs: Mapping[str, RunFile], root: str) -> list[str]:
    """Logs and folders, with those above them that hold nothing of another run and no source."""
    held: dict[str, set[str]] = defaultdict(set)
    for name in (f.name for f in files if f.role in ("log", "metrics") or f.name.endswith(".py")):
        for folder in PurePosixPath(name).parents:
            held[f"{folder}/"].add(name)
    inside = {
        name: name in others or any(name.startswith(f"{o}/") for o in others) for name in set().union(*held.values())
    }
    whole = [
        folder for folder, names in held.items()
        if folder not in ("./", root) and folder.startswith(root) and any(inside[n] for n in names)
        and all(inside[n] or (n not in logs and not n.endswith(".py")) for n in names)
    ]  # fmt: skip
    return [*(name if name in logs else f"{name}/" for name in sorted(others)), *whole]


def _meant(spans: Mapping[str, tuple[float, float]], named: list[str], gap: float) -> set[str]:
    """The runs of one time, with no gap between the end of one and the start of the next: the named's, or the last."""
    eras: list[set[str]] = []
    end = float("-inf")
    for name in sorted(spans, key=lambda n: spans[n]):
        if spans[name][0] - end > gap:
            eras.append(set())
        eras[-1].add(name)
        end = max(end, spans[name][1])
    about = [era for era in eras if era & set(named)]
    return set().union(*(about or eras[-1:]))


def _spoken_of(name: str, lines: list[str]) -> bool:
    """Whether a run's own folder or log is named in what another printed."""
    path = PurePosixPath(name)
    own = [w for w in (*path.parts[:-1], path.stem) if not _PARTS.search(w) and len(w) > 2]
    return any(word in line for word in own for line in lines)


def _dates(lines: list[str]) -> list[float]:
    return [s.value for s in map(stamp_of, lines) if s and s.kind == "date"]


def _written(groups: list[dict[str, list[RunFile]]]) -> dict[str, tuple[float, float]]:
    """When the files of runs beside each other were last written; those of a copy are all of one time."""
    found: dict[str, tuple[float, float]] = {}
    for run, files in (item for runs in groups for item in runs.items()):
        try:
            times = [f.path.stat().st_mtime for f in files]
        except OSError:
            return {}
        found[run] = (min(times), max(times))
    return found
