"""Damaged downloads named, each with the command that gets it again. Writes nothing and runs nothing."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ...core.errors import ParseError, UsageError
from ...reading.checkpoints.weights import state_of
from ...reading.datasets.dataset_files import sources
from ...reading.datasets.sampling import Look, stream
from ...reading.run.files import RunFile
from ...reading.run.workspace import Workspace
from .copying import Progress, unpacked, word

# ----------
# What is wrong with a downloaded file: gone, empty, a pointer, an error page, cut short, or other bytes than meant.


HEAD = 2048
_STATES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
_RECORDS = (".parquet", ".arrow", ".tar")
_PACKED = (".gz", ".zst", ".bz2", ".xz")
_POINTER = re.compile(
    rb"\Aversion https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\nsize (\d{1,18})\n"
)
_PAGE = re.compile(rb"\A\s*(?:<!doctype html|<html|<\?xml[^>]*>\s*<(?:error|html))", re.IGNORECASE)
_REFUSAL = re.compile(
    rb"\A(?:Entry not found|Repository not found|Invalid username or password|Access to (?:model|dataset)|Not Found"
    rb"|\{\"(?:error|message)\")",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Pointer:
    """What a git-lfs pointer stands for."""

    sha256: str
    size: int


def pointer_of(path: Path) -> Pointer | None:
    """The pointer that a file is; None where it is none."""
    m = _POINTER.match(_head(path))
    return Pointer(m[1].decode(), int(m[2])) if m else None


def damage(path: Path) -> str:
    """What is wrong by existence, size, first bytes and structure; empty where nothing is seen."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) and not path.exists():
            return f"a link to {path.readlink()}, which is not there"
        there = path.stat()
    except OSError:
        return "is not there"
    if not stat.S_ISREG(there.st_mode):
        return "no regular file"
    if there.st_size == 0:
        return "is empty"
    if path.name.endswith((".incomplete", ".aria2", ".crdownload", ".part")):
        return f"a download that never ended, {there.st_size} bytes so far"
    if found := pointer_of(path):
        return f"a git-lfs pointer of {there.st_size} bytes instead of the file of {found.size} bytes"
    return _page(path) or _structure(path)


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as f:
            return f.read(HEAD)
    except OSError:
        return b""


def _page(path: Path) -> str:
    """Whether a server's words stand where data should."""
    head, suffix = _head(path), path.suffix.lower()
    if suffix not in (".html", ".htm", ".xml", ".svg") and _PAGE.match(head):
        return "a web page instead of data: a download that needed a login, or a wrong address"
    if suffix not in (".json", ".jsonl", ".txt", ".md") and len(head) < HEAD and _REFUSAL.match(head):
        said = head.splitlines()[0].decode(errors="replace")[:80]
        return f"a server's refusal instead of data: {said}"
    return ""


def _structure(path: Path) -> str:
    """What the format's own checks say; tensors and cells are not read."""
    name = path.name.lower()
    if name.endswith(_PACKED):
        try:
            torn = any(block is None for block in unpacked(path))
        except UsageError:  # text in UTF-16, which is whole as far as it was read
            torn = False
        return "the packed file is cut off or broken" if torn else ""
    if not name.endswith((*_STATES, *_RECORDS)):
        return ""
    ws = Workspace([path], live=False, may_be_empty=True)
    file = next(iter(ws.files), None)
    if file is None:
        return next((why for _, why in ws.skipped), "")
    if name.endswith(_STATES):
        problems = state_of(ws, file).problems
        return next((p.text for p in problems if p.kind not in ("unknown_format", "dangerous_globals")), "")
    return _records(ws, file)


def _records(ws: Workspace, file: RunFile) -> str:
    """What breaks off a pass over a table or a shard in which no record is wanted."""
    for source in sources(ws, file.name):
        one = Look(source, within=range(0))
        try:
            for _ in stream(ws, source, one):
                pass
        except ParseError as e:
            return str(e)
        if found := next((f.text for f in one.faults if f.kind == "corrupt"), ""):
            return found
    return ""


def other_bytes(path: Path, digest: str, progress: Progress) -> str:
    """Whether the content is not the one a digest was made of: SHA-256, or git's SHA-1 of small files."""
    if len(digest) == 64:
        known = hashlib.sha256()
    else:
        known = hashlib.sha1(usedforsecurity=False)
        known.update(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as f:
        while block := f.read(4 << 20):
            known.update(block)
            progress(len(block))
    if known.hexdigest() == digest:
        return ""
    return f"other bytes than those meant: {known.name} {known.hexdigest()[:16]}..., not {digest[:16]}..."


# ----------
# Where a file was downloaded from, by what lies around it, and the command that gets it again.

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


# ----------
# Where a run's own configs and scripts say that a file comes from: URLs, patterns of shards, an rsync.

_FILES, _BYTES = 200, 1 << 20
# A strict alphabet: what stands in a config goes into a command.
_URL = re.compile(r"\b(?:s3|gs|hf|https?)://[A-Za-z0-9._~/%+@=,-]*(?:\{\d{1,9}\.\.\d{1,9}\}[A-Za-z0-9._~/%+@=,-]*)?")
_SHARDS = re.compile(r"\{(\d+)\.\.(\d+)\}")
_RSYNC = re.compile(r"\brsync\s+((?:-[\w=-]+\s+)*)([\w.@:/~+-]+)\s+(/[\w./+-]+)")
_ADDRESSES_HUB = re.compile(r"^hf://(?:(datasets|spaces)/)?([\w.-]+/[\w.-]+?)(?:@([\w.-]+))?/(.+)$")


def told_by(ws: Workspace, path: Path) -> Iterator[Origin]:
    """Origins that the files of a run name, each once."""
    path = Path(os.path.normpath(Path.cwd() / path))
    seen: set[str] = set()
    for file in ws.by_role("config", "code", "environment")[:_FILES]:
        text = ws.text(file, _BYTES)
        for url in _urls(text, path.name):
            if url not in seen:
                seen.add(url)
                yield Origin(f"{url}, as {file.name} says", _command(url, path))
        for m in _RSYNC.finditer(text):
            source = _synced(m[2], m[3], path)
            if source and source not in seen:
                seen.add(source)
                yield Origin(
                    f"{source}, as an rsync in {file.name} says", [f"rsync -a --checksum {source} {word(path)}"]
                )


def _urls(text: str, name: str) -> Iterator[str]:
    """URLs whose last part is the file, or a pattern of shards that holds it."""
    for m in _URL.finditer(text):
        url = m[0].rstrip(".,")
        last = url.rsplit("/", 1)[-1]
        shards = _SHARDS.search(last)
        if not shards:
            if last == name:
                yield url
            continue
        before, after = last[: shards.start()], last[shards.end() :]
        number = name[len(before) : len(name) - len(after)]
        fits = name.startswith(before) and name.endswith(after) and number.isdigit()
        if fits and len(number) >= len(shards[1]) and int(shards[1]) <= int(number) <= int(shards[2]):
            yield url.replace(shards[0], number)


def _command(url: str, path: Path) -> list[str]:
    if url.startswith("s3://"):
        return [f"aws s3 cp {word(url)} {word(path)}"]
    if url.startswith("gs://"):
        return [f"gcloud storage cp {word(url)} {word(path)}"]
    if m := _ADDRESSES_HUB.match(url):
        kind = f" --repo-type {m[1].removesuffix('s')}" if m[1] else ""
        at = f" --revision {m[3]}" if m[3] else ""
        return [f"hf download {m[2]} {word(m[4])}{kind}{at} --force-download"]
    return [] if url.startswith("hf:") else [f"curl -fL --retry 5 -o {word(path)} {word(url)}"]


def _synced(source: str, target: str, path: Path) -> str:
    """The file's own source, where an rsync filled a folder above it."""
    if source.startswith("-") or source.rstrip("/") == target.rstrip("/"):
        return ""
    folder = PurePosixPath(target)
    if not source.endswith("/"):
        folder /= PurePosixPath(source.rsplit(":", 1)[-1]).name
    if not path.is_relative_to(folder):
        return ""
    return word(f"{source.rstrip('/')}/{path.relative_to(folder).as_posix()}")


# ----------

_REFETCH_FILES = 20_000


@dataclass(slots=True)
class Refetch:
    """One file. `wrong` is empty where nothing is seen; `expected` says what the right content is."""

    path: Path
    wrong: str
    origins: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    expected: str = ""


def refetch(paths: list[Path], runs: list[Path], quick: bool, progress: Progress) -> list[Refetch]:
    """Every named file, and the damaged ones of every named folder.

    Args:
        runs: folders whose configs and scripts say where files come from.
        quick: digests are not compared, which reads every byte.

    Raises:
        UsageError: a folder of too many files.
    """
    ws = Workspace(runs, live=False, may_be_empty=True) if runs else None
    found = []
    for path in paths:
        named = not path.is_dir()
        for file in [path] if named else _below(path):
            one = _look(file, ws, quick, progress)
            if named or one.wrong:
                found.append(one)
    return found


def _below(folder: Path) -> list[Path]:
    files = []
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or ".git" in path.parts or path.suffix in (".lock", ".metadata"):
            continue
        if path.parent.name == "blobs" and not path.name.endswith(".incomplete"):
            continue  # of a hub cache: looked at by their names in the snapshots
        files.append(path)
        if len(files) > _REFETCH_FILES:
            raise UsageError(f"more than {_REFETCH_FILES} files in {folder}", "name a smaller folder, or the files")
    return files


def _look(path: Path, ws: Workspace | None, quick: bool, progress: Progress) -> Refetch:
    own = origin_of(path)
    origins = [*([own] if own else []), *(told_by(ws, path) if ws else ())]
    wrong = damage(path)
    digest = next((o.digest for o in origins if o.digest), "")
    if not wrong and digest and not quick:
        wrong = other_bytes(path, digest, progress)
    return Refetch(
        path, wrong, [o.told for o in origins], list(dict.fromkeys(c for o in origins for c in o.commands)),
        _expected(digest, origins),
    )  # fmt: skip


def _expected(digest: str, origins: list[Origin]) -> str:
    size = next((o.size for o in origins if o.size is not None), None)
    words = [f"{size} bytes"] if size is not None else []
    words += [f"{'SHA-256' if len(digest) == 64 else 'git SHA-1'} {digest}"] if digest else []
    return ", ".join(words)
