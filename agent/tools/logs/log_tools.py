"""What the logs say: failures as units, consequences told apart, signatures, how each log ends; and reading on."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field

from ...core.errors import ToolError
from ...core.types import LINE_CAP, Evidence, ToolResult
from ...reading.logs.asked_limits import Ended, timeouts, watchers
from ...reading.logs.failures import failures
from ...reading.logs.load_reports import load_reports
from ...reading.logs.log_evidence import (
    ending_evidence,
    failure_evidence,
    note_evidence,
    outlook,
    signature_evidence,
    warning_evidence,
)
from ...reading.run.files import Line, RunFile
from ...reading.run.folder_listings import gaps, left_out, listed_files
from ...reading.run.lines import strip, without_escapes
from ...reading.run.program.statements import Match
from ...reading.run.roles import ROLES
from ...reading.run.workspace import Workspace
from ...reading.scan.anchors import is_harmless, is_progress
from ...reading.scan.library_notices import notice, signed
from ...reading.scan.logpass import logpass
from ...reading.scan.patterns import refusal, searcher
from ..tool import clean, few, finding, not_applicable, tool

EMITS = (
    "sig.*",
    "error.exception",
    "error.message",
    "error.frame",
    "error.user_frame",
    "error.record_key",
    "error.library",
    "error.phase",
    "error.first",
    "error.cascade",
    "error.exit_code",
    "error.signal",
    "error.native_crash",
    "error.bare_kill",
    "error.line",
    "stack.interrupted",
    "load.only_heads",
    "log.warning",
    "run.last_line",
    "run.state",
    "run.finished",
    "run.silent_end",
    "run.vanished",
    "run.restarted",
    "run.restart_stillborn",
    "run.healthy_end",
    "run.recovered",
)
MATCHES, WINDOW = 200, 240


@tool(recall=True, emits=EMITS)
def scan_logs(ws: Workspace) -> ToolResult:
    """Scan all logs for failures, known signatures and how they end

    One pass over every log and capture: tracebacks as units with the chain of exceptions and the failing frame,
    the first failure told apart from its consequences (watchdogs, launcher summaries, peers that lost a
    connection), kills and exit codes, distinct warnings, restarts, and whether the run reached its end.
    """
    found = logpass(ws)
    if not found.files:
        return not_applicable("no log, capture or other text to scan")
    wrong = failures(ws)
    evidence = [
        *failure_evidence(ws, wrong),
        *note_evidence(ws, wrong),
        *signature_evidence(ws, found, wrong),
        *load_reports(ws, found),
        *ending_evidence(ws, found, wrong),
        *warning_evidence(ws, found),
    ]
    read = sum(s.lines for s in found.files.values())
    text = outlook(found, wrong)
    if wrong.first is not None:
        return finding(
            f"first failure: {wrong.first.text[:160]} ({wrong.first.file.name}:{wrong.first.line.number})",
            evidence,
            text,
        )
    if wrong.units or wrong.notes or found.hits:
        return finding(
            f"{read} lines in {len(found.files)} files: no initiating exception, see consequences and signatures",
            evidence,
            text,
        )
    return clean(f"{read} lines in {len(found.files)} files: no failure and no known signature", evidence, text)


@tool(emits=("log.match",))
def grep_logs(
    ws: Workspace,
    pattern: Annotated[str, Field(description="what to look for, in re2 syntax (no look-around)", max_length=500)],
    file: Annotated[str, Field(description="only in files whose name contains this")] = "",
    limit: Annotated[int, Field(ge=1, le=MATCHES, description="matches to show")] = 50,
) -> ToolResult:
    """Search the run's text files for a pattern

    Use to check whether a line that would decide between two causes is there. Every file that is text is searched,
    configs and code too. Counts are exact; the first `limit` matches are shown. A bystander's lines (a README, a test,
    a config of another program) are shown and cannot be cited.
    """
    search = searcher(pattern)
    if search is None:
        raise ToolError(f"grep_logs: {refusal(pattern) or 'the pattern cannot be used'}")
    files = [f for f in ws.everything if f.role != "checkpoint" and file in f.name]
    evidence, shown, count = [], [], 0
    for f in files:
        for line in ws.lines(f):
            text = without_escapes(line.data).decode(errors="replace")
            if not search.search(text):
                continue
            count += 1
            if len(shown) < limit:
                aside = ws.ran.part(f) == "bystander"
                shown.append(f"{f.name}:{line.number}: {text[:400]}" + (" (bystander)" if aside else ""))
                if not aside:
                    evidence.append(ws.cite(f, line, "log.match", pattern, rank=strip(text).rank or f.rank))
    if not count:
        return clean(f"no line in {len(files)} files matches {pattern!r}")
    head = f"{count} lines match {pattern!r}" + (f", the first {len(shown)} are shown" if count > len(shown) else "")
    return finding(head, evidence, "\n".join([head, *shown]))


@tool(emits=("log.line",))
def read_lines(
    ws: Workspace,
    file: Annotated[str, Field(description="name of the file as listed by list_files")],
    start: Annotated[int, Field(ge=1, description="first line, from 1")] = 1,
    count: Annotated[int, Field(ge=1, le=WINDOW, description="how many lines")] = 60,
) -> ToolResult:
    """Read a stretch of lines of one file

    Use to see what stands around a line that another tool cites. `start` beyond the end gives the last lines.
    """
    wanted = _named(ws, file)
    lines: list[Line] = []
    last: list[Line] = []
    for line in ws.lines(wanted):
        if start <= line.number < start + count:
            lines.append(line)
        if line.number >= start + count:
            break
        last = [*last[-(count - 1) :], line] if count > 1 else [line]
    lines = lines or last
    if not lines:
        return clean(f"{file} has no lines")
    shown = "\n".join(f"{x.number}: {x.data[:LINE_CAP].decode(errors='replace')}" for x in lines)
    more = {"tool": "read_lines", "file": file, "start": lines[-1].number + 1, "count": count}
    aside = ws.ran.part(wanted) == "bystander"  # to read, not to cite
    evidence = [] if aside else [ws.cite(wanted, x, "log.line") for x in lines]
    return finding(f"{file}:{lines[0].number}-{lines[-1].number}", evidence, shown, more)


def _named(ws: Workspace, name: str) -> RunFile:
    for f in ws.everything:
        if f.name == name:
            return f
    close = [f.name for f in ws.everything if name in f.name][:5]
    raise ToolError(f"no file {name!r} in the run" + (f"; did you mean {', '.join(close)}?" if close else ""))


# ----------
# What the run left: files by role, and what could not be read.

SHOWN = 400
EACH, LOGS, LOG_LIMIT = 6, 64, 4 << 20
_NOT_THERE = re.compile(rb"No such file|[Nn]ot found|missing|does not exist|[Nn]o file with name|not find|[Uu]nable to")
_TENSOR_FILE = re.compile(r"[\w./@=+\-]+\.(?:pt|pth|bin|safetensors|distcp|ckpt|pkl|metadata)(?![\w/])")


@tool(emits=())
def list_files(ws: Workspace) -> ToolResult:
    """List the files of the run by role, with what was skipped and why.

    Use first when it is unclear what there is to read. Roles: log, config, metrics, checkpoint, data, code,
    environment, capture, other; rank, host, attempt and variant are what names tell.
    """
    counts = Counter(f.role for f in ws.everything)
    rows = []
    for role in ROLES:
        rows += [_row(f, ws.ran.part(f)) for f in ws.everything if f.role == role]
    shown = rows[:SHOWN]
    if len(rows) > SHOWN:
        shown.append(f"... and {len(rows) - SHOWN} more files")
    shown += [f"skipped {name}: {why}" for name, why in ws.skipped[:SHOWN]]
    summary = ", ".join(f"{n} {role}" for role, n in counts.most_common())
    return finding(summary + (f"; {len(ws.skipped)} skipped" if ws.skipped else ""), [], "\n".join(shown))


def _row(f: RunFile, part: str) -> str:
    told = [
        f"{word} {value}"
        for word, value in (("rank", f.rank), ("host", f.host), ("attempt", f.attempt), ("variant", f.variant))
        if value is not None
    ]
    good = ", good" if f.good else ""
    told += ["bystander"] if part == "bystander" else []
    return f"{f.role:<12} {f.size:>12} {f.name}" + (f" ({', '.join(told)}{good})" if told or good else "")


@tool(
    emits=("listing.missing_member", "listing.member_elsewhere", "listing.short_file", "listing.wanted_elsewhere",
           "listing.other_world_size", "listing.part_of_row", "listing.no_plain_file", "listing.empty_adapter"),
    recall=True,
)  # fmt: skip
def check_listings(ws: Workspace) -> ToolResult:
    """Compare listings of checkpoint folders (`ls`, `find`, `aws s3 ls`) with what the logs ask for.

    Use where the checkpoint itself is not at hand but somebody listed it: ranks or shards left out of a row, a rank's
    file in another folder, tensor files that are tiny or shorter than in other saves, a file that was looked for in
    the wrong folder or for another world size.
    """
    entries, rest = listed_files(ws), left_out(ws)
    rest = f" ({rest})" if rest else ""
    if not entries:
        return not_applicable(f"no listing of a folder among the run's texts{rest}")
    told = few(gaps(entries, _wanted(ws)), EACH, lambda gap: gap.key)
    evidence = [ws.cite(gap.entry.file, gap.entry.line, f"listing.{gap.key}", gap.value) for gap in told]
    if not evidence:
        return clean(f"{len(entries)} files listed, none missing or short by their names and sizes{rest}")
    text = "\n".join(f"{e.key}: {e.value}" for e in evidence)
    return finding(f"{len(entries)} files listed{rest}; {evidence[0].value}", evidence, text)


def _wanted(ws: Workspace) -> Iterator[str]:
    """Files that lines of the logs say are not there."""
    for file in ws.by_role("log", "other")[:LOGS]:
        if file.good or file.size > LOG_LIMIT:
            continue
        for line in ws.lines(file):
            if _NOT_THERE.search(line.data[:20_000]):
                for m in _TENSOR_FILE.finditer(line.data[:20_000].decode(errors="replace")):
                    yield m[0]


# ----------
# Lines that small outputs of the run have for the question: what its programs printed as events, tables, probes.

SIZE = 8 << 10  # bytes of an output that is cut out, or short, so that few lines of it say much
FILES, PER_FILE, NOTES_SHOWN = 64, 3, 8
WHOLE, ONCE_LOGS, ONCE, ONCE_SHOWN = 256 << 10, 4, 2, 12  # bytes of a log, logs, times that a statement printed, lines
LEAST, OF_A_ROW = 1.5, 3.5  # about one rare word of the question, or a word of difference; and in a row among many two
ALIKE, ROWS = 3, 12  # lines of one wording, and rows of a table, from which each is but a row
_LISTED = re.compile(r"^[-dlbcps](?:[-r][-w][-xsStT]){3}\W")  # of a folder
_TELLING = re.compile(
    r"(?i)\b(?:differs?|differences?|differ|mismatch\w*|diverge[sd]?|outliers?|non-?finite|nans?|invalid|wrong|stuck|hangs?"
    r"|unexpected|nonzero|corrupt\w*|inconsistent|truncated?|dropped|unequal|not (?:equal|found|loaded|used|called)"
    r"|all zeros?|grad(?:ient)? ?(?:norm)? ?0\.0+|only (?:difference|change)|length for \d+|completes|no error)\b"
)
_PRINTED = ("log", "capture", "other", "note")  # roles of what programs print
_NO_OUTPUT = re.compile(
    r"\.(?:json|jinja|py|ipynb|sh|ya?ml|toml|cfg|ini|c|cc|cpp|cu|h|md)$|^(?:merges|requirements\w*)\.txt$"
)
# Lines of source code: statements, calls without words around them, what closes a block, comments, docstrings.
_CODE = re.compile(
    r"^\s*(?:(?:async )?def \w+\(|class \w+.*:$|import [\w.]+|with .*:$|from [\w.]+ import |return\b|raise \w+\("
    r"|assert |(?:if|elif|for|while) .*:$|(?:else|try|finally):$|except\b.*:$|@\w"
    r"|[\w.\[\]'\"]+ ?[-+*/|]?= ?[^=\s].*[\w.]+\(.*|[\w.]+\(.*\)\W*$|[)\]}]+[,;:]?$|\"\"\"|\'\'\'|#!|# |//"
    r"|(?:export|set|cd|source|bash|fi|done|esac)\b(?! [A-Z]))|[{;\\]$|\d+%\|"
)
# What a line that no statement of a known program printed must have: an alarm. Most of such are notices of libraries.
_ALARM = re.compile(
    r"(?i)\b(?:warn(?:ing)?|error|critical|fatal|exception|failed|exit(?:ed)?|status|killed|signal|SIG[A-Z]{3,5})\b"
)
# Notices of libraries by the name in front, settings as a list with leaders, names of columns.
_NOTICE = re.compile(
    r"^\W{0,2}(?:transformers|datasets|accelerate|deepspeed|lightning|peft|trl|tokenizers|wandb|mlflow|ray)\b[\]:]"
    r"|site-packages|\w \.{3,} ?\S+$|^(?:\w[\w /.-]*[,\t]){2,}\w[\w /.-]*$(?<!\d)"
)
_NUMBER = re.compile(r"(?<![\w./:-])-?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?%?(?![\w/:-])")
_NUMBERS = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_PART = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{2,}|\d+\.\d+|\d{2,}")
_COMMON = """the and for with that this from are was not but has have its what why when which does did can how all any
our out one two than then only same still after before into over run runs training train model step steps loss error
errors
line file log logs data true false none self return import def class print config args cfg int str list value values
name"""
_PLAIN = frozenset(_COMMON.split())


@dataclass(slots=True)
class _Candidate:
    """A line with the words it is made of; identifiers count as their parts."""

    file: RunFile
    line: Line
    text: str
    words: set[str]
    row: bool = False  # among many that are alike


@tool(emits=("log.telling", "log.once"), recall=True)
def telling_lines(ws: Workspace) -> ToolResult:
    """Quote lines of small outputs that bear on the question

    Tables of trials, probes and dumps, and events that a program printed, often hold the decisive number; no format is
    assumed. A line counts by the rare words it shares with the question and by words of difference or fault. Code,
    configs and data are not looked at. What is found here decides nothing: it is shown beside the proof.
    """
    small = [f for f in ws.files if 0 < f.size <= SIZE and not f.good and _is_output(ws, f)][:FILES]
    once = list(_once(ws))
    if not (small or once):
        return not_applicable("no small output beside the logs")
    asked = _words(ws.question)
    told: set[str] = set()
    by_file = [list(_candidates(ws, file, told)) for file in small]
    spread = Counter(word for lines in by_file for c in lines for word in c.words)
    total = sum(len(lines) for lines in by_file)
    found: list[tuple[float, _Candidate]] = []
    for lines in by_file:
        scored = ((_score(c, asked, spread, total), c) for c in lines)
        found += sorted((s for s in scored if s[0] >= LEAST), key=lambda s: -s[0])[:PER_FILE]
    found.sort(key=lambda s: -s[0])
    evidence = [ws.cite(c.file, c.line, "log.telling", round(score, 2)) for score, c in found[:NOTES_SHOWN]]
    rows = [f"{e.file}:{e.line}: {e.text}" for e in (*evidence, *once)]
    if not evidence:
        return clean("no line of the small outputs speaks of the question or of a fault", once, "\n".join(rows))
    return finding(f"{len(evidence)} telling lines", [*evidence, *once], "\n".join(rows))


def _once(ws: Workspace) -> Iterator[Evidence]:
    """`log.once`: what a program said once or twice in a log, which names data, settings and events; with its place."""
    for program in ws.ran.programs:
        for file in [f for f in ws.files if f.name in program.logs and f.size <= WHOLE and not f.good][:ONCE_LOGS]:
            said: dict[tuple[str, int], list[Line]] = {}
            for line in ws.lines(file):
                body = strip(line.text[:400]).body
                match = _printer(line, ws.ran.printed(program).all_of(body))
                if match is not None and not match.payload and not ("loss" in body and is_progress(body)):
                    said.setdefault((match.statement.file, match.statement.line), []).append(line)
            told = [(x, where) for where, lines in said.items() if len(lines) <= ONCE for x in lines]
            for line, (source, number) in sorted(told, key=lambda t: t[0].number)[:ONCE_SHOWN]:
                yield ws.cite(file, line, "log.once", f"{source}:{number}")


def _printer(line: Line, fit: list[Match]) -> Match | None:
    """Of several statements that fit a line the one whose module its logger names; None where that is not told."""
    if len({m.statement.file for m in fit}) > 1:
        paths = ((m, PurePosixPath(m.statement.file).with_suffix("").parts) for m in fit)
        fit = [m for m, parts in paths if len(parts) > 1 and ".".join(parts[-2:]) in line.text[:400]]
    return fit[0] if fit else None


def _is_output(ws: Workspace, file: RunFile) -> bool:
    """Whether a file holds what programs printed: no code, no config, no data, nothing binary."""
    printed = file.role in _PRINTED or file.path.suffix in (".csv", ".tsv")
    if not printed or ws.ran.part(file) not in ("output", "unknown") or _NO_OUTPUT.search(file.path.name):
        return False
    return b"\0" not in ws.head(file)


def _words(text: str) -> set[str]:
    return {part.lower().rstrip("s") for part in _PART.findall(text)} - _PLAIN


def _candidates(ws: Workspace, file: RunFile, told: set[str]) -> Iterator[_Candidate]:
    """Lines of one file that tell of something, each wording once in all files."""
    inside = False  # a traceback: its frames and their code are no events
    lines = list(ws.lines(file))
    alike = Counter(_NUMBERS.sub("#", strip(line.text[:400]).body) for line in lines)
    table = file.path.suffix in (".csv", ".tsv") and len(lines) > ROWS
    for line in lines:
        text = line.text[:400]
        body = strip(text).body
        inside = body.startswith("Traceback") or (inside and body.startswith((" ", "\t")))
        shape = re.sub(r"\d+", "#", body)
        if shape in told or inside or not body.strip() or not _tells(ws, file, line, body):
            continue
        told.add(shape)
        yield _Candidate(file, line, text, _words(text), table or alike[_NUMBERS.sub("#", body)] >= ALIKE)


def _tells(ws: Workspace, file: RunFile, line: Line, body: str) -> bool:
    """Whether a line was printed as an event: by a statement of the program, a logger, a framework, or as a table."""
    text = line.text[:400]
    if (printed := ws.ran.statement(file, body)) is not None:
        return not printed.payload
    if notice(body, strip(text).level) is not None:
        return (file.name, line.number) in signed(logpass(ws).hits)  # else it is said in every run
    if (
        _LISTED.match(body)
        or body.lstrip().startswith(("File ", "at "))
        or _CODE.search(body.rstrip())
        or _NOTICE.search(body.strip())
    ):
        return False
    if not any(file.name in p.logs for p in ws.ran.programs):
        return True  # nothing is known of what printed it
    return bool(_TELLING.search(body) or _ALARM.search(text)) and not is_harmless(body)


def _score(candidate: _Candidate, asked: set[str], spread: Counter[str], total: int) -> float:
    """How much a line bears on the question; nothing where it has but one word of it, without a number or a fault."""
    common, body = candidate.words & asked, strip(candidate.text).body
    fault, number = bool(_TELLING.search(body)), bool(_NUMBER.search(body))
    if len(common) + fault + number < 2 or (is_progress(body) and not fault and not any(map(_NUMBER.search, common))):
        return 0.0  # progress is told as a series, unless it is the very number that was asked about
    shared = sum(math.log(1 + total / spread[word]) for word in common)
    score = shared / (1 + 0.15 * max(0, len(candidate.words) - 6))  # a long line shares words by chance
    score += 2.0 * fault + 0.5 * number
    return 0.0 if candidate.row and score < OF_A_ROW and not (fault or _ALARM.search(candidate.text)) else score


# ----------
# Ends that the run's own scripts made: a time limit around the launch, a watcher that kills what is quiet.


@tool(emits=("limit.timeout_ended", "limit.watcher_killed"), recall=True)
def own_limits(ws: Workspace) -> ToolResult:
    """Say whether a script of the run itself ended it: `timeout` around the launch, or a loop that kills.

    Use when a process ended with 124, 137 or 143 and nothing says who sent the signal. A time limit is told where a
    log has the status 124 and a script starts the training under `timeout`; a watcher, where a log has the sentence
    that a script says before it kills.
    """
    evidence = [e for ended in timeouts(ws) for e in _both(ws, ended, "limit.timeout_ended")]
    evidence += [e for ended in watchers(ws) for e in _both(ws, ended, "limit.watcher_killed")]
    if not evidence:
        return clean("no script of the run is seen to end it")
    return finding(f"a script of the run ended it: {evidence[0].value}", evidence)


def _both(ws: Workspace, ended: Ended, key: str) -> Iterator[Evidence]:
    for file, line in (ended.log, ended.script):
        yield ws.cite(file, line, key, ended.what)
