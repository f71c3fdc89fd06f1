"""Files in UTF-8 that the run was told to read as something else, which for encodings of one byte never fails."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..files import Line, RunFile
from ..settings import read_settings
from .find import sources

if TYPE_CHECKING:
    from ...workspace import Workspace

BYTES = 1 << 20  # of a data file that are looked at
FILES = 12
FEWEST = 8  # letters of several bytes, from which a file's encoding shows
_KEY = re.compile(r"(?:^|[._-])(?:file_?|text_?|data_?|input_?|source_?)?(?:encoding|charset|codec)$", re.IGNORECASE)
_CALL = re.compile(
    r"""\b(?:open|read_csv|read_table|read_json|read_text|TextIOWrapper|loadtxt|genfromtxt)\s*\([^#\n]*?
    \bencoding\s*=\s*["'](?P<name>[\w -]{3,20})["']""",
    re.VERBOSE,
)
_TEXTS = ("jsonl", "json", "csv", "tsv", "text")
_ONE_BYTE = re.compile(r"iso8859-|cp125\d|cp437|cp850|mac-|koi8-|latin|charmap")
_SEVERAL = re.compile(rb"[\xc2-\xf4][\x80-\xbf]+")


def misread(ws: Workspace) -> Iterator[tuple[RunFile, Line, str]]:
    """Where an encoding of one byte is asked for, although the data are UTF-8: the line, and the encoding's name."""
    asked = [*_settings(ws), *_calls(ws)]
    texts = [s.file for s in sources(ws) if s.kind in _TEXTS][:FILES] if asked else []
    if data := next((f for f in texts if not f.good and is_utf8(ws, f)), None):
        for file, line, name in asked:
            yield file, line, f"{name}, {data.name} is utf-8"


def is_utf8(ws: Workspace, file: RunFile) -> bool:
    """Whether a text has letters of several bytes, all of them whole."""
    head = ws.read(file, BYTES)
    if b"\0" in head[:4096] or len(_SEVERAL.findall(head)) < FEWEST:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # may end within a letter
    except UnicodeDecodeError:
        return False
    return True


def _settings(ws: Workspace) -> Iterator[tuple[RunFile, Line, str]]:
    for s in read_settings(ws).all:
        if isinstance(s.value, str) and not s.used and not s.file.good and _KEY.search(s.key) and of_one_byte(s.value):
            yield s.file, s.line, s.value


def _calls(ws: Workspace) -> Iterator[tuple[RunFile, Line, str]]:
    for file in [f for f in ws.by_role("code") if f.size < BYTES and f.name.endswith(".py")][:40]:
        for line in ws.lines(file):
            if (m := _CALL.search(line.text[:1000])) and of_one_byte(m["name"]):
                yield file, line, m["name"]


def of_one_byte(name: str) -> bool:
    """Whether a name is that of an encoding in which every byte is a letter."""
    try:
        return bool(_ONE_BYTE.match(codecs.lookup(name.strip()).name))
    except (LookupError, ValueError):
        return False
