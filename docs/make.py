"""Write the pages that are made from the code: `make docs`. A test compares them with what this would write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
HEAD = """# The command line

Made from `doctor --help` by `make docs`.

Exit codes: `0` a report was made, whatever it says (or the command did its work); `1` `--fail-on` was met, or
`doctor playbook check` found a fault; `2` wrong usage, no such path; `3` nothing readable in any role; `4` a required
model failed (`--require-model`; the report was made without it); `130` interrupted. Answers go to standard output,
progress and complaints to standard error.

`doctor tool` lists the diagnostics; `doctor tool NAME [PATHS]...` runs one alone, with the options of its own
signature (`doctor tool NAME --help`) and `--json`.
"""


def schema() -> str:
    """The JSON schema of a report, as `doctor ask --json` prints it."""
    from traindoctor.agent.core.report import SCHEMA, Report

    found = Report.model_json_schema(mode="serialization", by_alias=True)
    return json.dumps({"$id": SCHEMA, **found}, indent=2) + "\n"


def commands() -> list[tuple[str, ...]]:
    """Every command and group, as the command line declares them; the diagnostics have a page of their own."""
    import typer
    from traindoctor.agent.doors.cli import app

    def below(found: Any, path: tuple[str, ...]) -> list[tuple[str, ...]]:
        inner = getattr(found, "commands", {})
        return [path, *(c for name, each in inner.items() if name != "tool" for c in below(each, (*path, name)))]

    return below(typer.main.get_command(app), ())


def command_line() -> str:
    """The help of every command."""
    parts = [HEAD]
    for command in commands():
        parts.append(f"## {' '.join(('doctor', *command))}\n\n```text\n{_help(command)}\n```\n")
    return "\n".join(parts)


def _help(command: tuple[str, ...]) -> str:
    code = "from traindoctor.agent.doors.cli import main; raise SystemExit(main())"
    size = {"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1", "TERM": "dumb"}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DOCTOR_")} | size
    done = subprocess.run(
        [sys.executable, "-c", code, *command, "--help"], capture_output=True, text=True, check=True, env=environment
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines()).strip("\n")


TOOLS_HEAD = """# The diagnostics

Made from the tools' own declarations by `make docs`. Each runs alone as `doctor tool NAME [PATHS]...`, with its
options and `--json`; in a diagnosis the planner calls them by itself.

Risk: **read** reads files of the run and asks the machine passively, unasked; **probe** attaches to a live process;
**costly** puts load on the machine or runs code of yours; **write** writes new files. What is above `read` runs only
after a question, or with `--allow`. A *live* tool can look at this machine; in a diagnosis it does so only where
the run was made here, lately, or where processes were named with `--pid`.

[counterparts.md](counterparts.md) says which of them answers for the scripts that guides tell you to run.
"""


FOLKLORE_HEAD = """# Settings that do nothing, or not what is believed

Made from `knowledge/folklore.yaml` by `make docs`. `doctor tool lint-settings` finds them in a run's files
(`lint.folklore_setting`), `doctor preflight` before a start, and no playbook recommends one.

| setting | where | what is wrong with it | what works | looked up in |
|---|---|---|---|---|
"""


def folklore() -> str:
    """Every setting that circulates and has no effect, with what to set instead and where that was looked up."""
    import yaml
    from traindoctor.agent.core.playbook import KNOWLEDGE

    def cell(text: str) -> str:
        return " ".join(text.split()).replace("|", "\\|")

    rows = []
    for e in yaml.safe_load((KNOWLEDGE / "folklore.yaml").read_text(encoding="utf-8")):
        spelled = f"`{cell(e['spelled'])}`" + (f" with `{cell(e['value'])}`" if "value" in e else "")
        where, sources = ", ".join(e.get("in", [])) or "any", "; ".join(e["sources"])
        cells = (spelled, where, *map(cell, (e["says"], e["works"], sources)))
        rows.append(f"| {' | '.join(cells)} |\n")
    return FOLKLORE_HEAD + "".join(rows)


def tools() -> str:
    """Every diagnostic: what it does, when to use it, its options, the evidence it gives."""
    from traindoctor.agent.tools.tool import all_tools

    found = all_tools().values()
    rows = [f"| [{t.name}](#{t.name}) | {t.risk}{', live' if t.live else ''} | {t.title.rstrip('.')} |" for t in found]
    return "\n".join([TOOLS_HEAD, "| tool | risk | what it does |", "|---|---|---|", *rows, "", *map(_tool, found)])


def _tool(tool: Any) -> str:
    parts = [f"## {tool.name}", "", tool.description, ""]
    for name, field in tool.arguments.model_fields.items():
        default = "" if field.is_required() else f" (default {field.get_default(call_default_factory=True)!r})"
        parts.append(f"- `--{name.replace('_', '-')}`: {field.description or name}{default}")
    keys = ", ".join(f"`{key}`" for key in tool.emits) or "none, it only tells"
    return "\n".join([*parts, *([""] if tool.arguments.model_fields else []), f"Evidence: {keys}.", ""])


PAGES = {"report.schema.json": schema, "cli.md": command_line, "tools.md": tools, "folklore.md": folklore}

if __name__ == "__main__":
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")
        sys.stderr.write(f"wrote docs/{name}\n")
