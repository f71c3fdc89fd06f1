"""Listings of folders that somebody pasted (`ls`, `ls -l`, `find`, `aws s3 ls`, `tree`): which files there were."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from .files import Line, RunFile

if TYPE_CHECKING:
    from ..workspace import Workspace

FILE_LIMIT, LOG_LIMIT, TOTAL, MOST = 1 << 20, 64 << 10, 8 << 20, 20_000
_NEVER = ("code", "config", "checkpoint", "metrics", "trace", "data")
_ENDING = r"(?:pt|pth|bin|safetensors|distcp|ckpt|pkl|json|index|metadata|txt|model|yaml|yml|gguf|npz|tar)"
_NAME = re.compile(rf"(?:[\w@%+=,()\-\[\]]|\.(?!\.))+\.{_ENDING}|\.metadata|latest")
_LONG = re.compile(
    r"^\s*(?P<kind>[-dlbcps])[rwxsStT-]{9}[.+@]?\s+\d+\s+\S+\s+\S+\s+(?P<size>\d[\d.,]*[KMGTP]?)\s+"
    r"(?:\w{3}\s+\d{1,2}\s+[\d:]{4,5}|\d{4}-\d\d-\d\d\s+[\d:]{5}(?::\d\d(?:\.\d+)?(?:\s[+-]\d{4})?)?)\s+(?P<name>\S.*?)\s*$"
)
_S3 = re.compile(r"^\s*\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s+(?P<size>\d+)\s+(?P<name>\S+)\s*$")
_USED = re.compile(r"^\s*(?P<size>\d+(?:\.\d+)?[KMGTP]?)\s+(?P<name>(?:\.{0,2}/)?[\w./=@+-]*/[\w.=@+-]+)\s*$")
_PATH = re.compile(rf"^\s*(?P<name>(?:\.{{0,2}}/|[\w.@=+-]+/)[\w./@=+ -]*?\.{_ENDING}|\S+/\.metadata|\S+/latest)\s*$")
_TREE = re.compile(
    r"^[ \u2502|\u00a0]*(?:\u251c\u2500+|\u2514\u2500+|[|`]--)[ \u00a0]+(?:\[ *[\d.KMGTP]+\] +)?(?P<name>\S+)\s*$"
)
_HEADER = re.compile(r"^(?P<folder>(?:\.{0,2}/|~|[\w.@=+-]+/?)[\w./@=+-]*):\s*$")
_COMMAND = re.compile(r"(?:^|(?P<prompt>[$#>%])\s*)(?P<what>ls|ll|dir|find|tree|du|aws s3 ls|gsutil ls)\b(?P<rest>.*)$")
_TOTAL = re.compile(r"total \d")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


@dataclass(frozen=True)
class Listed:
    """A file that a listing names. `folder` is empty where the listing does not tell it; `size` in bytes.

    `kind` is the first letter of its mode where that is shown: `p` a named pipe, `s` a socket, `b`, `c` a device.
    """

    folder: str
    name: str
    size: int | None
    exact: bool  # the size is told to the byte
    file: RunFile
    line: Line
    kind: str = ""

    @cached_property
    def path(self) -> str:
        return f"{self.folder}/{self.name}" if self.folder else self.name


def listed_files(ws: Workspace) -> list[Listed]:
    """All files that listings among the run's texts name, in their order. Made once."""
    return ws.memo("listed files", lambda: _listed(ws))[0]


def left_out(ws: Workspace) -> str:
    """What the bounds of the search for listings left out, in words; empty where they left nothing out."""
    _, unread, more = ws.memo("listed files", lambda: _listed(ws))
    told = [f"{unread} longer text(s) not searched for listings"] if unread else []
    return "; ".join([*told, f"entries after the first {MOST} left out"] if more else told)


def _listed(ws: Workspace) -> tuple[list[Listed], int, bool]:
    """The entries, how many texts are too long to be read for some, and whether there are more entries."""
    files, unread = _candidates(ws)
    found = [entry for file in files for entry in _read(ws, file)]
    return found[:MOST], unread, len(found) > MOST


def _candidates(ws: Workspace) -> tuple[list[RunFile], int]:
    """Short texts that may hold a listing, and the number of others; of logs only small ones, as there are many."""
    budget, files, unread = TOTAL, [], 0
    for file in sorted(ws.files, key=lambda f: f.role == "log"):
        if file.good or file.role in _NEVER or not file.size:
            continue
        fits = file.size <= min(budget, LOG_LIMIT if file.role == "log" else FILE_LIMIT)
        if fits:
            files.append(file)
            budget -= file.size
        unread += not fits
    return files, unread


def _read(ws: Workspace, file: RunFile) -> list[Listed]:
    """The entries of one text. Without a listing command there must be at least three rows in list form."""
    found: list[Listed] = []
    folder, inside, commands, rows = "", False, 0, 0
    unsure = False  # a command without a prompt may be prose: the line after it tells
    for line in ws.lines(file):
        text = line.text.rstrip()[:1000]
        if m := _COMMAND.search(text):
            unsure, inside, commands = not m["prompt"], bool(m["prompt"]), commands + bool(m["prompt"])
            folder = "" if m["what"] in ("find", "du") else _argument(m["rest"])  # those print it with every file
        elif m := _HEADER.match(text):
            folder = m["folder"].rstrip("/")
        elif text:
            new = list(_entries(text, folder, inside or unsure, file, line))
            if unsure:
                unsure, inside = False, bool(new or _TOTAL.match(text) or _LONG.match(text))
                commands, folder = commands + inside, folder if inside else ""
            rows += bool(new)
            found += new
            inside = inside and (bool(new) or text.startswith(("total ", "d", "l")))
        if len(found) > MOST:
            break
    return found if commands or rows >= 3 else []


def _argument(rest: str) -> str:
    """The folder a command lists, where it names just one."""
    words = [w for w in rest.split("|")[0].split() if not w.startswith("-") and not w.startswith(("'", '"', "*"))]
    return words[0].rstrip("/") if len(words) == 1 and "*" not in words[0] else ""


def _entries(text: str, folder: str, inside: bool, file: RunFile, line: Line) -> Iterator[Listed]:
    for pattern in (_LONG, _S3, _USED, _PATH, _TREE):
        if m := pattern.match(text):
            told = m.groupdict()
            if told.get("kind") in ("d", "l") or told["name"].endswith("/"):
                return
            size = told.get("size") or ""
            inner, _, name = told["name"].rpartition("/")
            where = inner if inner.startswith(("/", ".", "~")) or not folder else f"{folder}/{inner}".rstrip("/")
            if size or _NAME.fullmatch(name):
                kind = told.get("kind") or ""
                yield Listed(where.removeprefix("./"), name, _bytes(size), size.isdigit(), file, line, kind)
            return
    if inside:
        words = text.split()
        if words and all(_NAME.fullmatch(w) for w in words):
            for word in words:
                yield Listed(folder, word, None, False, file, line)


def _bytes(size: str) -> int | None:
    m = re.fullmatch(r"([\d.,]{1,24})([KMGTP]?)", size)
    if m is None:
        return None
    number = m[1]
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", number):
        number = number.replace(",", "")
    elif not m[2] and re.fullmatch(r"\d{1,3}(?:\.\d{3})+", number):
        number = number.replace(".", "")
    try:
        return int(float(number.replace(",", ".")) * _UNITS[m[2]])
    except ValueError:
        return None
