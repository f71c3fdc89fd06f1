"""How fast the place is that a job reads from or writes to, measured and compared with what is ordinary."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field

from ..errors import ToolError
from ..playbook import KNOWLEDGE
from ..reading.command_output import fact_of, output_lines
from ..reading.files import Line
from ..shell import Completed
from ..tool import clean, failed, finding, not_applicable, tool
from ..types import Evidence, Risk, ToolResult
from ..workspace import STDIN, Workspace

MEGABYTES, SECONDS, FILES = 256, 20.0, 500
GRACE = 15.0  # seconds beyond its own limit until the child is killed
PROGRAM = "traindoctor.agent.probes.storage"
UNITS = {"write": "write_bytes_per_second", "read": "read_bytes_per_second", "files": "files_per_second",
         "stats": "stats_per_second"}  # fmt: skip


@tool(
    emits=(
        "storage.kind", "storage.write_bytes_per_second", "storage.read_bytes_per_second", "storage.files_per_second",
        "storage.stats_per_second", "storage.slow",
    ),
    risk=Risk.COSTLY,
    live=True,
)  # fmt: skip
def storage_speed(
    ws: Workspace,
    path: Annotated[str, Field(description="folder to measure; else that of the run")] = "",
    megabytes: Annotated[int, Field(description="written and read back", ge=8, le=4096)] = MEGABYTES,
) -> ToolResult:
    """Measure a folder's storage: one large file written, flushed and read, and many small files.

    Use when data loading or saving is slow and storage is suspected. Puts load on the file system for up to twenty
    seconds; refuses where space is short; leaves nothing behind. Compares with what is ordinary for its kind.
    """
    if not ws.live:
        return not_applicable("the run is not this machine's own: its storage is elsewhere")
    folder = _folder(ws, path)
    argv = [sys.executable, "-I", "-m", PROGRAM, str(folder), str(megabytes), f"{SECONDS:g}", str(FILES)]
    done = ws.shell(argv, SECONDS + GRACE)
    said = [(fact, line) for line in output_lines(done.stdout) if (fact := fact_of(line))]
    head = next((fact for fact, _ in said if "folder" in fact), {})
    if done.code is None and head:
        ws.shell([sys.executable, "-I", "-m", PROGRAM, "--remove", str(head["folder"])], GRACE)
    refused = next((str(fact["refused"]) for fact, _ in said if "refused" in fact), "")
    if refused or not head:
        return failed(refused or f"could not be measured: {done.stderr.strip()[-160:] or 'no answer'}")
    kind = _kind(str(head.get("kind", "")))
    evidence = list(_measured(ws, done, said, kind))
    text = "\n".join(f"{e.key} = {e.value}" for e in evidence)
    if done.code != 0:
        return ToolResult("failed", f"{folder} stopped answering within {SECONDS + GRACE:g} s", evidence, text)
    slow = [e for e in evidence if e.key == "storage.slow"]
    words = ", ".join(_words(e) for e in evidence if e.key.endswith("per_second"))
    if slow:
        return finding(f"{', '.join(str(e.value) for e in slow)} ({words})", evidence, text)
    return clean(f"{folder} ({kind['kind']}): {words}", evidence, text)


def _folder(ws: Workspace, path: str) -> Path:
    own = [r for r in ws.roots if r != STDIN]
    folder = Path(path).expanduser() if path else own[0] if own else Path()
    if not folder.exists():
        raise ToolError(f"no such path: {folder}", "name a folder that the job uses")
    return (folder if folder.is_dir() else folder.parent).resolve()


@cache
def _kinds() -> list[dict[str, Any]]:
    text = (KNOWLEDGE / "storage.yaml").read_text(encoding="utf-8")
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))["kinds"]


def _kind(system: str) -> dict[str, Any]:
    return next(k for k in _kinds() if re.search(k["type"], system or "unknown"))


def _measured(
    ws: Workspace, done: Completed, said: list[tuple[dict[str, Any], Line]], kind: dict[str, Any]
) -> Iterator[Evidence]:
    for fact, line in said:
        if "folder" in fact:
            yield ws.answered(done, "storage.kind", kind["kind"], line.text)
        amount, spent = fact.get("bytes", fact.get("count")), fact.get("seconds")
        measure = str(fact.get("measure"))
        if measure not in UNITS or not isinstance(amount, int) or not isinstance(spent, int | float):
            continue
        if amount <= 0 or spent <= 0:
            continue
        rate, least = amount / spent, float(kind["least"][measure])
        yield ws.answered(done, f"storage.{UNITS[measure]}", round(rate), line.text)
        if rate < least:
            what = f"{measure} {rate / least:.0%} of the least that is ordinary for {kind['kind']} storage"
            yield ws.answered(done, "storage.slow", what, line.text)


def _words(e: Evidence) -> str:
    name = e.key.split(".")[1].split("_")[0]
    rate = float(e.value) if isinstance(e.value, int | float) else 0.0
    return f"{name} {rate / 1e6:.0f} MB/s" if "bytes" in e.key else f"{rate:.0f} {name}/s"
