"""Carry out the runs of a table and keep what each leaves as an incident: `record.py [TABLE ...] [--only ID ...]`.

With --labels nothing is run: the labels of incidents that are kept already are written anew from their tables.

A table is a folder with a runs.yaml and the training scripts it names. The interpreter that runs this file runs the
trainings too; evals/recorders/requirements.txt says what they need. Without a table all are recorded, `make incidents`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from carry import Entry, carry_out, entry, keep, lacking, prepared, wanting

HERE = Path(__file__).resolve().parent
HEALTHY = HERE.parent / "healthy"
RECORDED = HERE.parent / "recorded"


def tables() -> list[Path]:
    """The folders of all tables of incidents."""
    return sorted(p.parent for p in HERE.glob("*/runs.yaml"))


def entries(table: Path) -> list[Entry]:
    """The runs of one table."""
    rows: dict[str, dict[str, Any]] = yaml.safe_load((table / "runs.yaml").read_text(encoding="utf-8"))
    return [entry(name, table, _healthy(row) if table == HEALTHY else row) for name, row in rows.items()]


def _healthy(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the sound runs says only what is asked in a leading way; the labels of all are the same."""
    row = dict(row)
    asked, short = row.pop("asked"), row.pop("short", False)
    script = row.pop("script")
    with_ = sorted(f"scripts/{p.name}" for p in (HEALTHY / "scripts").glob("*.py") if p.name != script)
    row["labels"] = {
        "family": "none", "difficulty": "easy", "question": "Is my run ok?", "also_asked": [asked],
        "expected": ["none.healthy"], "acceptable": ["none.insufficient_evidence"] if short else [],
    }  # fmt: skip
    left = r"^(?!(train|corpus)\.py$)\w+\.py$"  # of the scripts, only these two stay
    return {**row, "script": f"scripts/{script}", "with": with_, "drops": left}


def record(run: Entry, home: Path) -> str:
    """Record one run into the incident's folder; what is wrong with it, in words, or nothing."""
    with tempfile.TemporaryDirectory(prefix="recorded-") as scratch:
        work = Path(scratch) / "run"
        if trouble := prepared(run, work):
            return trouble
        status = carry_out(run, work)
        size = keep(run, work, home / "files")
    label(run, home)
    missing = lacking(run.shows, home / "files")
    marks = [m for m in run.labels.get("evidence", ()) if m["text"] not in _text(home / "files" / m["file"])]
    print(f"{run.name}: exit {status}, {size / 1000:.0f} kB", file=sys.stderr, flush=True)  # noqa: T201
    if not run.stop and status not in run.ends:
        return f"ended with {status}, not {run.ends}"
    return "; ".join([*(f"lacks {m}" for m in missing), *(f"no line {m['text']!r} in {m['file']}" for m in marks)])


def label(run: Entry, home: Path) -> None:
    """Write the labels of a run's row into its incident."""
    labels = {"id": run.name, "source": f"recorded: {run.framework} ({', '.join(run.loggers)})", **run.labels}
    text = yaml.safe_dump(labels, sort_keys=False, width=120, allow_unicode=True)
    (home / "incident.yaml").write_text(text, encoding="utf-8")


def taken(runs: list[tuple[Path, Entry]]) -> list[str]:
    """Names that two tables give, as `name (table, table)`: each would be recorded over the other's incident."""
    owners: dict[str, set[Path]] = {}
    for table in {*tables(), HEALTHY, *(table for table, _ in runs)}:
        for run in entries(table):
            owners.setdefault(run.name, set()).add(table)
    return [
        f"{name} ({', '.join(sorted(t.name for t in owners[name]))})"
        for name in sorted({run.name for _, run in runs})
        if len(owners[name]) > 1
    ]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def main(argv: list[str]) -> int:
    """Record the asked runs; 1 where one did not come out as its table says, 2 where none can be begun with."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("tables", nargs="*", type=Path, help="folders with a runs.yaml; all tables of incidents")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID")
    parser.add_argument("--labels", action="store_true", help="only write the labels of kept incidents anew")
    asked = parser.parse_args(argv)
    every = [(t, run) for t in ([p.resolve() for p in asked.tables] or tables()) for run in entries(t)]
    if unknown := set(asked.only) - {run.name for _, run in every}:
        print(f"no such run: {', '.join(sorted(unknown))}", file=sys.stderr)  # noqa: T201
        return 2
    runs = [(table, run) for table, run in every if not asked.only or run.name in asked.only]
    if twice := taken(runs):
        print(f"the same name in two tables: {'; '.join(twice)}", file=sys.stderr)  # noqa: T201
        return 2
    return min(sum(_failed(table, run, asked.labels) for table, run in runs), 1)


def _failed(table: Path, run: Entry, labels_alone: bool) -> bool:
    """Record one run, or write its labels, and tell what is to be told of it; whether it did not come out."""
    home = (HEALTHY if table == HEALTHY else RECORDED) / run.name
    if labels_alone:
        if (home / "files").is_dir():
            label(run, home)
        return False
    if lost := wanting(run):
        print(f"{run.name}: passed over, it needs {', '.join(lost)}", file=sys.stderr, flush=True)  # noqa: T201
        return False
    began = time.monotonic()
    trouble = record(run, home)
    if trouble:
        print(f"  ! {run.name} ({time.monotonic() - began:.0f} s): {trouble}", file=sys.stderr, flush=True)  # noqa: T201
    return bool(trouble)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
