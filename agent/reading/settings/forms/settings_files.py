"""Which reader a file of the run gets, by name and content, and its leaves."""

from __future__ import annotations

import ast
import csv
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from ...run.files import Line, RunFile
from ..settings_map import DEPTH, LIST_CAP, VALUE_CAP, Leaf, Sheet, parse, plain
from .settings_data import read_json, read_yaml
from .settings_log import read_log
from .settings_python import read_python
from .settings_shell import read_shell

# ----------
# TOML of a run, read within bounds: a key of many parts costs the square of their number in time and memory.


# A string or a comment, whatever it holds. Where this goes wrong, the text is no TOML and the parser ends there too.
_OPAQUE = re.compile(
    r'''"""(?:[^"\\]|\\.|"(?!""))*(?:"{3,5}|\Z)|\'{3}(?:[^\']|\'(?!\'\'))*(?:\'{3,5}|\Z)'''
    r"""|"(?:[^"\\\n]|\\.)*"?|\'[^\'\n]*\'?|\#[^\n]*""",
    re.DOTALL,
)
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){{{DEPTH}}}[\w-]", re.ASCII)


def toml(text: str) -> dict[str, Any]:
    """The tree of a text.

    Raises:
        ValueError: it is no TOML, or nested deeper than any setting is.
    """
    if text.count(".") >= DEPTH and _LONG_KEY.search(_OPAQUE.sub("s", text)):
        raise ValueError(f"a key of more than {DEPTH} parts")
    try:
        tree = tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if _too_deep(tree):
        raise ValueError(f"nested deeper than {DEPTH}")
    return tree


def _too_deep(tree: Any) -> bool:
    """Keys and inline tables make depth together, each within its own bound."""
    level, depth = [tree], 0
    while level:
        if depth > DEPTH:
            return True
        depth += 1
        level = [
            inner
            for node in level
            for inner in (node.values() if isinstance(node, dict) else node)
            if isinstance(inner, dict | list)
        ]
    return False


# ----------
# Settings of line-based files: TOML, INI, .env, and plain `key: value` notes.

_SECTION = re.compile(r"^\s*\[\[?\s*([^\[\]\n]{1,200}?)\s*\]\]?\s*(?:[#;].*)?$")
_TOML = re.compile(r"^\s*([\w.\-\"']{1,120}?)\s*=\s*(\S.*?)\r?$")
# The parts of a value of one line, and the key of a member of an inline table.
_PART = re.compile(
    r"""(?P<open>[\[{])|(?P<close>[\]}])|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|(?P<stop>[,#\s])|[^\[\]{}"'#,\s]+|."""
)
_TOML_PART = re.compile(
    r'''"""(?:[^"\\]|\\.|"(?!""))*(?:"{3,5}|\Z)|\'{3}(?:[^\']|\'(?!\'\'))*(?:\'{3,5}|\Z)'''
    r"""|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|\#[^\n]*|[\[\]{}]""",
    re.DOTALL,
)
_MEMBER = re.compile(r"[\s,]*([\w.\-]+|\"[^\"\n]*\"|'[^'\n]*')\s*=\s*(?=\S)")
_INI = re.compile(r"^([A-Za-z_][\w.\-]{0,80})\s*[=:]\s*(.*)$")
_ENV = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w{0,80})=(.*)$")
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'")
_NOTE = re.compile(r"^[\s\-*>|]*([A-Za-z_][\w \-./]{0,40}?)\s*[:=](?![=/])\s*(\S.{0,300})$")
# `with nodes: 1 it works`: another try that a note mentions.
_ASIDE = re.compile(r"\b(?:with|using|at|for|on) `?([A-Za-z_][\w\-]{0,30})`?(?: ?[:=] ?| )(\d[\w.\-]{0,20})\b")
JOINED = 400  # lines a TOML value may span


def read_toml(text: str) -> Sheet:
    """Leaves of a TOML text by line; values are read by tomllib, those that span lines are joined first."""
    sheet, section = Sheet(), ""
    for here, m, raw in _toml_rows(text.split("\n")):
        if sheet.full:
            break
        if raw is None:
            section = m[1].replace('"', "").replace("'", "") + "."
            continue
        key = m[1].replace('"', "").replace("'", "")
        try:
            value = toml(f"x = {raw}")["x"]
        except ValueError:
            value = parse(raw.split(" #")[0].strip().strip("'\""))
            if "\n" in raw:
                sheet.problems.append(f"line {here}: not TOML")
        places = toml_places(raw) if "\n" not in raw else {}
        key = section + key
        _put(sheet, key, value, here, {key + tail: (m.start(2) + at, width) for tail, (at, width) in places.items()})
    return sheet


def _toml_rows(rows: list[str]) -> Iterator[tuple[int, re.Match[str], str | None]]:
    """Line, match and whole value of every key; a header of a table has no value."""
    number = 0
    while number < len(rows):
        row, number = rows[number], number + 1
        if m := _SECTION.match(row):
            yield number, m, None
        elif m := _TOML.match(row):
            here, raw, missing = number, m[2], toml_open(m[2])
            while missing and number < len(rows) and (missing != "[" or number < here + JOINED):
                more = [rows[number]]
                while missing != "[" and missing not in more[-1] and number + len(more) < len(rows):
                    more.append(rows[number + len(more)])
                raw, number = "\n".join([raw, *more]), number + len(more)
                missing = toml_open(raw)
            yield here, m, raw.removesuffix("\r")


def toml_open(raw: str) -> str:
    """What a value still lacks at its end: the quotes of its string, `[` for a bracket, or nothing."""
    depth = 0
    for m in _TOML_PART.finditer(raw):
        part = m[0]
        if part[:3] in ('"""', "'''") and (len(part) < 6 or not part.endswith(part[:3])):
            return part[:3]
        depth += (part in "[{") - (part in "]}")
    return "[" if depth > 0 else ""


def toml_masked(text: str) -> str:
    """A TOML text of the same length in which nothing within a value of several lines looks like a key or a table."""
    rows = text.split("\n")
    for here, _, raw in list(_toml_rows(rows)):
        for i in range(here, here + (raw or "").count("\n")):
            rows[i] = re.sub(r"\S", "x", rows[i])
    return "\n".join(rows)


def toml_places(raw: str, start: int = 0, prefix: str = "") -> dict[str, tuple[int, int]]:
    """Column and width of the value that begins at `start`, and of those within an inline table (`.key` -> place)."""
    end, depth = start, 0
    while m := _PART.match(raw, end):
        if (m["stop"] or m["close"]) and not depth:
            break
        depth += bool(m["open"]) - bool(m["close"])
        end = m.end()
        if not depth and m["close"]:
            break
    places = {prefix: (start, end - start)}
    if raw[start : start + 1] == "{" and prefix.count(".") < 8:
        at = start + 1
        while m := _MEMBER.match(raw, at, end):
            inner = toml_places(raw, m.end(), f"{prefix}." + m[1].strip("\"'"))
            places |= inner
            at = sum(next(iter(inner.values())))
    return places


def _put(sheet: Sheet, key: str, value: object, line: int, places: dict[str, tuple[int, int]]) -> None:
    column, width = places.get(key, (0, 0))
    if isinstance(value, dict):
        for k, v in list(value.items())[:LIST_CAP]:
            _put(sheet, f"{key}.{k}", v, line, places)
    elif isinstance(value, list):
        kept = [v for v in value[:LIST_CAP] if not isinstance(v, dict | list)]
        sheet.add(Leaf(key, kept, line, "toml", column=column, width=width))
    elif isinstance(value, bool | float | str) or (isinstance(value, int) and abs(value) < 10**40):
        kept = value[:VALUE_CAP] if isinstance(value, str) else value
        sheet.add(Leaf(key, kept, line, "toml", column=column, width=width))


def read_ini(text: str) -> Sheet:
    """Leaves of an INI or cfg text."""
    sheet, section = Sheet(), ""
    for number, row in enumerate(text.split("\n"), 1):
        if m := _SECTION.match(row):
            section = m[1] + "."
        elif not row.lstrip().startswith(("#", ";")) and (m := _INI.match(row)):
            value = m[2].split(" #")[0].split(" ;")[0].rstrip()
            sheet.add(Leaf(section + m[1], parse(value), number, "ini", column=m.start(2), width=len(value)))
        if sheet.full:
            break
    return sheet


def read_env(text: str) -> Sheet:
    """Leaves of an .env file."""
    sheet = Sheet()
    for number, row in enumerate(text.split("\n"), 1):
        if (m := _ENV.match(row)) and not sheet.full:
            value = m[2].strip()
            if quoted := _QUOTED.match(value):
                value = quoted[0]
            elif value[:1] not in ("'", '"'):
                value = value.split(" #")[0].strip()
            bare = value.strip("'\"") if value[:1] in ("'", '"') else value
            column = m.start(2) + len(m[2]) - len(m[2].lstrip())
            sheet.add(Leaf(m[1], parse(bare), number, "env", "env", column=column, width=len(value)))
    return sheet


def read_note(text: str, limit: int = 400) -> Sheet:
    """Leaves of `key: value` lines in a hand-written note; only those the map knows will count."""
    sheet = Sheet()
    for number, row in enumerate(text.split("\n")[:limit], 1):
        if len(row) < 400 and (m := _ASIDE.search(row)):
            sheet.add(Leaf(m[1].strip(), parse(m[2]), number, "note", group="row note"))
        elif len(row) < 400 and (m := _NOTE.match(row)):
            sheet.add(Leaf(m[1].strip(), parse(m[2].strip().rstrip(",").strip("'\"`")), number, "note"))
    return sheet


# ----------
# Settings of a sweep table: each row of a small CSV is a variant, its columns that name settings are asked values.

ROWS, COLUMNS = 400, 200
_SERIES = {"step", "epoch", "iteration", "iter", "global_step", "time", "timestamp", "wall_time"}


def read_table(text: str) -> Sheet:
    """Leaves of a table whose rows are runs; of a time series (many rows, a step column) nothing."""
    sheet = Sheet()
    rows = text.split("\n", ROWS + 1)[: ROWS + 1]
    delimiter = "\t" if rows and rows[0].count("\t") > rows[0].count(",") else ","
    header = _cells(rows[0], delimiter) if rows else []
    if len(header) < 2 or len(header) > COLUMNS:
        return sheet
    if len(rows) > 60 or {h.strip().lower() for h in header} & _SERIES:
        return sheet
    for number, row in enumerate(rows[1:], 2):
        cells = _cells(row, delimiter)
        for name, cell in zip(header, cells, strict=False):
            if cell.strip():
                sheet.add(Leaf(name.strip()[:80], parse(cell), number, "table", group=f"row {number - 1}"))
    return sheet


def _cells(row: str, delimiter: str) -> list[str]:
    if len(row) > 20_000:
        return []
    try:
        return next(csv.reader([row.rstrip("\r")], delimiter=delimiter), [])
    except csv.Error:
        return []


# ----------

CONFIG_CAP = 5 << 20  # bytes of a file that is read whole
LOG_LINES = 20_000  # lines at the start of a log that are looked at: settings are printed there
_BY_SUFFIX: dict[str, Callable[[str], Sheet]] = {
    ".yaml": read_yaml, ".yml": read_yaml, ".json": read_json, ".json5": read_json, ".jsonc": read_json,
    ".toml": read_toml, ".ini": read_ini, ".cfg": read_ini, ".conf": read_ini, ".env": read_env,
    ".sh": read_shell, ".bash": read_shell, ".sbatch": read_shell, ".slurm": read_shell, ".job": read_shell,
    ".py": read_python, ".csv": read_table, ".tsv": read_table,
}  # fmt: skip
_TEXT = {".txt", ".log", ".out", ".err", ".md", ".rst", ""}
_NOT_SETTINGS = re.compile(
    r"(?:^|/)(?:trainer_state|train_results|eval_results|all_results|tokenizer|vocab|merges|special_tokens_map|added_tokens"
    r"|.*\.index|shell|.*metrics|.*samples?|.*trace|.*dump)\.json$"
)
COMMAND = re.compile(
    r"^(?:\+{1,4} |\$ |> )?(?:[A-Za-z_]\w*=\S* +)*(?:sudo |nohup |time )?(?:\S*/)?"
    r"(?:python[\d.]*|torchrun|deepspeed|accelerate|srun|mpirun|swift|megatron|llamafactory-cli|vllm|sglang|tune|trl"
    r"|axolotl|ray|docker|sbatch|export|xtuner|composer|ns-train|bash) +\S"
)
_NO_COMMAND = (b"[", b"{", b" ", b"\t", b"", b"(", b"|", b"#")  # first characters of lines that are none
_FENCE = re.compile(r"^\s*```\s*(\w*)")
_WORDS = re.compile(rb'^\s*"(?:added_tokens|vocab|merges)"\s*:\s*[\[{]')  # of a tokenizer: words, no settings


def sheet_of(file: RunFile, lines: list[Line], tree: ast.Module | None = None) -> tuple[str, Sheet] | None:
    """Format and leaves of a file, or None when it cannot hold settings.

    Args:
        tree: of a Python file, where it has been parsed already.
    """
    name, suffix = file.name.lower(), _suffix(file)
    words = name.endswith(".json") and (file.role == "other" or any(_WORDS.search(line.data) for line in lines[:400]))
    if _NOT_SETTINGS.search(name) or words or file.role in ("checkpoint", "data", "trace", "record"):
        return None
    if suffix not in _BY_SUFFIX and suffix != ".ipynb" and not name.rsplit("/", 1)[-1].startswith("dockerfile"):
        readable = suffix in _TEXT or file.role in ("log", "config", "environment")
        return ("text", _text(lines, file)) if readable else None
    whole = "\n".join(line.text for line in lines)
    text = plain(whole.removeprefix("\ufeff"))
    if suffix == ".ipynb":
        return "python", read_python(_notebook(text))
    if tree is not None and text == whole:
        return "python", read_python(text, tree)
    return read_text(file.path.name, text)


def read_text(name: str, text: str) -> tuple[str, Sheet] | None:
    """Format and leaves of a text by the file's name alone (or, without a suffix, by how a script begins).

    `text` must be `plain`. None where the name tells no format.
    """
    suffix = _suffix_of(name)
    if reader := _BY_SUFFIX.get(suffix):
        return reader.__name__.removeprefix("read_"), reader(text)
    if name.lower().rsplit("/", 1)[-1].startswith("dockerfile"):
        return "shell", read_shell(re.sub(r"(?m)^(?:ENV|ARG|RUN|CMD|ENTRYPOINT) ", lambda m: " " * len(m[0]), text))
    if suffix in ("", ".txt") and (text.startswith("#!") or "\n#SBATCH" in text[:4000]):
        return "shell", read_shell(text)
    return None


def _suffix(file: RunFile) -> str:
    return _suffix_of(file.path.name)


def _suffix_of(name: str) -> str:
    parts = name.lower().rsplit("/", 1)[-1].split(".")
    if parts[-1] in ("gz", "zst") and len(parts) > 2:
        parts.pop()
    return "." + parts[-1] if len(parts) > 1 else ""


def _text(lines: list[Line], file: RunFile) -> Sheet:
    """A log, a note, or a command someone pasted: all readers that may apply."""
    start = b"\n".join(line.data for line in lines[:200])
    whole = len(lines) <= 80 or start[:1] in b"#{" or b"\n#SBATCH" in start or b"```" in start
    text = plain("\n".join(line.text for line in lines)) if whole else ""
    if text.startswith("#!") or "\n#SBATCH" in text[:4000]:
        return read_shell(text)
    rows = [row for row in text[:4000].split("\n", 3) if row.strip()]
    records = len(rows) > 1 and rows[0].rstrip().endswith("}") and rows[1].startswith("{")  # a line each
    if text.lstrip()[:1] == "{" and '"' in text[:200] and "\n" in text[:200] and not records:
        return read_json(text)
    sheet = read_log(lines)
    _commands(lines, sheet)
    if "```" in text:
        _merge(sheet, _fenced(text.split("\n")))
    elif len(lines) <= 80 and _suffix(file) != ".log":
        _merge(sheet, read_note(text).leaves)
    return sheet


def _merge(sheet: Sheet, leaves: Iterable[Leaf]) -> None:
    seen = {(leaf.line, leaf.key) for leaf in sheet.leaves}
    for leaf in leaves:
        if (leaf.line, leaf.key) not in seen:
            sheet.add(leaf)


def _commands(lines: list[Line], sheet: Sheet) -> None:
    """Commands without a prompt, with their continued lines, among the first lines of a text."""
    index = 0
    while index < min(len(lines), 2000):
        line = lines[index]
        index += 1
        if line.data[:1] in _NO_COMMAND:
            continue
        if not COMMAND.match(line.text) or (
            line.text.startswith(("+ ", "++ ", "$ ", "> ")) and not line.text.rstrip().endswith("\\")
        ):
            continue
        body = [line.text.rstrip("\r").lstrip("+$> ")]
        while body[-1].rstrip().endswith("\\") and index < len(lines) and len(body) < 200:
            body.append(lines[index].text.rstrip("\r"))
            index += 1
        if any(c in "".join(body) for c in "=-"):
            _merge(sheet, read_shell(plain("\n".join(body)), line.number).leaves)


def _fenced(rows: list[str]) -> list[Leaf]:
    """Leaves of the fenced blocks of a markdown text."""
    found: list[Leaf] = []
    start, language = -1, ""
    for number, row in enumerate(rows[:20_000]):
        m = _FENCE.match(row)
        if m and start < 0:
            start, language = number + 1, m[1].lower()
        elif m:
            reader = _BY_SUFFIX.get(
                "." + {"bash": "sh", "shell": "sh", "python": "py", "console": "sh"}.get(language, language)
            )
            if reader:
                found += reader("\n" * start + "\n".join(rows[start:number])).leaves
            start = -1
    return found


def _notebook(text: str) -> str:
    """The code of a notebook with every line where it stands in the file; magics and all else are blank."""
    out: list[str] = []
    inside = False
    for row in text.split("\n"):
        stripped = row.strip()
        if stripped.startswith('"source": ['):
            inside = True
        elif inside and stripped in ("]", "],"):
            inside = False
        elif inside and stripped.startswith('"'):
            out.append(_code(stripped.rstrip(",")))
            continue
        out.append("")
    return "\n".join(out)


def _code(literal: str) -> str:
    try:
        code = json.loads(literal)
    except ValueError:
        return ""
    code = code.rstrip("\n")
    return "" if code.lstrip().startswith(("%", "!")) or "\n" in code else code


def share(files: list[RunFile], limit: int, total: int) -> int:
    """Bytes that are looked at of each log: less of each where there are many."""
    logs = sum(f.role in ("log", "metrics", "other", "capture") for f in files) or 1
    return max(32 << 10, min(limit, total // logs))


def head(lines: Iterable[Line], budget: int, most: int = LOG_LINES) -> list[Line]:
    """The first lines of a file within a budget of bytes."""
    out: list[Line] = []
    for line in islice(lines, most):
        budget -= len(line.data)
        if budget < 0:
            break
        out.append(line)
    return out
