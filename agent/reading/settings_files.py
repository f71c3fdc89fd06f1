"""Which reader a file of the run gets, by name and content, and its leaves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from itertools import islice

from .files import Line, RunFile
from .settings_json import read_json
from .settings_leaf import Leaf, Sheet, plain
from .settings_lines import read_env, read_ini, read_note, read_toml
from .settings_log import read_log
from .settings_python import read_python
from .settings_shell import read_shell
from .settings_table import read_table
from .settings_yaml import read_yaml

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


def sheet_of(file: RunFile, lines: list[Line]) -> tuple[str, Sheet] | None:
    """Format and leaves of a file, or None when it cannot hold settings."""
    name, suffix = file.name.lower(), _suffix(file)
    if _NOT_SETTINGS.search(name) or file.role in ("checkpoint", "data", "trace", "record"):
        return None
    if suffix not in _BY_SUFFIX and suffix != ".ipynb" and not name.rsplit("/", 1)[-1].startswith("dockerfile"):
        readable = suffix in _TEXT or file.role in ("log", "config", "environment")
        return ("text", _text(lines, file)) if readable else None
    text = plain("\n".join(line.text for line in lines).removeprefix("\ufeff"))
    if suffix == ".ipynb":
        return "python", read_python(_notebook(text))
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
    if text.lstrip()[:1] == "{" and '"' in text[:200] and "\n" in text[:200]:
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
