"""Finding the files of a run: links kept inside it, odd things refused and named, standard input spooled."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

from .roles import OWN

FILE_LIMIT = 100_000  # files of one run that are looked at
DEPTH_LIMIT = 24
STDIN_LIMIT = 2 << 30
_PLUMBING = frozenset(
    (".git", "__pycache__", ".venv", "node_modules", ".ipynb_checkpoints", ".mypy_cache", ".ruff_cache")
)

Skip = Callable[[str, str], None]


def walk(root: Path, allowed: list[Path], skip: Skip) -> Iterator[tuple[str, Path, os.stat_result]]:
    """Regular files below a folder as `(name, path, stat)`, in a stable order.

    Args:
        allowed: resolved folders that links may lead into.
        skip: hears of what was found and not taken, with why.
    """
    seen: set[tuple[int, int]] = set()
    stack, count = [(root, 0)], 0
    while stack:
        folder, depth = stack.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda e: os.fsencode(e.name))
        except OSError as e:
            skip(shown_name(folder, root), f"cannot be listed: {e.strerror}")
            continue
        below: list[tuple[Path, int]] = []
        entries.sort(key=_is_link)  # what lies here under its own name comes before what a link calls it
        for entry in entries:
            path = Path(entry.path)
            name = shown_name(path, root)
            info = _look(entry, path, name, allowed, skip)
            if info is None:
                continue
            if stat.S_ISDIR(info.st_mode):
                identity = (info.st_dev, info.st_ino)
                if entry.name in _PLUMBING:
                    continue
                if identity in seen or depth >= DEPTH_LIMIT:
                    skip(name, "a link to a folder that is read already" if identity in seen else "too deep")
                    continue
                seen.add(identity)
                below.append((path, depth + 1))
                continue
            count += 1
            if count > FILE_LIMIT:
                skip(shown_name(root, root) or str(root), f"more than {FILE_LIMIT} files: the rest was not looked at")
                return
            yield name, path, info
        stack += reversed(below)


def _is_link(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_symlink()
    except OSError:
        return False


def _look(entry: os.DirEntry[str], path: Path, name: str, allowed: list[Path], skip: Skip) -> os.stat_result | None:
    """What stands at an entry, or None where it must not be read."""
    if OWN.match(entry.name):
        return None
    try:
        if entry.is_symlink():
            target = path.resolve(strict=True)
            if not any(target.is_relative_to(folder) for folder in allowed):
                skip(name, "a link that leads out of the run (name its folder with --also to follow it)")
                return None
        info = entry.stat()
    except (OSError, RuntimeError) as e:
        skip(
            name, "a loop of links" if isinstance(e, RuntimeError) or e.errno == 40 else f"cannot be read: {e.strerror}"
        )
        return None
    if stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode):
        return info
    kind = next((word for test, word in _ODD if test(info.st_mode)), "special file")
    skip(name, f"a {kind}, not a regular file")
    return None


_ODD: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISFIFO, "named pipe"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
)


def shown_name(path: Path, root: Path) -> str:
    """The name inside the run; bytes that are no UTF-8 and control characters made visible."""
    text = os.fsencode(path.relative_to(root)).decode(errors="backslashreplace")
    return text.replace("\n", "\\n").replace("\r", "\\r") if text != "." else ""


def spool() -> tuple[Path, bool]:
    """Standard input as a private temporary file, and whether it was longer than is kept.

    The file is removed when the interpreter ends.
    """
    import atexit

    fd, name = tempfile.mkstemp(prefix="doctor-stdin-")
    atexit.register(lambda: Path(name).unlink(missing_ok=True))
    left = STDIN_LIMIT
    with os.fdopen(fd, "wb") as into:
        while left > 0 and (block := sys.stdin.buffer.read(min(1 << 20, left))):
            into.write(block)
            left -= len(block)
    return Path(name), left <= 0


# ----------
# A folder that `doctor collect` brought together from many nodes: which of its folders is which node.

SCHEMA = "traindoctor.nodes/1"
MANIFEST = "manifest.json"
_LIMIT = 4 << 20


def hosts_of(root: Path) -> dict[str, str]:
    """Names of nodes by the folder, right below the root, that holds what they handed over. Usually none."""
    try:
        with (root / MANIFEST).open("rb") as stream:
            head = stream.read(_LIMIT)
        said = json.loads(head) if SCHEMA.encode() in head[:200] else {}
        return {str(n["folder"]): str(n["node"]) for n in said.get("nodes", []) if n.get("folder")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


# ----------
# What file and folder names tell: the rank, host, attempt or variant that a file belongs to.

_RANK = re.compile(
    r"(?:^|[-_.])(?:(?:global_?)?rank[-_.]?|proc(?:ess)?[-_](?=\d{1,3}(?!\d)))(\d{1,5})(?![\d])", re.IGNORECASE
)
_HOST = re.compile(
    r"(?:^|[-_.])((?:node|host|worker|gpu-?node|machine|pod|ip)(?:[-_][a-z0-9]{1,12}|\d+)(?:-\d+)*)(?=$|[-_.])",
    re.IGNORECASE,
)
_ATTEMPT = re.compile(r"(?:^|[-_.])(?:attempt|restart|retry|try|requeue)[-_]?(\d{1,4})(?=$|[-_.])", re.IGNORECASE)
_SUPERVISED = re.compile(r"(?:^|/)try_(?P<attempt>\d{1,6})/(?:ranks/(?:[^/]+/)?attempt_(?P<restart>\d{1,4})/)?")
_KIND = re.compile(
    r"^(?:run|exp|experiment|trial|train|training|job|log|logs|config|conf|cfg|sweep|variant|case|setting|settings|model|ds"
    r"|test|eval|minimal|min|repro|bench|output|metrics|launch|finetune|sft|grpo|ppo|good|bad|baseline|resume|results?|profile)$",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"^([a-z]{1,12})[-_]?(\d[\d.e\-]*)$", re.IGNORECASE)
_NOT_VARIANT = re.compile(
    r"^(?:rank|node|host|worker|gpu|step|epoch|iter|part|shard|chunk|proc|process|local|slurm|version|attempt|pid|checkpoint)$",
    re.I,
)
_TELLING = re.compile(
    r"\d|^[a-z]$|^(?:good|bad|ok|baseline|base|with|without|before|after|old|new|on|off|fail|failing|work|works|working|slow|fast|ref|reference|[a-z]_\w+)$",
    re.I,
)
# Parts of one run rather than runs beside each other: `train_server.log` and `train_client.log`.
_PART = re.compile(
    r"^(?:train\w*|eval\w*|valid\w*|val|test\w*|stdout|stderr|out|err|main|workers?|driver|client|engine|rollout|actor|critic"
    r"|reward\w*|router|head|launch\w*|console|full|tail|excerpt|stats?|summary|data\w*|model\w*|configs?|metrics|env\w*|pip\w*|gpu_?poll\w*"
    r"|versions?|debug\w*|nccl\w*|dmesg\w*|trace\w*|report|info|final|latest|start|end|loss\w*|generat\w*|infer\w*|sampl\w*|log|history)$",
    re.I,
)
_PLAIN_FOLDER = re.compile(
    r"^(?:logs?|configs?|conf|output|outputs|results?|checkpoints?(?:-\d+)?|global_step\w*|iter_\d+|data|code|src|scripts?"
    r"|metrics|wandb|tensorboard|tb|runs|files|nodes?|ranks?|\d+|attempt_\d+|events?|captures?|env|doctor-run)$",
    re.I,
)
_VARIANT_ROLES = ("log", "config", "metrics")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file belongs, as far as its name tells."""

    rank: int | None = None
    host: str | None = None
    attempt: int | None = None
    variant: str | None = None


def places(files: Iterable[tuple[str, str]], hosts: Mapping[str, str] | None = None) -> dict[str, Place]:
    """Place every file of one run.

    Args:
        files: `(name, role)`; names are relative to the run.
        hosts: nodes by the topmost folder that holds their files, where somebody wrote down which is which. Nodes of
            one run are no variants of each other.
    """
    known = list(files)
    if hosts:
        below = {name: name.partition("/")[2] if name.partition("/")[0] in hosts else name for name, _ in known}
        return {name: _place(below[name], None, hosts.get(name.partition("/")[0])) for name in below}
    variants = _variants(known)
    return {name: _place(name, variants.get(name)) for name, _ in known}


def _place(name: str, variant: str | None, known_host: str | None = None) -> Place:
    parts = list(PurePath(name).parts)
    stem = _stem(parts[-1])
    whole = [*parts[:-1], stem]
    attempt = next((int(m[1]) for p in reversed(whole) if (m := _ATTEMPT.search(p))), None)
    if (own := _SUPERVISED.search(name)) is not None:
        # torchelastic counts its restarts within one start from 0: the same failure there and in console.log is one
        attempt = int(own["attempt"]) + (int(own["restart"]) if own["restart"] else 0)
    rank = next((int(m[1]) for p in reversed(whole) if (m := _RANK.search(p))), None)
    if rank is None and attempt is not None and len(parts) > 1 and parts[-2].isdigit():
        rank = int(parts[-2])  # torchelastic: attempt_0/3/stderr.log
    host = next((m[1] for p in reversed(whole) if (m := _HOST.search(p))), None)
    return Place(rank, known_host or host, attempt, variant)


def _stem(base: str) -> str:
    return re.sub(
        r"(\.(log|out|err|txt|ya?ml|json[l5c]?|csv|tsv|sh|toml|stdout|stderr|gz|zst|bz2|xz|py|cfg|ini))+$", "", base
    )


def _variants(files: list[tuple[str, str]]) -> dict[str, str]:
    """Files whose names differ in one telling part belong to variants named by it; logs decide, configs follow."""
    tags: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, role in files:
        if role in _VARIANT_ROLES and (split := _split(name)):
            tags[f"{role}:{split[0]}"][split[1]].append(name)
    found: dict[str, str] = {}
    known: set[str] = set()
    for group in tags.values():
        apart = [tag for tag in group if not _PART.match(tag)]
        if len(group) > 1 and (any(_TELLING.search(tag) for tag in group) or len(apart) == len(group)):
            known |= set(group)
            found |= {name: tag for tag, names in group.items() for name in names}
    for group in tags.values():
        found |= {name: tag for tag, names in group.items() if tag in known for name in names}
    return _by_folder(files) | found


def _split(name: str) -> tuple[str, str] | None:
    """`run_a.log` -> (run, a); `cp2.log` -> (cp, cp2); None where the name tells no variant."""
    path = PurePath(name)
    stem = _stem(path.name)
    if _RANK.search(stem) or _ATTEMPT.search(stem):
        return None
    folder = str(path.parent)
    first, _, rest = stem.partition("_") if "_" in stem else stem.partition("-")
    if rest and (_KIND.match(first) or not (_NOT_VARIANT.match(first) or _PART.match(first) or _HOST.match(first))):
        tail = re.split(r"[_-]", rest)[-1]
        longer = rest.rpartition("_")[0]
        if longer and re.fullmatch(r"\d[\w.]*", tail) and not _NUMBERED.match(rest):
            return f"{folder}/{first}_{longer}", tail
        return f"{folder}/{first}", rest
    m = _NUMBERED.match(stem)
    return (f"{folder}/{m[1]}#", stem) if m and not _NOT_VARIANT.match(m[1]) else None


def _by_folder(files: list[tuple[str, str]]) -> dict[str, str]:
    """Sibling folders that each hold logs or metrics are variants, unless they are ranks, attempts or plumbing."""
    holding: dict[str, set[str]] = defaultdict(set)
    for name, role in files:
        parts = PurePath(name).parts
        if len(parts) > 1 and role in _VARIANT_ROLES:
            top = parts[0]
            if not (_PLAIN_FOLDER.match(top) or _RANK.search(top) or _ATTEMPT.search(top) or _HOST.search(top)):
                holding[top].add(role)
    rivals = [top for top, roles in holding.items() if roles & {"log", "metrics"}]
    if len(rivals) < 2:
        return {}
    return {name: PurePath(name).parts[0] for name, _ in files if PurePath(name).parts[0] in rivals}
