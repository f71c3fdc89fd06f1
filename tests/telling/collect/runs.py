"""Runs to collect, and how a bundle is made and opened in the tests."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from traindoctor.agent.core.shell import Live, Recording
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.telling.collect.bundle import Bundle, collect

SECRET = "hf_" + "abcdefghij" * 3 + "abcd"


def bundled(job: Path, out: Path, question: str = "", **more: Any) -> Bundle:
    """A bundle of a folder, without its machine."""
    shell = Recording(Live())
    return collect(Workspace([job], live=False, shell=shell), shell, out, question, **more)


def unpacked(bundle: Path, into: Path) -> Path:
    """The folder that a bundle holds."""
    with tarfile.open(bundle) as tar:
        tar.extractall(into, filter="data")
    return next(into.iterdir())


def manifest_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


def everything(folder: Path) -> bytes:
    """Every byte and every name of an unpacked bundle."""
    paths = sorted(folder.rglob("*"))
    return b"\n".join([str(p).encode() for p in paths] + [p.read_bytes() for p in paths if p.is_file()])
