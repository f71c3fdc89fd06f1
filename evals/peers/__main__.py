"""Ask the peers about incidents and print their table: `python -m traindoctor.evals.peers [FOLDER ...] --markdown`."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from ...agent.core.errors import UsageError
from ..case import Case, find
from . import results
from .programs import PROGRAMS, ROOT, Program, all_texts, installed
from .verdicts import Verdict, judge

FOLDERS = tuple(ROOT / "evals" / name for name in ("incidents", "threads", "healthy", "recorded"))


def main(argv: list[str] | None = None) -> int:
    """Run whichever are installed; those that are not are said on the error stream."""
    given = _options().parse_args(argv)
    try:
        cases = [c for c in find(given.folders or FOLDERS) if ":" not in c.id]  # the files alone matter to them
        doctor = {i: right for path in given.doctor for i, right in _doctor(path).items()}
    except UsageError as e:
        sys.stderr.write(f"{e}\n")
        return 2
    versions: dict[str, str | None] = {p.name: "-" if p.name == "grep" else installed(p.name) for p in PROGRAMS}
    verdicts: list[Verdict] = []
    rows = []
    for program in PROGRAMS:
        version = versions[program.name]
        if version is None:
            sys.stderr.write(f"{program.name} is not installed: build/peers/bin/pip install {program.name}\n")
            continue
        own = [_asked(program, case) for case in cases]
        if own and all(v.error for v in own):  # its own fault counts for nothing
            sys.stderr.write(f"{program.name} is not installed so that it runs: {own[0].error}\n")
            continue
        rows.append(results.row(program.name, version, own, doctor))
        verdicts += own
    data = results.as_data(rows, verdicts, Counter(c.folder.parent.name for c in cases))
    sys.stdout.write(results.markdown(data) if given.markdown else json.dumps(data["rows"], indent=1) + "\n")
    try:
        if given.json:
            given.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        if given.into:
            text = given.into.read_text(encoding="utf-8")
            given.into.write_text(results.put_into(text, results.markdown(data)), encoding="utf-8")
    except (UsageError, OSError) as e:  # the minutes of the run are not lost with it: the table is printed
        sys.stderr.write(f"{e}\n")
        return 2
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m traindoctor.evals.peers", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, help="incidents, or folders of them; all by default")
    parser.add_argument("--doctor", type=Path, action="append", default=[], help="output of `doctor eval --json`")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown, not as JSON")
    parser.add_argument("--json", type=Path, help="a file for the rows and every verdict")
    parser.add_argument("--into", type=Path, help="a page whose table is replaced, between its two marks")
    return parser


def _doctor(path: Path) -> dict[str, bool]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {i["id"]: i["exact"] for i in data["incidents"]}
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(f"{path} is no evaluation", "make one with `doctor eval FOLDER --json`") from None


def _asked(program: Program, case: Case) -> Verdict:
    """One question to one program about a copy of the files under a neutral name."""
    with tempfile.TemporaryDirectory(prefix="doctor-peers-") as scratch:
        run, together = Path(scratch) / "run", Path(scratch) / "all.log"
        started = time.perf_counter()
        labels, error = [], ""
        try:
            shutil.copytree(case.files, run, symlinks=True)
            all_texts(run, together)
            started = time.perf_counter()
            labels = program.ask(run, together)
        except subprocess.TimeoutExpired:
            error = "no answer in time"
        except (UsageError, OSError) as e:
            error = str(e)
        return judge(program.name, case, labels, time.perf_counter() - started, error)


if __name__ == "__main__":
    sys.exit(main())
