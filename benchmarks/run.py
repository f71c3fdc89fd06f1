"""All measurements in one table, medians of several runs, ratios against a peer measured in the same run.

    python -m benchmarks.run [--only NAME ...] [--runs N] [--json FILE]

A file `benchmarks/NAME.py` that prints one JSON mapping when run alone is found and run by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
DEMO = FOLDER.parent / "evals" / "demo" / "files"
PEER = [sys.executable, "-c", "import typer, rich.console, pydantic"]
DOCTOR = [sys.executable, "-c", "from traindoctor.agent.doors.cli import main; raise SystemExit(main())"]
LIMIT = 3600.0  # seconds that one file may take


def seconds(argv: list[str], runs: int) -> float:
    """Median wall-clock seconds of a command, after one run that warms the caches."""
    found = []
    for number in range(runs + 1):
        began = time.perf_counter()
        subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True)
        if number:
            found.append(time.perf_counter() - began)
    return statistics.median(found)


def command_line(runs: int) -> dict[str, Any]:
    """Start-up and a whole small diagnosis, against the import that any such command needs."""
    peer = seconds(PEER, runs)
    shown = seconds([*DOCTOR, "--help"], runs)
    asked = seconds([*DOCTOR, "ask", "Is it the network?", "--run", str(DEMO), "--offline", "--quiet"], runs)
    return {
        "import typer, rich.console, pydantic (s)": round(peer, 3),
        "doctor --help (s)": round(shown, 3),
        "doctor --help, times the import": budget(shown / peer, 2),
        "doctor ask --offline, small incident (s)": round(asked, 3),
        "doctor ask --offline, times the import": budget(asked / peer, 6),
    }


def budget(value: float, most: float) -> str:
    """A ratio beside what it may be."""
    return f"{value:.2f} (at most {most:g}{'' if value <= most else ', MISSED'})"


def others(only: list[str]) -> dict[str, Any]:
    """What the other files of this folder print, by name; a failure is told and costs only itself."""
    found: dict[str, Any] = {}
    for path in sorted(FOLDER.glob("*.py")):
        if path.stem.startswith("_") or path.stem == "run" or (only and path.stem not in only):
            continue
        sys.stderr.write(f"{path.stem} ...\n")
        done = subprocess.run(
            [sys.executable, str(path)], capture_output=True, text=True, timeout=LIMIT, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            found[path.stem] = json.loads(done.stdout)
        except ValueError:
            found[path.stem] = {"failed": (done.stderr.strip().splitlines() or ["printed no JSON"])[-1]}
    return found


def rows(found: Any, before: str = "") -> list[tuple[str, str]]:
    """A nested mapping as lines of a table."""
    if not isinstance(found, dict):
        return [(before, str(found))]
    return [row for name, value in found.items() for row in rows(value, f"{before}{': ' if before else ''}{name}")]


def main() -> None:
    """Measure, print the table, keep the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="names of files, or `command_line`")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", type=Path, default=FOLDER.parent / ".bench" / "results.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.update(DOCTOR_CACHE=f"{scratch}/cache", DOCTOR_STATE=f"{scratch}/state")
        found: dict[str, Any] = {"machine": f"{platform.machine()}, {os.cpu_count()} cores, "
                                            f"Python {platform.python_version()}"}  # fmt: skip
        if not arguments.only or "command_line" in arguments.only:
            found["command line"] = command_line(arguments.runs)
        found |= others(arguments.only)
    table = rows(found)
    width = max(len(name) for name, _ in table)
    for name, value in table:
        sys.stdout.write(f"{name:<{width}}  {value}\n")
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    sys.stderr.write(f"kept in {arguments.json}\n")


if __name__ == "__main__":
    main()
