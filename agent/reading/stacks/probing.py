"""Questions to a process that was started with probing (`PROBING=1`): its stack, its tables, an expression.

The command of the probing package speaks to the abstract socket `@probing-PID`. The environment of a process is one
of its tables; its values may hold secrets and are never asked for.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.shell import Completed
from ..machine.job_processes import Process, Processes

if TYPE_CHECKING:
    from ..run.workspace import Workspace


# ----------
# The tables that probing's command prints: a box of columns as wide as a terminal, long values over several lines.


def table(text: str, limit: int = 2000) -> list[dict[str, str]]:
    """Rows of the first box table in a text, at most `limit`; values are text, pieces of wrapped ones joined.

    A row that continues is told by the frame: a new row starts where the first cell is filled again. A first column
    that wraps itself cannot be told from a new row, so queries put a short one first.
    """
    names: list[str] = []
    rows: list[list[str]] = []
    heading = False
    for line in text.splitlines():
        if line.startswith("┌"):
            if names:
                break  # another table
            heading = True
        elif line.startswith("├"):
            heading = False
        elif line.startswith("└"):
            break
        elif line.startswith("│"):
            cells = [c[1:-1] if c[:1] == " " else c for c in line.strip("│").split("│")]
            if heading:
                names = (
                    [a + b.strip() for a, b in zip(names, cells, strict=False)] if names else [c.strip() for c in cells]
                )
            elif len(cells) == len(names):
                _add(rows, cells)
            if len(rows) > limit:
                break
    return [{n: c.strip() for n, c in zip(names, row, strict=True)} for row in rows[:limit]]


def _add(rows: list[list[str]], cells: list[str]) -> None:
    if rows and not cells[0].strip() and any(c.strip() for c in cells):
        rows[-1] = [a.rstrip() + b if b.strip() else a for a, b in zip(rows[-1], cells, strict=True)]
    else:
        rows.append(cells)


def number(text: str) -> float | None:
    """A cell as a number, where it is one."""
    try:
        return float(text)
    except ValueError:
        return None


# ----------

SECONDS = 15.0
START = "PROBING=1 PROBING_TORCH_PROFILING=on"
_ALLOWED = re.compile(r"^\s*(?:select|show|describe|with)\b", re.IGNORECASE)
_REFUSED = re.compile(
    r";|\benvs\b|\b(?:copy|insert|update|delete|create|drop|set|into|attach|load|execute)\b|\bfrom\s+['\"/]",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Answer:
    """What a process answered: rows of a query, or text; `trouble` says in words why there is none."""

    done: Completed
    rows: list[dict[str, str]] = field(default_factory=list)
    text: str = ""
    trouble: str = ""
    listens: bool = True  # False: nobody answers at the process's socket


def refusal(sql: str) -> str:
    """Why a query is not sent; empty for one that only reads tables."""
    if not _ALLOWED.search(sql):
        return "only select, show and describe are sent"
    if _REFUSED.search(sql):
        return "one statement that reads tables, and not the process's environment (its values may be secrets)"
    return ""


def listening(seen: Processes, ws: Workspace) -> list[Process]:
    """Processes that were started for probing: named ones, else ranks and others with PROBING set."""
    named = seen.of(ws.pids) if ws.pids else []
    if named:
        return named
    ranks = seen.ranks()
    others = [p for p in seen.by_pid.values() if p.variables.get("PROBING") and p.rank is None and p.state != "Z"]
    return [p for p in [*ranks, *others] if p.variables.get("PROBING")]


def query(ws: Workspace, pid: int, sql: str) -> Answer:
    """Rows of a query over the tables of a process."""
    why = refusal(sql)
    if why:
        return Answer(Completed(("probing",), None, "", why), trouble=f"refused: {why}")
    answer = _ask(ws, pid, "query", sql)
    answer.rows = table(answer.text)
    return answer


def backtrace(ws: Workspace, pid: int) -> Answer:
    """The stack of the main thread, Python and native frames, as text. Local variables are never quoted."""
    return _ask(ws, pid, "backtrace")


def evaluate(ws: Workspace, pid: int, expression: str) -> Answer:
    """`repr` of an expression evaluated inside the process, by way of a file, as its output is the job's own.

    This runs code in the training process: only where the user asked for it.
    """
    with tempfile.TemporaryDirectory(prefix="doctor-") as folder:
        out = Path(folder) / "answer"
        out.touch(mode=0o600)
        code = f"open({str(out)!r}, 'w').write(repr(eval({expression!r}))[:65536])"
        answer = _ask(ws, pid, "eval", code)
        try:
            answer.text = out.read_text(encoding="utf-8", errors="replace")
        except OSError:
            answer.text = ""
    if not answer.trouble and not answer.text:
        answer.trouble = "the process answered nothing: the expression failed (its own log holds the error)"
    return answer


def _ask(ws: Workspace, pid: int, *words: str) -> Answer:
    done = ws.shell(["probing", "-t", str(pid), *words], SECONDS)
    answer = Answer(done, text=done.stdout)
    if done.code != 0:
        answer.trouble, answer.listens = _trouble(done, pid)
    return answer


def _trouble(done: Completed, pid: int) -> tuple[str, bool]:
    told = done.stderr
    if "not installed" in told:
        return "the probing command is not installed here: `pip install probing`", True
    if "Connection refused" in told or "No such file" in told:
        return (
            f"process {pid} was not started with probing; start the job with `{START} torchrun ...` "
            "(probing installed in its environment), or use dump_stacks, which needs nothing of the job"
        ), False
    if m := re.search(r"(?:Schema error|Error during planning|QueryError)[^\n]{0,300}", told):
        return m[0], True
    last = next((x for x in reversed(told.splitlines()) if x.strip()), "no answer")
    return f"probing on {pid}: {last[:200]}", True
