"""Whether a repair repairs: have the fault, diagnose, `doctor apply`, run again, see whether the fault is gone.

`repair.py [TABLE ...] [--only ID ...]` does so for each run whose row says under `repair` what the repaired run must
look like: `ends` (exit status), `lacks` and `shows` (a pattern by file name pattern). One JSON line a run:
struck (the fault was there again), cause (doctor's), patched (a patch was there and applied), clean (all came true).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from carry import Entry, carry_out, lacking, prepared, wanting
from record import HERE, entries, tables

OUT_OF_TIME = 124
DOCTOR = HERE.parent.parent / ".venv" / "bin" / "doctor"


def repaired(run: Entry, doctor: Path) -> dict[str, Any]:
    """Break, diagnose, apply and run again."""
    with tempfile.TemporaryDirectory(prefix="repair-") as scratch:
        work, state = Path(scratch) / "run", Path(scratch) / "state"
        if trouble := prepared(run, work):
            return {"id": run.name, "expected": run.labels["expected"], "struck": False, "patched": False,
                    "clean": False, "why": trouble}  # fmt: skip
        before = _files(work)
        status = carry_out(run, work)
        struck = (status in run.ends or bool(run.stop)) and not lacking(run.shows, work)
        env = {**os.environ, "DOCTOR_STATE": str(state), "NO_COLOR": "1"}
        question = str(run.labels["question"])
        asked = subprocess.run([doctor, "ask", question, "--run", work, "--json", "--quiet"],
                               env=env, cwd=scratch, capture_output=True, check=False)  # fmt: skip
        report: dict[str, Any] = json.loads(asked.stdout) if asked.stdout.strip() else {}
        applied = subprocess.run([doctor, "apply", "last", "--yes"], env=env, cwd=scratch, stdin=subprocess.DEVNULL,
                                 capture_output=True, text=True, check=False)  # fmt: skip
        found = {
            "id": run.name, "expected": run.labels["expected"], "struck": struck,
            "cause": (report.get("root_cause") or {}).get("id"), "patched": applied.returncode == 0,
        }  # fmt: skip
        if not found["patched"]:
            return {**found, "clean": False, "why": (applied.stderr or applied.stdout).strip()[-300:]}
        return {**found, **_again(run, work, before)}


def _again(run: Entry, work: Path, before: set[Path]) -> dict[str, Any]:
    """The run once more from what it started from; `clean`, and else why not."""
    for path in _files(work) - before:
        path.unlink()
    for path in sorted((p for p in work.rglob("*") if p.is_dir() and not any(p.iterdir())), reverse=True):
        if path.name != "home":
            shutil.rmtree(path)
    (work / "home").mkdir(exist_ok=True)
    status = carry_out(run, work)
    ends = run.repair.get("ends", 0)
    wanted = ends if isinstance(ends, list) else [ends]
    why = [f"ended with {status}"] if status not in wanted and not run.stop else []
    if status == OUT_OF_TIME:
        why = [f"did not end within {run.limit:g} s: on a busy machine that says nothing (--slower)"]
    why += [f"lacks {m}" for m in lacking(run.repair.get("shows", {}), work)]
    lacks = run.repair.get("lacks", {})
    why += [f"has {name}: {p}" for name, p in lacks.items() if f"{name}: {p}" not in lacking({name: p}, work)]
    return {"clean": not why, "why": "; ".join(why)}


def _files(work: Path) -> set[Path]:
    return {p for p in work.rglob("*") if p.is_file() or p.is_symlink()}


def main(argv: list[str]) -> int:
    """Print a line for each run and a summary; always 0: what is missed is a figure, not a failure."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("tables", nargs="*", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="ID")
    parser.add_argument("--doctor", type=Path, default=DOCTOR)
    parser.add_argument("--slower", type=float, default=1.0, metavar="N", help="every run may take N times its limit")
    asked = parser.parse_args(argv)
    runs = [run for t in ([p.resolve() for p in asked.tables] or tables()) for run in entries(t)]
    found = []
    for run in runs:
        if run.repair and (not asked.only or run.name in asked.only):
            if lost := wanting(run):
                print(f"{run.name}: passed over, it needs {', '.join(lost)}", file=sys.stderr, flush=True)  # noqa: T201
                continue
            found.append(repaired(replace(run, limit=run.limit * asked.slower), asked.doctor))
            print(json.dumps(found[-1]), flush=True)  # noqa: T201
    count = {key: sum(bool(f[key]) for f in found) for key in ("struck", "patched", "clean")}
    print(json.dumps({"runs": len(found), **count}))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
