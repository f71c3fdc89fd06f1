"""A typed edit against the text it is for: found exactly once, everything in it visible, and read back after.

What a person cannot see in a diff, a person cannot agree to: such text is refused, whoever wrote it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import unicodedata
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

import yaml

from ..llm.fence import harmless
from ..reading.bounded_toml import toml
from ..redact import Redactor
from ..sanitize import holds_unseen
from ..small_file import OddFile, small_file

LARGEST = 1 << 20  # bytes of a file that is edited
LONGEST = 20_000  # characters of either text of an edit
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MARK = re.compile(r"<SECRET:")
_BREAK = re.compile(r"[^\w\s]\\")  # `fence.harmless` tells a control token with a backslash behind its first character
_STRETCH = re.compile(r"\s{80,}")  # pushes what follows out of sight
_DEEPEST, _EVENTS = 64, 400_000
_TOKEN = 80  # characters that tell one


class Refused(Exception):
    """An edit that cannot be offered; the reason goes on from its name."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Characters of a text that give way to others."""

    start: int
    end: int
    old: str
    text: str


def plain_text(path: Path) -> tuple[str, str]:
    """The text of a file as it stands, and the sha256 of its bytes.

    Raises:
        Refused: it is no small regular UTF-8 text.
    """
    try:
        data, _ = small_file(path, LARGEST, follow=False)
        text = data.decode()
    except OddFile as e:
        raise Refused(f"it {e}") from None
    except UnicodeDecodeError:
        raise Refused("it is not UTF-8 text") from None
    except OSError as e:
        raise Refused(f"it cannot be read: {e.strerror}") from None
    if "\0" in text:
        raise Refused("it is not UTF-8 text")
    return text, hashlib.sha256(data).hexdigest()


def place(find: str, replace: str, text: str) -> Span:
    """Where an edit stands in a text. In one whose lines all end with CRLF, its own line ends are as there.

    Raises:
        Refused: it stands nowhere or in several places, changes nothing, or holds what must not be there.
    """
    if not find.strip():
        raise Refused("the text to find is empty")
    if max(len(find), len(replace)) > LONGEST:
        raise Refused(f"its texts are longer than {LONGEST} characters")
    if "\r\n" in text and "\n" not in text.replace("\r\n", ""):
        find, replace = (re.sub(r"\r?\n", "\r\n", t) for t in (find, replace))
    if find == replace:
        raise Refused("it changes nothing")
    if fault := _unfit(find, replace):
        raise Refused(fault)
    start = text.find(find)
    if start < 0:
        raise Refused("the text to find does not stand there")
    if text.find(find, start + 1) >= 0:
        raise Refused("the text to find stands there several times")
    return Span(start, start + len(find), find, replace)


def _unfit(find: str, replace: str) -> str:
    """What must not be in an edit; empty where nothing is."""
    if any(_MARK.search(t) or Redactor().redact(t) != t for t in (find, replace)):
        return "it holds a secret, or the mark of one that was taken out"
    if unseen(replace):
        return "the new text holds characters that do not show"
    if any(token not in find for token in _broken_tokens(replace)):
        return "the new text holds a control token as it was shown, not as files hold it"
    if _STRETCH.search(replace) and not _STRETCH.search(find):
        return "the new text holds a stretch of blanks that hides what follows"
    return ""


def _broken_tokens(text: str) -> Iterator[str]:
    """Control tokens that stand in a text as a model was shown them; `[\\w]` and `!\\n` are code."""
    for m in _BREAK.finditer(text):
        before, after = text[max(0, m.start() - 3) : m.start() + 1], text[m.end() : m.end() + _TOKEN]
        if harmless(f"{before}\\{after}") == harmless(before + after):
            yield text[m.start() : m.end() + 6]


def unseen(text: str) -> bool:
    """Whether a text holds what does not show: control, format and bidi characters, private ones, fillers."""
    if text.isascii():
        return re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)", text) is not None
    odd = any(unicodedata.category(c)[0] == "C" for c in text if c not in "\t\n\r")
    return odd or holds_unseen(text) or re.search(r"\r(?!\n)", text) is not None


def breaks(name: str, old: str, new: str) -> str:
    """The format that a change spoils: the old text is read by its parser, the new one is not. Empty where none."""
    form = _FORMS.get(PurePath(name).suffix.lower(), "")
    return form if form and _parses(form, old) and not _parses(form, new) else ""


_FORMS = {".json": "JSON", ".ipynb": "JSON", ".yaml": "YAML", ".yml": "YAML", ".toml": "TOML", ".py": "Python"}


def _parses(form: str, text: str) -> bool:
    text = text.removeprefix("\ufeff")
    try:
        if form == "JSON":
            json.loads(text)
        elif form == "TOML":
            toml(text)
        elif form == "YAML":
            _read_yaml(text)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ast.parse(text)
    except (ValueError, SyntaxError, yaml.YAMLError, RecursionError, MemoryError):
        return False
    return True


def _read_yaml(text: str) -> None:
    """Read a text by its events, which build nothing; what is nested or long beyond all use costs minutes."""
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST or number > _EVENTS:
            raise ValueError("too deep or too long")
