"""The programs themselves: how each is asked about the files of a run, and its answers in its own order.

A peer gets its best shot: where a program reads files singly, it is asked about the folder and about all texts in one,
and everything it says is put in the order that the program itself gives (by severity, or by the order of its rules).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...agent.core.errors import UsageError
from ..solvers.texts import texts

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / "build" / "peers"
LIMIT = 60.0  # seconds for each question to a program
_PICKLES = frozenset({".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".joblib", ".zip", ".npy", ".npz"})
_ORDER = ("critical", "warning")  # of runmedic's severities; what is `info` is no answer
_GPUALERT = """
import sys
from gpualert.parse_errors import parse_errors
print(parse_errors("", open(sys.argv[1], encoding="utf-8", errors="replace").read()).partition("\\n")[0])
"""
_VERSION = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"


@dataclass(frozen=True, slots=True)
class Program:
    """One peer. `ask` gets the folder of the files and the file that holds all texts, and gives labels, best first."""

    name: str
    ask: Callable[[Path, Path], list[str]]


def installed(name: str) -> str | None:
    """The version of a program in the peers' environment; None where it is not installed."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.is_file():
        return None
    done = subprocess.run([python, "-c", _VERSION, name], capture_output=True, text=True, timeout=LIMIT)
    return done.stdout.strip() if done.returncode == 0 else None


def all_texts(files: Path, into: Path) -> None:
    """Every text of a run in one file, in order of their names."""
    with into.open("w", encoding="utf-8") as out:
        for _, path in texts(files):
            out.write(path.read_text(encoding="utf-8", errors="replace").rstrip("\n") + "\n")


def _said(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(ENVIRONMENT / "bin" / words[0]), *map(str, words[1:])]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, errors="replace")


def _runmedic(files: Path, together: Path) -> list[str]:
    found: list[tuple[int, str]] = []
    for path in (files, together):
        done = _said("runmedic", "diagnose", path, "--json")
        try:
            runs = json.loads(done.stdout)
        except ValueError:  # one line of text where it finds neither metrics nor logs
            continue
        for run in runs:
            found += [(_ORDER.index(f["severity"]), f["check"]) for f in run["findings"] if f["severity"] in _ORDER]
    return list(dict.fromkeys(check for _, check in sorted(found, key=lambda f: f[0])))


def _gpualert(files: Path, together: Path) -> list[str]:
    said = _said("python", "-c", _GPUALERT, together)
    if said.returncode:
        raise UsageError("gpualert did not answer", said.stderr.strip()[-200:] or "see its own messages")
    return [said.stdout.strip()] if said.stdout.strip() else []


def _picklescan(files: Path, together: Path) -> list[str]:
    if not any(path.suffix in _PICKLES for path in files.rglob("*")):
        return []
    return ["dangerous"] if _said("picklescan", "--path", files).returncode == 1 else []


def _grep(files: Path, together: Path) -> list[str]:
    from ..asked import Task
    from ..score import HEALTHY
    from ..solvers import grep

    report = grep.solve(Task(files, "", files / "shell.json"))
    return [] if report.root_cause.id == HEALTHY else [d.id for d in report.differential]


PROGRAMS = tuple(
    Program(name, ask)
    for name, ask in (("runmedic", _runmedic), ("gpualert", _gpualert), ("picklescan", _picklescan), ("grep", _grep))
)
