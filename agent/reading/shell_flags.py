"""Arguments of a command line: flags with their values, overrides such as `a.b=1`, JSON given to a flag."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .settings_json import read_json
from .settings_leaf import Leaf, Lines
from .settings_values import parse
from .shell_words import Word, expand

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
    rows, base = Lines(text), word.start + skip + 1
    places: dict[str, tuple[int, int]] = {}
    for leaf in read_json(text).leaves:
        begin = rows.start(leaf.line) + leaf.column
        if leaf.width:
            places[leaf.key] = (base + offsets[begin], base + offsets[begin + leaf.width])
    return places, "escaped" if '\\"' in body else "json"
