"""The machine around a job at one moment: GPUs, kernel, disk, memory, limits, environment, packages.

    python -m traindoctor.agent.jobs.supervisor.snapshot FOLDER PID SINCE    < facts of the job as JSON

is a program of its own: everything in it is bounded, and the supervisor stays small. `SINCE` is the job's start on the
kernel's clock: what the kernel said before is not of this job and is left out. Nothing of the job is run, its
interpreter's packages are read from their folders.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .spawn import settle
from .tree import content

EACH = 3.0  # seconds for one command
BYTES = 1 << 18
PACKAGES = 4000
_STAMP = re.compile(r"^(?:<\d+>)?\[ *(\d+\.\d+)\]")
_SECRET = re.compile(r"(?i)(?:^|_)(?:key|token|secret|passw(?:or)?d|credentials?|auth|cookie|dsn|apikey|pat)s?(?:$|_)")
_COMMANDS: dict[str, list[str]] = {
    "nvidia-smi.txt": ["nvidia-smi"],
    "nvidia-smi-q.txt": ["nvidia-smi", "-q"],
    "dmesg.txt": ["dmesg"],
    "df.txt": ["df", "-B1", "-l"],
    "df-inodes.txt": ["df", "-i", "-l"],
    "free.txt": ["free", "-b"],
    "ps.txt": ["ps", "-eo", "pid,ppid,stat,pcpu,rss,etime,comm", "--sort=-rss"],
}  # fmt: skip


def take(folder: Path, pid: int, since: float, facts: dict[str, object]) -> list[str]:
    """Write a snapshot and say which files it has. Never more than a few seconds; what cannot be had is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    texts: dict[str, str] = {}
    run = str(facts.get("run") or "/")
    commands = {n: [*a, run] if n.startswith("df") else a for n, a in _COMMANDS.items()}
    with ThreadPoolExecutor(len(commands)) as pool:
        for (name, argv), text in zip(commands.items(), pool.map(_said, commands.values()), strict=True):
            if text is not None:
                texts[name] = f"$ {' '.join(argv[:2] if name == 'ps.txt' else argv)}\n{_new(text, since, name)}"
    texts["limits.txt"] = _quoted(f"/proc/{pid}/limits")
    texts["mounts.txt"] = _quoted(f"/proc/{pid}/mounts")
    environ = str(facts.get("environ") or content(f"/proc/{pid}/environ", 1 << 18).decode(errors="replace"))
    texts["environment.txt"] = environment(environ)
    texts["packages.txt"] = packages(str(facts.get("python") or ""))
    kept = []
    for name, text in texts.items():
        if text:
            with contextlib.suppress(OSError):
                (folder / name).write_text(_redacted(text)[:BYTES], encoding="utf-8", errors="replace")
                kept.append(name)
    return kept


def environment(held: str) -> str:
    """The variables of a process, one a line; the value of one that is named like a secret is left out."""
    lines = []
    for entry in sorted(held.split("\0")):
        name, found, value = entry.partition("=")
        if found:
            lines.append(f"{name}=<left out>" if _SECRET.search(name) else f"{name}={value}".replace("\n", "\\n"))
    return "".join(f"{line}\n" for line in lines)


def packages(python: str) -> str:
    """The packages that an interpreter sees, read from their folders: `name==version`, one a line."""
    if not python:
        return ""
    places = {Path(python).parent.parent, Path(python).resolve().parent.parent}
    if any((p / "pyvenv.cfg").exists() for p in places):  # an environment of its own sees its own packages alone
        places = {p for p in places if (p / "pyvenv.cfg").exists()}
    found: dict[str, str] = {}
    for place in places:
        for folder in sorted(place.glob("lib*/python3*/*-packages"))[:8]:
            for info in list(folder.glob("*.dist-info"))[:PACKAGES]:
                name, _, version = info.name.removesuffix(".dist-info").partition("-")
                if version:
                    found.setdefault(name.replace("_", "-").lower(), version)
    return "".join(f"{name}=={version}\n" for name, version in sorted(found.items()))


def _said(argv: list[str]) -> str | None:
    program = shutil.which(argv[0], path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        return None
    plain = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            [program, *argv[1:]], capture_output=True, timeout=EACH, stdin=subprocess.DEVNULL, env=plain
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode and not done.stdout:
        return None
    return done.stdout[-BYTES:].decode(errors="replace")


def _new(text: str, since: float, name: str) -> str:
    """Of the kernel's lines those since the job's start; a line without a time belongs to the one before it."""
    if name != "dmesg.txt":
        return "\n".join(text.splitlines()[:200]) + "\n"
    kept, new = [], False
    for line in text.splitlines():
        stamp = _STAMP.match(line)
        new = float(stamp[1]) >= since if stamp else new
        if new:
            kept.append(line)
    return "".join(f"{line}\n" for line in kept[-400:])


def _quoted(path: str) -> str:
    text = content(path, 1 << 16).decode(errors="replace")
    return f"$ cat {path}\n{text}" if text else ""


def _redacted(text: str) -> str:
    from ...safety.redact import Redactor

    return Redactor().redact(text)


def main(argv: list[str]) -> int:
    """The program."""
    settle()
    facts: dict[str, object] = {}
    with contextlib.suppress(ValueError):
        read = json.loads(sys.stdin.read(1 << 20) or "{}")
        facts = read if isinstance(read, dict) else {}
    take(Path(argv[0]), int(argv[1]), float(argv[2]), facts)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
