"""Several attempts in one log: where each begins, and which one a line belongs to."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from ..run.files import Line, RunFile
from ..run.lines import segments, strip
from ..run.program.syntax import last
from ..scan.anchors import is_progress, table
from ..scan.logpass import FileSummary

if TYPE_CHECKING:
    from ..run.what_ran import Ran

_LATE = 5  # lines
_DIGITS = re.compile(r"\d+")
_START = 200  # lines within which workers that were started again say so


def restarts(summary: FileSummary) -> list[tuple[Line, int]]:
    """Where new attempts begin in one log: the line, and the number of the attempt it begins (from 1).

    A launcher that reports the failure of its group closes an attempt where it or its script starts another one:
    such a line counts if a later one follows, or progress of workers that it did not give up.
    """
    if summary.restarts is not None:
        return summary.restarts
    hits = summary.harvest.restarts
    lived = next(_progress_lines(summary), None) if hits else None
    failed = [f.number for f in hits if _group_failed(f.stripped.body)]
    found: list[tuple[Line, int]] = []
    attempt, last, closed = 1, -100, -_START
    for f in hits:
        closes = _group_failed(f.stripped.body)
        if closes:
            begun = f.number - closed > 6 and _is_followed(summary, f.number, failed)
            closed = f.number if begun else closed
        else:  # what workers say as they start again is of the attempt that the launcher's line began
            begun = lived is not None and f.number > lived and f.number - last > 6 and f.number - closed > _START
        if begun:
            said = None if closes else re.search(r"attempt (\d{1,4})", f.stripped.body)
            attempt = int(said[1]) if said else attempt + 1
            found.append((Line(f.number, f.offset, f.data, f.cut), attempt))
        last = f.number
    summary.restarts = found
    return found


def stillborn(summary: FileSummary) -> Line | None:
    """Where the attempts begin of which none came to progress, after one that did."""
    last, begun = summary.last_progress, restarts(summary)
    if last is None or not begun:
        return None
    # what was held in a buffer is printed a few lines late
    return next((line for line, _ in begun if line.number + _LATE >= last.number), None)


def _group_failed(body: str) -> bool:
    return table().group_failed.search(body) is not None


def _is_followed(summary: FileSummary, number: int, failed: list[int]) -> bool:
    if any(later > number + 6 for later in failed):
        return True
    progress = summary.last_progress
    return progress is not None and progress.number > number and not _gave_up(summary, number)


def _gave_up(summary: FileSummary, number: int) -> bool:
    h = summary.harvest
    after = h.tail.split(b"\n")[max(0, number - h.tail_line - 1) :]
    return any(b"Error" in x and table().gave_up.search(x[:400].decode(errors="replace")) for x in after)


def _progress_lines(summary: FileSummary) -> Iterator[int]:
    for number, data in enumerate(summary.harvest.head.split(b"\n")[:2000], 1):
        if is_progress(strip(data[:400].decode(errors="replace"), summary.labels).body):
            yield number
            return


def attempt_at(summary: FileSummary, number: int) -> int | None:
    """The attempt that a line belongs to; None where the log holds only one."""
    begun = restarts(summary)
    if not begun:
        return None
    return next((attempt for line, attempt in reversed(begun) if _first_of(line) <= number), 1)


def _first_of(line: Line) -> int:
    """The first line of an attempt: what closes the one before is not of it."""
    return line.number + _group_failed(line.data[:400].decode(errors="replace"))


# ----------
# The line near the end of a log that says that the end was reached.


def finished_line(summary: FileSummary, after: int) -> Line | None:
    """A line near the end that says the end was reached, after the last failure."""
    h = summary.harvest
    end, number = len(h.tail), h.tail_line + h.tail.count(b"\n") + 1
    for _ in range(60):
        start = h.tail.rfind(b"\n", 0, end) + 1
        data = h.tail[start:end]
        if (
            data.strip()
            and number > after
            and _says_end(body := body_of(data, summary))
            and _is_said_once(body, summary)
        ):
            return Line(number, h.tail_offset + start, data)
        number, end = number - 1, start - 1
        if end < 0:
            break
    return None


_OFTEN = 3


def _is_said_once(body: str, summary: FileSummary) -> bool:
    """Whether a line is not one of many of its wording: what is said of every hundred steps is progress.

    What each of many ranks says behind the last step is said once.
    """
    tail, progress = summary.harvest.tail, summary.last_progress
    before = tail[: max(0, progress.offset - summary.harvest.tail_offset)] if progress is not None else b""
    wording = _DIGITS.sub("", body)[-80:]
    often = _DIGITS.sub("", before[-(1 << 16) :].decode(errors="replace")).count(wording) >= _OFTEN
    return not often or "%|" in body


def body_of(data: bytes, summary: FileSummary) -> str:
    """The words of a line: of an overwritten one the last part, without label and colours."""
    return strip(segments(data[-4096:])[-1][1].decode(errors="replace"), summary.labels).body


def _says_end(body: str) -> bool:
    for p in table().finished:
        m = p.search(body)
        if m is None:
            continue
        counts = m.groups()
        if (
            counts
            and counts[0] is not None
            and not (counts[0] == counts[1] and int(counts[0]) >= 5 and _is_training_bar(body))
        ):
            continue
        return True
    return False


def _is_training_bar(body: str) -> bool:
    """A full bar ends a run only where it counts training: loading and tokenizing have bars too."""
    low = body.lower()
    return not any(
        w in low for w in ("shard", "map", "token", "download", "load", "generat", "files", "fetch", "eval", "warm")
    )


# ----------
# Whether a log was printed to the end of its program: past the loop that printed its progress.

_DEEP = 3  # calls
_CALLED = 24  # places that call one function


class Flow:
    """How the lines of programs stand to their loops, branches and calls."""

    def __init__(self, ran: Ran) -> None:
        self._ran = ran
        self._statements: dict[str, list[ast.stmt]] = {}

    @cached_property
    def _calls(self) -> dict[str, list[tuple[str, int]]]:
        """Where each name is called: file and line."""
        found: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for file, tree in self._ran.trees.items():
            for n in ast.walk(tree) if tree is not None else ():
                if isinstance(n, ast.Call) and len(found[name := last(n.func)]) < _CALLED:
                    found[name].append((file, n.lineno))
        return found

    def _around(self, name: str, line: int) -> list[ast.stmt]:
        """The statements around a line, from the outside in."""
        if name not in self._statements:
            tree = self._ran.trees.get(name)
            nodes = (n for n in ast.walk(tree) if isinstance(n, ast.stmt)) if tree is not None else ()
            self._statements[name] = sorted(nodes, key=lambda n: (n.lineno, -(n.end_lineno or n.lineno)))
        return [n for n in self._statements[name] if n.lineno <= line <= (n.end_lineno or n.lineno)]

    def _within(self, name: str, line: int) -> tuple[ast.FunctionDef | None, list[ast.stmt]]:
        """The innermost function around a line, and the statements between the two."""
        around = self._around(name, line)
        inner = max((i for i, n in enumerate(around) if isinstance(n, ast.FunctionDef)), default=-1)
        function = around[inner] if inner >= 0 else None
        return (function if isinstance(function, ast.FunctionDef) else None), around[inner + 1 :]

    def places(self, name: str, line: int) -> list[tuple[str, int, int]]:
        """A line, and the calls that lead to the function which it stands in, with how many lie between."""
        found, pending = [(name, line, 0)], [(name, line, 0)]
        known: set[str] = set()
        while pending:
            name, line, depth = pending.pop(0)
            function = self._within(name, line)[0]
            if function is not None and function.name not in known and depth < _DEEP:
                known.add(function.name)
                pending += [(file, at, depth + 1) for file, at in self._calls.get(function.name, ())]
                found += [(file, at, depth + 1) for file, at in self._calls.get(function.name, ())]
        return found

    def loops(self, name: str, line: int) -> list[tuple[str, ast.stmt]]:
        """The outermost loops that a line is printed in, with the files they stand in."""
        found: dict[int, list[tuple[str, ast.stmt]]] = {}
        for file, at, depth in self.places(name, line):
            loop = next((n for n in self._within(file, at)[1] if isinstance(n, ast.For | ast.While)), None)
            if loop is not None:
                found.setdefault(depth, []).append((file, loop))
        return found[max(found)] if found else []

    def is_behind(self, loop: tuple[str, ast.stmt], name: str, line: int) -> bool:
        """Whether a line stands behind a loop in the same function, and not where an exception leads to."""
        file, node = loop
        if file != name or line <= (node.end_lineno or 0):
            return False
        function, around = self._within(name, line)
        tries = [n for n in around if isinstance(n, ast.Try)]
        caught = any(not any(s.lineno <= line <= (s.end_lineno or 0) for s in (*n.body, *n.orelse)) for n in tries)
        return not caught and function is self._within(name, node.lineno)[0]

    def leaves(self, loop: tuple[str, ast.stmt], name: str, line: int) -> bool:
        """Whether what is printed at a line is followed by a break of the loop itself."""
        around = self._within(name, line)[1]
        loops = [n for n in around if isinstance(n, ast.For | ast.While)]
        branches = [n for n in around if isinstance(n, ast.If)]
        if loop[0] != name or not loops or loops[-1] is not loop[1] or not branches:
            return False
        sides = (branches[-1].body, branches[-1].orelse)
        side = next((s for s in sides if s and s[0].lineno <= line <= (s[-1].end_lineno or s[-1].lineno)), [])
        return any(isinstance(s, ast.Break) and s.lineno > line for s in side)


def past_its_loop(ran: Ran, flow: Flow, file: RunFile, progress: str, after: Iterable[str]) -> int | None:
    """Which of the lines behind the last progress was printed behind the loop of the training; None where none was.

    A loop is left at its end or by a break; what an exception leads to is not behind it.

    Args:
        progress: the last line of progress, without what its surroundings put before it; `after` likewise.
    """
    step = ran.statement(file, progress)
    loops = flow.loops(step.statement.file, step.statement.line) if step is not None else []
    for number, body in enumerate(after if loops else ()):
        said = ran.statement(file, body) if body.strip() else None
        for name, line, _ in flow.places(said.statement.file, said.statement.line) if said is not None else ():
            if any(flow.is_behind(loop, name, line) or flow.leaves(loop, name, line) for loop in loops):
                return number
    return None
