"""Where a file was downloaded from, by what lies around it, and the command that gets it again."""

from __future__ import annotations

import fnmatch
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from .damage import pointer_of
from .quoting import word

_HUB = re.compile(r"^(models|datasets|spaces)--(.+)$")
_NAME = re.compile(r"^[\w.-]+(?:/[\w.-]+)?$")
_REVISION = re.compile(r"^[0-9a-f]{40}$")
_DIGEST = re.compile(r'^"?([0-9a-f]{40}|[0-9a-f]{64})"?$')
_MARKS = (".cache/huggingface/download", ".huggingface/download")
_TYPES = {"models": "", "datasets": " --repo-type dataset", "spaces": " --repo-type space"}
_BUILT = re.compile(r"/datasets/(?P<name>[\w.-]+)/(?P<config>[\w.-]+)/[\w.-]+/[\w.-]+/[^/]+\.arrow$")


@dataclass(slots=True)
class Origin:
    """Where a file comes from.

    Attributes:
        told: in words, with what says so.
        commands: that get it again.
        digest: SHA-256 or git's SHA-1 of the right content, where it is known.
        size: its bytes, where they are known.
    """

    told: str
    commands: list[str] = field(default_factory=list)
    digest: str = ""
    size: int | None = None


def origin_of(path: Path) -> Origin | None:
    """The origin by the layout of caches and clones; None where nothing tells."""
    path = Path(
        os.path.normpath(Path.cwd() / path)
    )  # links are kept: in a hub cache they lead to a blob without a name
    return _hub(path) or _local(path) or _lfs(path) or _built(path)


def _hub(path: Path) -> Origin | None:
    """A file of the hub's cache: `models--org--name/snapshots/REV/file`, a link to `blobs/DIGEST`."""
    for folder in path.parents:
        m = _HUB.match(folder.name)
        if m is None:
            continue
        kind, name = m[1], m[2].replace("--", "/", 1)
        if not _NAME.match(name):
            return None
        inside = path.relative_to(folder).parts
        if inside[0] == "blobs":
            snapshot = _named(folder, path.name.removesuffix(".incomplete"))
            inside = snapshot.relative_to(folder).parts if snapshot else inside
        command = f"hf download {name}"
        digest = ""
        if inside[0] == "snapshots" and len(inside) > 2 and _REVISION.match(inside[1]):
            file = "/".join(inside[2:])
            command += f" {word(file)}{_TYPES[kind]} --revision {inside[1]}"
            blob = folder.joinpath(*inside).resolve().name
            digest = blob if _DIGEST.match(blob) else ""
        else:
            command += _TYPES[kind]
        cache = "" if folder.parent == _default_cache() else f" --cache-dir {word(folder.parent)}"
        return Origin(f"{name} on the Hugging Face hub (its cache)", [f"{command}{cache} --force-download"], digest)
    return None


def _default_cache() -> Path:
    home = os.environ.get("HF_HOME") or str(Path.home() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub")


def _named(folder: Path, blob: str) -> Path | None:
    """The name that a blob has in some snapshot."""
    links = (p for p in sorted((folder / "snapshots").rglob("*")) if p.is_symlink())
    return next((p for p in links if p.readlink().name == blob), None)


def _local(path: Path) -> Origin | None:
    """A file of `hf download --local-dir`, beside which a note is kept with revision and digest."""
    for folder in path.parents:
        for mark in _MARKS:
            file = path.relative_to(folder).as_posix()
            try:
                lines = (folder / mark / f"{file}.metadata").read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                continue
            if len(lines) < 2 or not _REVISION.match(lines[0].strip()):
                return None
            name, said = _repository(folder)
            m = _DIGEST.match(lines[1].strip())
            told = f"{name} on the Hugging Face hub{said} (downloaded into {folder})"
            command = f"hf download {name} {word(file)} --revision {lines[0].strip()} --local-dir {word(folder)}"
            return Origin(told, [f"{command} --force-download"], m[1] if m else "")
    return None


def _repository(folder: Path) -> tuple[str, str]:
    """The repository's name, which the notes do not hold: as the model's own config says, else left open."""
    try:
        name = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("_name_or_path")
    except (OSError, ValueError, AttributeError):
        name = None
    if isinstance(name, str) and _NAME.match(name) and "/" in name:
        return name, ", as config.json says"
    return "<repo>", ", its name is not recorded"


def _lfs(path: Path) -> Origin | None:
    """A file of a git clone that git-lfs keeps: a pointer, or named by .gitattributes."""
    root = next((f for f in path.parents if (f / ".git").exists()), None)
    pointer = pointer_of(path)
    if root is None:
        told = "a git-lfs repository, of which no clone is around it"
        return Origin(told, [], pointer.sha256, pointer.size) if pointer else None
    file = path.relative_to(root).as_posix()
    if pointer is None and not _kept_by_lfs(root, file):
        return None
    pull = f"git -C {word(root)} lfs pull --include={word(file)}"
    aside = "" if pointer or not path.exists() else f"mv {word(path)} {word(str(path) + '.bad')} && "
    origin = Origin(f"git-lfs in the clone {root}", [aside + pull])
    if pointer:
        origin.digest, origin.size = pointer.sha256, pointer.size
    return origin


def _kept_by_lfs(root: Path, file: str) -> bool:
    try:
        lines = (root / ".gitattributes").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    patterns = [line.split()[0].lstrip("/") for line in lines if "filter=lfs" in line.split()[1:]]
    return any(fnmatch.fnmatchcase(file if "/" in p else file.rsplit("/", 1)[-1], p) for p in patterns)


def _built(path: Path) -> Origin | None:
    """A table that the datasets library built in its own cache."""
    m = _BUILT.search(path.as_posix())
    if m is None:
        return None
    name = m["name"].replace("___", "/", 1)
    call = f"load_dataset({name!r}, {m['config']!r}, download_mode='force_redownload')"
    return Origin(f"built by datasets from {name}", [f'python -c "from datasets import load_dataset; {call}"'])
