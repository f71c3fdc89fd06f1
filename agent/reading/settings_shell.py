"""Settings of launch scripts and command lines: flags, overrides, environment, scheduler headers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from .settings_json import read_json
from .settings_leaf import Leaf, Lines, Sheet
from .settings_values import parse
from .settings_yaml import read_yaml
from .shell_words import Script, Word, expand, read_script

COMMANDS = Path(__file__).resolve().parent.parent.parent / "knowledge" / "commands.yaml"
_SBATCH = re.compile(r"^#(?:SBATCH|FLUX:|BSUB|PBS)\s+(-{1,2}[\w-]+)(?:[= ]\s*(\S.*))?$")
_ASSIGN = re.compile(r"([A-Za-z_]\w{0,80})\+?=(.*)\Z", re.DOTALL)
_OVERRIDE = re.compile(r"[+~]{0,2}([A-Za-z_][\w./@-]{0,200})=(.*)\Z", re.DOTALL)
_FLAG = re.compile(r"(--?[A-Za-z][\w.\-/]{0,120}?)(?:=(.*))?\Z", re.DOTALL)
SWITCHES = {
    "--standalone",
    "--use_fsdp",
    "--multi_gpu",
    "--no_python",
    "--module",
    "-m",
    "--use_deepspeed",
    "--use-env",
}
_PROMPT = re.compile(r"^(?:\+{1,4}|\$|>|%|#)\s+(?=\S)")


@dataclass(frozen=True)
class Programs:
    """What `knowledge/commands.yaml` says about programs."""

    launchers: frozenset[str]
    modules: frozenset[str]
    wrappers: frozenset[str]
    not_settings: frozenset[str]
    short: dict[str, dict[str, str]]


@cache
def programs() -> Programs:
    """The table, read once."""
    data = yaml.load(COMMANDS.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return Programs(
        frozenset(data["launchers"]), frozenset(data["modules"]), frozenset(data["wrappers"]),
        frozenset(data["not_settings"]), data["short"],
    )  # fmt: skip


def read_shell(text: str, first_line: int = 1) -> Sheet:
    """Leaves of a shell script."""
    sheet = Sheet()
    for number, row in enumerate(text.split("\n"), first_line):
        if row.startswith("#") and (m := _SBATCH.match(row)):
            short = {"-N": "nodes", "-n": "ntasks", "-c": "cpus_per_task", "-t": "time"}.get(m[1], m[1])
            value = (m[2] or "true").split(" #")[0].strip()
            column, width = (m.start(2), len(value)) if m[2] else (0, 0)
            sheet.add(Leaf(short.lstrip("-"), parse(value), number, "header", "slurm", column=column, width=width))
    script = read_script(text, first_line)
    known = _variables(script)
    lines = Lines(text)
    for name, words in script.arrays.items():
        sheet_add(sheet, _placed(_flags(words, known, "", name), lines, first_line))
    for number, command in enumerate(script.commands):
        sheet_add(sheet, _placed(_command(command, known, str(number)), lines, first_line))
    for target, body, line in script.heredocs:
        _embedded(target, body, line, sheet)
    return sheet


def read_command(line_text: str, line: int) -> Sheet:
    """Leaves of one command as a log echoes it (`+ torchrun ...`, `$ python ...`)."""
    return read_shell(_PROMPT.sub("", line_text), line)


def sheet_add(sheet: Sheet, leaves: Iterator[Leaf]) -> None:
    """Add leaves up to the cap."""
    for leaf in leaves:
        sheet.add(leaf)


def _placed(leaves: Iterator[Leaf], lines: Lines, first_line: int) -> Iterator[Leaf]:
    """Leaves with the column within their line; so far it counted from the start of the text."""
    for leaf in leaves:
        column = leaf.column - lines.start(leaf.line - first_line + 1) if leaf.width else 0
        yield replace(leaf, column=column)


def _variables(script: Script) -> dict[str, str]:
    known: dict[str, str] = {}
    for command in script.commands:
        for word in command:
            if m := _ASSIGN.match(word.text):
                known.setdefault(m[1], expand(m[2], known)[:4000])
            elif word.text not in ("export", "declare", "local", "readonly", "-x", "-r", "-g"):
                break
    return known


def _command(words: list[Word], known: dict[str, str], group: str) -> Iterator[Leaf]:
    index, exported = 0, False
    while index < len(words):
        word = words[index]
        if m := _ASSIGN.match(word.text):
            yield from _assignment(m, word, known, exported or _is_prefix(words, index), group)
        elif word.text in ("export", "declare", "local", "readonly"):
            exported = word.text == "export"
        elif word.text not in programs().wrappers:
            break
        index += 1
    if index < len(words):
        yield from _program(words[index:], known, group)


def _scalar(text: str) -> Any:
    """A value of a command line, where `none` is a word like another."""
    value = parse(text)
    return text if value is None else value


def _is_prefix(words: list[Word], index: int) -> bool:
    """An assignment before a command is for its environment."""
    return index + 1 < len(words) and any(not _ASSIGN.match(w.text) for w in words[index + 1 :])


def _assignment(m: re.Match[str], word: Word, known: dict[str, str], environment: bool, group: str) -> Iterator[Leaf]:
    name, raw = m[1], m[2]
    value = expand(raw, known)
    if re.search(r"(?:^|\s)--[A-Za-z]", value) and re.search(r"\s", value):
        inner = read_script(raw, word.line, _body(word, m.start(2), raw))
        for command in inner.commands:
            yield from _flags(command, known, "", name)
        return
    if value.lstrip().startswith("{"):
        yield from _json_flag(name, value, word, m.start(2), group)
        return
    style = "environment" if environment or name.isupper() else "variable"
    start, end, inside = word.place(m.start(2))
    yield Leaf(
        name, parse(value), word.line, style, "env" if style == "environment" else "", group, start, end - start,
        note="inside" if inside else "",
    )  # fmt: skip


def _body(word: Word, skip: int, text: str) -> int | None:
    """Where quoted text that a word ends with begins in the file; None when it does not stand there as it is."""
    start, end, inside = word.place(skip)
    quote = word.raw[skip : skip + 1]
    plain = end and not inside and quote in ("'", '"') and word.raw[-1:] == quote and end - start - 2 == len(text)
    return start + 1 if plain else None


def _program(words: list[Word], known: dict[str, str], group: str) -> Iterator[Leaf]:
    name = words[0].text.rsplit("/", 1)[-1]
    if name in programs().not_settings:
        return
    if re.match(r"--[A-Za-z]", words[0].text):  # arguments alone, as they are pasted or kept in a file of their own
        yield from _flags(words, known, "", group)
        return
    for i, word in enumerate(words):
        if word.text == "--" and i + 1 < len(words):
            yield from _flags(words[1:i], known, "launcher" if name in programs().launchers else "", group)
            yield from _command(words[i + 1 :], known, group)
            return
    if name in ("bash", "sh", "echo", "cat") and len(words) > 2 and words[1].text in ("-c", "-lc"):
        text = expand(words[2].text, known)
        for command in read_script(text, words[2].line, _body(words[2], 0, text)).commands:
            yield from _command(command, known, group)
        return
    start = _script_index(words)
    launches = name in programs().launchers or any(w.text in programs().modules for w in words[: start + 1])
    if start and name.startswith("python") and words[start].text in programs().modules:
        start = _script_index(words, start + 1)
    if start:
        short = programs().short.get(name, {})
        head = [replace(w, text="--" + short[w.text]) if w.text in short else w for w in words[1:start]]
        yield from _flags(head, known, "launcher" if launches else "", group)
        if words[start].text.rsplit("/", 1)[-1] in programs().launchers or words[start].text.startswith("python"):
            yield from _program(words[start:], known, group)
            return
        yield Leaf("script", words[start].text[:300], words[start].line, "program", "launcher", group)
    yield from _flags(words[start + 1 :], known, "", group)


def _script_index(words: list[Word], begin: int = 1) -> int:
    """Where the program starts that the launcher launches; 0 when there is no such word."""
    for i in range(begin, len(words)):
        text = words[i].text
        if text == "-m" and i + 1 < len(words):
            return i + 1
        if text.endswith((".py", ".sh")) and not text.startswith("-") and "=" not in text:
            return i
        if (
            i > 0
            and text.rsplit("/", 1)[-1] in programs().launchers | {"python", "python3"}
            and not words[i - 1].text.startswith("--")
        ):
            return i
    return 0


def _flags(words: list[Word], known: dict[str, str], scope: str, group: str) -> Iterator[Leaf]:
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        text = expand(word.text, known)
        m = _FLAG.match(text)
        if not m or re.match(r"-\d", text):
            if (o := _OVERRIDE.match(text)) and "://" not in text:
                begin, end, inside = word.place(len(text) - len(o[2])) if text == word.text else _after(word, "=")
                note = "inside" if inside else ""
                yield Leaf(o[1], _scalar(o[2]), word.line, "override", scope, group, begin, end - begin, note=note)
            continue
        values: list[Word] = []
        if m[2] is None and m[1] not in SWITCHES:
            while index < len(words) and _is_value(words[index], known) and len(values) < 64:
                values.append(words[index])
                index += 1
        yield from _flag(m, values, word, known, scope, group)


def _is_value(word: Word, known: dict[str, str]) -> bool:
    text = expand(word.text, known)
    if word.quoted:
        return not text.startswith("--")
    if re.match(r"\$\{\w+\[[@*]\]\}\Z|--\Z", text):
        return False
    return not re.match(r"-{1,2}[A-Za-z]", text) and not (_OVERRIDE.match(text) and "/" not in text and "," not in text)


def _flag(
    m: re.Match[str], values: list[Word], word: Word, known: dict[str, str], scope: str, group: str
) -> Iterator[Leaf]:
    """A switch, a flag with its value, or a flag with several."""
    key = m[1].lstrip("-")
    line = word.line
    if m[2] is not None:
        raw, holder, skip = m[2], word, len(m[1]) + 1
    elif not values:
        if key != "m":
            start, end, _ = word.place(0)
            yield Leaf(key, True, line, "flag", scope, group, start, end - start, note="switch")
        return
    else:
        raw, holder, skip = expand(values[0].text, known), values[0], 0
    if raw.lstrip().startswith("{"):
        yield from _json_flag(key, raw, replace(holder, line=line), skip, group)
        return
    start, end, inside = holder.place(skip)
    note = "inside" if inside else ""
    if len(values) > 1 and not values[1].text.endswith(".py"):
        several = [_scalar(expand(v.text, known)) for v in values]
        width = values[-1].end - start if end else 0
        yield Leaf(key, several, line, "flag", scope, group, start, width, note=note)
        return
    yield Leaf(key, _scalar(raw), line, "flag", scope, group, start, end - start, note=note)


def _after(word: Word, mark: str) -> tuple[int, int, bool]:
    """Place of what stands behind a mark in a word."""
    return word.place(word.text.find(mark) + 1)


def _json_flag(key: str, raw: str, word: Word, skip: int, group: str) -> Iterator[Leaf]:
    """JSON given to a flag or a variable; what it holds under env_vars is environment."""
    places, note = _json_places(word, skip)
    for leaf in read_json(raw, "flag", word.line).leaves:
        head, _, tail = leaf.key.partition(".")
        start, end = places.get(leaf.key, (0, 0))
        if head in ("env_vars", "env") and tail:
            yield Leaf(tail, leaf.value, leaf.line, "environment", "env", group, start, end - start, note=note)
        else:
            yield Leaf(f"{key}.{leaf.key}", leaf.value, leaf.line, "flag", "", group, start, end - start, note=note)


def _json_places(word: Word, skip: int) -> tuple[dict[str, tuple[int, int]], str]:
    """Where the values of quoted JSON stand in the file, and `escaped` where its quotes are behind backslashes."""
    text, quote = word.text[skip:], word.raw[skip : skip + 1]
    if not word.end or word.inside or quote not in ("'", '"') or word.raw[-1:] != quote:
        return {}, "json"
    body, at, offsets = word.raw[skip + 1 : -1], 0, list[int]()
    while at < len(body):
        offsets.append(at)
        at += 2 if quote == '"' and body[at] == "\\" and body[at + 1 : at + 2] in ('"', "\\", "$", "`") else 1
    if len(offsets) != len(text):
        return {}, "json"
    offsets.append(at)
    rows, base = Lines(text), word.start + skip + 1
    places: dict[str, tuple[int, int]] = {}
    for leaf in read_json(text).leaves:
        begin = rows.start(leaf.line) + leaf.column
        if leaf.width:
            places[leaf.key] = (base + offsets[begin], base + offsets[begin + leaf.width])
    return places, "escaped" if '\\"' in body else "json"


def _embedded(target: str, body: str, line: int, sheet: Sheet) -> None:
    """A here-document: JSON, YAML, or a script."""
    if body.lstrip().startswith("{"):
        inner = read_json(body, "json", line)
    elif re.search(r"\.ya?ml\b", target):
        inner = read_yaml(body)
        inner.leaves = [replace(leaf, line=leaf.line + line - 1) for leaf in inner.leaves]
    elif re.search(r"^\s*(?:export |#SBATCH|[\w./-]+ .*--\w)", body, re.MULTILINE) and "import " not in body:
        inner = read_shell(body, line)
    else:
        return
    sheet_add(sheet, iter(inner.leaves))
