"""Chroma as a rebuildable cache of vectors.

Chroma's folder is neither crash-safe nor safe for several processes. So a folder is built where nobody reads,
renamed into place under a name of its own, and only copies of it are opened; whoever finds it broken moves it
aside.
`DOCTOR_CHROMA_URL` names a server that a team shares instead.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import uuid
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import numpy as np

MANIFEST = "complete.json"
BATCH = 500
PROBES = 100  # vectors that must find themselves before a folder is published


class StoreBroken(Exception):
    """The stored vectors are missing, damaged or incomplete."""


@dataclass(frozen=True, slots=True)
class Version:
    """One published collection. On a server there is no `folder`, and the server knows the `count`."""

    name: str
    folder: Path | None
    count: int = 0


def server() -> str | None:
    """URL of the shared Chroma server, if one is named."""
    return os.environ.get("DOCTOR_CHROMA_URL") or None


def current(cache: Path, name: str) -> Version | None:
    """The published folder of this content, if there is one. Reads one small file."""
    for folder in sorted((cache / "chroma").glob(f"{name}.*"), reverse=True):
        try:
            count = int(json.loads((folder / MANIFEST).read_text())["count"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        return Version(name, folder, count)
    return None


def build(cache: Path, name: str, vectors: np.ndarray) -> Version:
    """Write vectors (chunks, width) where nobody reads, check them, and publish by renaming.

    The caller holds the build lock, so folders of killed builders may be cleared away.

    Raises:
        StoreBroken: what was written cannot be read back.
    """
    root = cache / "chroma"
    root.mkdir(parents=True, exist_ok=True)
    for left in root.glob("building-*"):
        shutil.rmtree(left, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix="building-", dir=root))
    try:
        client = _client(work, "apply")
        _fill(
            client.create_collection(name, embedding_function=None, metadata={"hnsw:space": "cosine"}),
            vectors,
        )
        _check(client.get_collection(name, embedding_function=None), vectors)
        _close(client)
        (work / MANIFEST).write_text(json.dumps({"count": len(vectors), "files": _digests(work)}))
        target = root / f"{name}.{uuid.uuid4().hex[:8]}"
        os.rename(work, target)  # noqa: PTH104
    finally:
        shutil.rmtree(work, ignore_errors=True)
    _clear(root, keep=name)
    return Version(name, target, len(vectors))


def build_on_server(url: str, name: str, vectors: np.ndarray) -> Version:
    """The same on a server: filled under another name, then renamed. A finished one is left as it is."""
    client = _http(url)
    if name in [c.name for c in client.list_collections()]:
        return Version(name, None, len(vectors))
    work = client.create_collection(
        f"building-{uuid.uuid4().hex[:12]}", embedding_function=None, metadata={"hnsw:space": "cosine"}
    )
    _fill(work, vectors)
    _check(work, vectors)
    work.modify(name=name)
    return Version(name, None, len(vectors))


def nearest(version: Version, url: str | None, vector: np.ndarray, k: int) -> dict[int, float]:
    """Chunk number -> cosine of the `k` nearest chunks, nearest first.

    Raises:
        StoreBroken: fewer vectors than were written.
    """
    if url is None:
        assert version.folder is not None
        (collection, _), count = _opened(version.folder, version.name), version.count
    else:
        collection = _http(url).get_collection(version.name, embedding_function=None)
        count = collection.count()
    wanted = min(k, count)
    if not wanted:
        return {}
    answer = collection.query(query_embeddings=[vector.tolist()], n_results=wanted, include=["distances"])
    numbers, distances = answer["ids"][0], (answer["distances"] or [[]])[0]
    if len(numbers) < wanted:
        raise StoreBroken(f"{len(numbers)} of {wanted} vectors answered")
    return {int(n): 1 - float(d) for n, d in zip(numbers, distances, strict=True)}


def quarantine(version: Version) -> None:
    """Move a broken folder aside, so that the next build makes a new one."""
    if version.folder is not None:
        with contextlib.suppress(OSError):
            os.rename(version.folder, version.folder.with_name(f"broken-{version.folder.name}"))  # noqa: PTH104


def _digests(folder: Path) -> dict[str, str]:
    """Digest of every file of a version, by its path in the folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != MANIFEST:
            with path.open("rb") as file:
                found[str(path.relative_to(folder))] = hashlib.file_digest(file, "blake2b").hexdigest()[:32]
    return found


def _settings(**more: Any) -> Any:
    from chromadb.config import Settings

    return Settings(anonymized_telemetry=False, allow_reset=False, **more)


def _client(folder: Path, migrations: str) -> Any:
    import chromadb

    return chromadb.PersistentClient(str(folder), settings=_settings(migrations=migrations))


@lru_cache(maxsize=4)
def _opened(folder: Path, name: str) -> tuple[Any, Any]:
    """A collection for reading, and the private copy of its folder that lives as long as the process.

    Chroma writes to its files when it opens and even when it queries them, and a damaged vector file can
    crash the process. So what is opened is a copy whose bytes are those that were published.
    `validate` keeps Chroma from creating tables in a folder that lost them.
    """
    copy = tempfile.TemporaryDirectory(prefix="doctor-index-", ignore_cleanup_errors=True)
    private = Path(copy.name)
    shutil.copytree(folder, private, dirs_exist_ok=True)
    if json.loads((folder / MANIFEST).read_text())["files"] != _digests(private):
        raise StoreBroken("files differ from what was published")
    return _client(private, "validate").get_collection(name, embedding_function=None), copy


@lru_cache(maxsize=2)
def _http(url: str) -> Any:
    import chromadb

    at = urlsplit(url)
    secure = at.scheme == "https"
    port = at.port or (443 if secure else 8000)
    return chromadb.HttpClient(at.hostname or "localhost", port, ssl=secure, settings=_settings())


def _close(client: Any) -> None:
    close = getattr(client, "close", None)
    if close is not None:
        close()


def _fill(collection: Any, vectors: np.ndarray) -> None:
    for start in range(0, len(vectors), BATCH):
        part = vectors[start : start + BATCH]
        collection.add(ids=[str(start + i) for i in range(len(part))], embeddings=part)


def _check(collection: Any, vectors: np.ndarray) -> None:
    """A count that is right does not mean that every row can be found, so some are looked for."""
    if collection.count() != len(vectors):
        raise StoreBroken(f"{collection.count()} of {len(vectors)} vectors were stored")
    every = max(1, len(vectors) // PROBES)
    sample = vectors[::every]
    if not len(sample):
        return
    answer = collection.query(query_embeddings=sample, n_results=1, include=["distances"])
    lost = sum(1 for distances in answer["distances"] if not distances or distances[0] > 1e-3)
    if lost:
        raise StoreBroken(f"{lost} of {len(sample)} vectors cannot be found again")


def _clear(root: Path, keep: str) -> None:
    """Drop broken folders and all but the newest published ones; a reader of those falls back to words."""
    for broken in root.glob("broken-*"):
        shutil.rmtree(broken, ignore_errors=True)
    others = [p for p in root.glob("*.*") if p.is_dir() and not p.name.startswith((keep, "building-"))]
    for old in sorted(others, key=lambda p: p.stat().st_mtime)[:-2]:
        shutil.rmtree(old, ignore_errors=True)
