"""Write the pages that are made from the code: `make docs`. A test compares them with what this would write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
COMMANDS = (
    (), ("ask",), ("triage",), ("playbook",), ("playbook", "list"), ("playbook", "show"),
    ("playbook", "check"), ("playbook", "coverage"), ("index",), ("index", "build"), ("index", "add"),
    ("index", "remove"), ("index", "search"), ("index", "status"), ("eval",), ("sessions",), ("sessions", "show"),
    ("config",), ("config", "show"),
)  # fmt: skip

HEAD = """# The command line

Made from `doctor --help` by `make docs`.

Exit codes: `0` a report was made, whatever it says (or the command did its work); `1` `--fail-on` was met, or
`doctor playbook check` found a fault; `2` wrong usage, no such path; `3` nothing readable in any role;
`130` interrupted. Answers go to standard output, progress and complaints to standard error.

`doctor tool` lists the diagnostics; `doctor tool NAME [PATHS]...` runs one alone, with the options of its own
signature (`doctor tool NAME --help`) and `--json`.
"""


def schema() -> str:
    """The JSON schema of a report, as `doctor ask --json` prints it."""
    from traindoctor.agent.report import SCHEMA, Report

    found = Report.model_json_schema(mode="serialization", by_alias=True)
    return json.dumps({"$id": SCHEMA, **found}, indent=2) + "\n"


def command_line() -> str:
    """The help of every command."""
    parts = [HEAD]
    for command in COMMANDS:
        parts.append(f"## {' '.join(('doctor', *command))}\n\n```text\n{_help(command)}\n```\n")
    return "\n".join(parts)


def _help(command: tuple[str, ...]) -> str:
    code = "from traindoctor.agent.cli import main; raise SystemExit(main())"
    size = {"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1", "TERM": "dumb"}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DOCTOR_")} | size
    done = subprocess.run(
        [sys.executable, "-c", code, *command, "--help"], capture_output=True, text=True, check=True, env=environment
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines()).strip("\n")


PAGES = {"report.schema.json": schema, "cli.md": command_line}

if __name__ == "__main__":
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")
        sys.stderr.write(f"wrote docs/{name}\n")
