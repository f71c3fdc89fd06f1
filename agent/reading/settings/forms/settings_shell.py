"""Settings of launch scripts and command lines: flags, overrides, environment, scheduler headers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...run.lines import Positions
from ...run.program.shell_launches import (
    ASSIGN,
    Launch,
    body,
    holds_command,
    open_shell,
    passed_on,
    programs,
    references,
)
from ...run.program.shell_words import Word, expand, read_script
from ..settings_map import Leaf, Sheet, parse
from .settings_data import read_json, read_yaml

# ----------
# Arguments of a command line: flags with their values, overrides such as `a.b=1`, JSON given to a flag.


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


def _scalar(text: str) -> Any:
    """A value of a command line, where `none` is a word like another."""
    value = parse(text)
    return text if value is None else value


def flags(words: list[Word], known: dict[str, str], scope: str, group: str) -> Iterator[Leaf]:
    """Leaves of the flags and overrides among words; the group says whose words they are."""
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        text = expand(word.text, known)
        m = _FLAG.match(text)
        if not m or re.match(r"-\d", text):
            if (o := _OVERRIDE.match(text)) and "://" not in text and not _several(word, text):
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


def _several(word: Word, text: str) -> bool:
    """Whether a variable holds several words, so that its text is no one override."""
    return word.raw.startswith("$") and text != word.text and re.search(r"\s", text) is not None


def _is_value(word: Word, known: dict[str, str]) -> bool:
    text = expand(word.text, known)
    if re.match(r"\$\{\w+\[[@*]\]\}\Z|\$[@*]\Z|\$\{@|--\Z", text):
        return False
    if word.quoted:
        return not text.startswith("--")
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
        yield from json_flag(key, raw, replace(holder, line=line), skip, group)
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


def json_flag(key: str, raw: str, word: Word, skip: int, group: str) -> Iterator[Leaf]:
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
    rows, base = Positions(text), word.start + skip + 1
    places: dict[str, tuple[int, int]] = {}
    for leaf in read_json(text).leaves:
        begin = rows.start(leaf.line) + leaf.column
        if leaf.width:
            places[leaf.key] = (base + offsets[begin], base + offsets[begin + leaf.width])
    return places, "escaped" if '\\"' in body else "json"


# ----------

_HEADER = re.compile(r"#(SBATCH|FLUX:|BSUB|PBS)(?=\s+-)")
_QUOTED = r"'[^']*'|\"[^\"]*\""
_OPTION = re.compile(  # `-N 2`, `-N2`, `--nodes=2`, `--nodes 2`, `--exclusive`; what stands between is passed over
    rf"(?<=\s)(?P<name>--[A-Za-z][\w-]*|-[A-Za-z])(?:=(?P<set>{_QUOTED}|\S*)|(?P<joined>\d[\w:.-]*)"
    rf"|[ \t]+(?P<next>{_QUOTED}|[^\s#-]\S*))?(?=\s|$)"
)
_SLURM = {"-N": "nodes", "-n": "ntasks", "-c": "cpus_per_task", "-t": "time"}
_SHORT = {"SBATCH": _SLURM, "FLUX:": _SLURM, "BSUB": {"-n": "ntasks"}, "PBS": {}}  # `#PBS -N` names the job
_PROMPT = re.compile(r"^(?:\+{1,4}|\$|>|%|#)\s+(?=\S)")


def read_shell(text: str, first_line: int = 1, prefix: str = "") -> Sheet:
    """Leaves of a shell script. `prefix` tells the groups of a here-document from those around it."""
    sheet = Sheet()
    for number, row in enumerate(text.split("\n"), first_line):
        if row.startswith("#") and (m := _HEADER.match(row)):
            sheet_add(sheet, _options(row, m.end(), number, _SHORT[m[1]]))
    reading = open_shell(text, first_line, prefix)
    lines = Positions(text)
    outside = _launchers_own(reading.launched)
    for name, words in reading.script.arrays.items():
        scope = "launcher" if name.partition("#")[0] in outside else ""
        sheet_add(sheet, _placed(flags(words, reading.known, scope, prefix + name), lines, first_line))
    for launch in reading.launched:
        sheet_add(sheet, _placed(_leaves(launch, reading.known, outside), lines, first_line))
    for target, text_inside, line in reading.script.heredocs:
        _embedded(target, text_inside, line, sheet)
    return sheet


def _options(row: str, start: int, number: int, short: dict[str, str]) -> Iterator[Leaf]:
    """Leaves of one line of a scheduler's header, which may hold several options; a comment ends it."""
    for m in _OPTION.finditer(row, start, len(row[start:].split(" #")[0]) + start):
        kind = m.lastgroup if m.lastgroup != "name" else None
        value = m[kind] if kind else ""
        column, width = (m.start(kind), len(value)) if kind and value else (0, 0)
        name = short.get(m["name"], m["name"]).lstrip("-")
        yield Leaf(name, parse(value or "true"), number, "header", "slurm", column=column, width=width)


def _launchers_own(launched: list[Launch]) -> set[str]:
    """Variables and arrays whose flags are for a launcher, and for no program."""
    outer = {name for each in launched for s in each.stages if s.launches for name in references(s.flags)}
    return outer - {name for each in launched for name in references(each.arguments)}


def _leaves(launch: Launch, known: dict[str, str], outside: set[str]) -> Iterator[Leaf]:
    """Leaves of one command, in the order of its words."""
    prefix = bool(launch.stages or launch.arguments) or any(w.text == "env" for w in launch.words[:2])
    prefix = prefix or len(launch.words) > len(launch.assigned) + bool(launch.declares)
    for word in launch.assigned:
        m = ASSIGN.match(word.text)
        if m:
            yield from _assignment(m, word, known, prefix or launch.declares == "export", launch.group, outside)
    for stage in launch.stages:
        if not stage.launches and (stage is not launch.stages[-1] or stage.name.startswith("python")):
            continue  # options of `timeout` or `python` itself set nothing of a training
        short = programs().short.get(stage.name, {})
        passed, rest = passed_on(stage)
        own = [replace(w, text="--" + short[w.text]) if w.text in short else w for w in rest]
        for each in passed:
            value = parse(expand(each.value, known))
            width = each.end - each.start
            note = "inside" if each.word.raw[:1] in ("'", '"') else ""
            yield Leaf(
                each.name, value, each.word.line, "environment", "env", launch.group, each.start, width, note=note
            )
        yield from flags(own, known, "launcher" if stage.launches else "", launch.group)
    if launch.program and launch.stages and launch.program is not launch.stages[-1].word:
        yield Leaf("script", launch.program.text[:300], launch.program.line, "program", "launcher", launch.group)
    yield from flags(launch.arguments, known, "", launch.group)


def read_command(line_text: str, line: int) -> Sheet:
    """Leaves of one command as a log echoes it (`+ torchrun ...`, `$ python ...`)."""
    return read_shell(_PROMPT.sub("", line_text), line)


def sheet_add(sheet: Sheet, leaves: Iterator[Leaf]) -> None:
    """Add leaves up to the cap."""
    for leaf in leaves:
        sheet.add(leaf)


def _placed(leaves: Iterator[Leaf], lines: Positions, first_line: int) -> Iterator[Leaf]:
    """Leaves with the column within their line; so far it counted from the start of the text."""
    for leaf in leaves:
        column = leaf.column - lines.start(leaf.line - first_line + 1) if leaf.width else 0
        yield replace(leaf, column=column)


def _assignment(
    m: re.Match[str], word: Word, known: dict[str, str], environment: bool, group: str, outside: set[str]
) -> Iterator[Leaf]:
    name, raw = m[1], m[2]
    value = expand(raw, known)
    if holds_command(raw):
        return  # read as the command that it is
    if re.search(r"(?:^|\s)--[A-Za-z]", value) and re.search(r"\s", value):
        inner = read_script(raw, word.line, body(word, m.start(2), raw))
        for command in inner.commands:
            yield from flags(command, known, "launcher" if name in outside else "", name)
        return
    if value.lstrip().startswith("{"):
        yield from json_flag(name, value, word, m.start(2), group)
        return
    style = "environment" if environment or name.isupper() else "variable"
    start, end, inside = word.place(m.start(2))
    yield Leaf(
        name, parse(value), word.line, style, "env" if style == "environment" else "", group, start, end - start,
        note="inside" if inside else "",
    )  # fmt: skip


def _embedded(target: str, text: str, line: int, sheet: Sheet) -> None:
    """A here-document: JSON, YAML, or a script."""
    if text.lstrip().startswith("{"):
        inner = read_json(text, "json", line)
    elif re.search(r"\.ya?ml\b", target):
        inner = read_yaml(text)
        inner.leaves = [replace(leaf, line=leaf.line + line - 1) for leaf in inner.leaves]
    elif re.search(r"^\s*(?:export |#SBATCH|[\w./-]+ .*--\w)", text, re.MULTILINE) and "import " not in text:
        inner = read_shell(text, line, f"h{line}:")
    else:
        return
    sheet_add(sheet, iter(inner.leaves))
