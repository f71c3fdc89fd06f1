"""What file and folder names tell: the rank, host, attempt or variant that a file belongs to."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

_RANK = re.compile(r"(?:^|[-_.])(?:global_?)?rank[-_.]?(\d{1,5})(?![\d])", re.IGNORECASE)
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
    r"^(?:rank|node|host|worker|gpu|step|epoch|iter|part|shard|chunk|proc|local|slurm|version|attempt|pid|checkpoint)$",
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
