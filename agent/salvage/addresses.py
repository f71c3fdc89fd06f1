"""Where a run's own configs and scripts say that a file comes from: URLs, patterns of shards, an rsync."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ..workspace import Workspace
from .origins import Origin
from .quoting import word

_FILES, _BYTES = 200, 1 << 20
# A strict alphabet: what stands in a config goes into a command.
_URL = re.compile(r"\b(?:s3|gs|hf|https?)://[A-Za-z0-9._~/%+@=,-]*(?:\{\d{1,9}\.\.\d{1,9}\}[A-Za-z0-9._~/%+@=,-]*)?")
_SHARDS = re.compile(r"\{(\d+)\.\.(\d+)\}")
_RSYNC = re.compile(r"\brsync\s+((?:-[\w=-]+\s+)*)([\w.@:/~+-]+)\s+(/[\w./+-]+)")
_HUB = re.compile(r"^hf://(?:(datasets|spaces)/)?([\w.-]+/[\w.-]+?)(?:@([\w.-]+))?/(.+)$")


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
    if m := _HUB.match(url):
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
