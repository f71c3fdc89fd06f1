"""Listings of folders that somebody pasted (`ls`, `ls -l`, `find`, `aws s3 ls`, `tree`): which files there were."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING

from .files import Line, RunFile

if TYPE_CHECKING:
    from .workspace import Workspace

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


# ----------
# What listings of checkpoint folders say is wrong: numbers that are missing, files elsewhere, files too short.

# The number of a rank or a shard inside a file name, and how many there are in all where the name says so.
_MEMBER = re.compile(
    r"(?P<head>(?:^|[-_.])(?:(?:zero_)?(?:pp|dp|mp|tp|ep)_rank|rank|states?|rng_state|shard|part|consolidated|model|"
    r"pytorch_model|adapter_model|diffusion_pytorch_model|_)[-_.]?)(?P<n>\d{1,5})(?=[-_.]|$)"
)
_OF = re.compile(r"-(?P<n>\d{5})-of-(?P<all>\d{5})(?=\.)")
_WORLD = re.compile(r"(?P<head>world_size_|-of-)(?P<n>\d+)")
_TENSORS = re.compile(r"\.(?:pt|pth|bin|safetensors|distcp|ckpt)$")
_SMALL_BY_NATURE = re.compile(r"sched|rng|random|training_args|scaler|extra_state|common|metadata|latest|index|args")
_WAITING = {"p": "named pipe", "s": "socket"}
_ADAPTER = re.compile(r"^adapter_model\.(?:bin|safetensors)$|^pytorch_lora_weights\.")
TINY, SHARE, SPAN = 4096, 0.5, 1024
POINTER = 200  # bytes: what git leaves in place of a large file is shorter


_Key = tuple[str, str, str]  # folder, name before the number, name after it


@dataclass(frozen=True, slots=True)
class Gap:
    """One finding: the key below `listing.`, its value, and the entry whose line shows it."""

    key: str
    value: str
    entry: Listed


def gaps(entries: list[Listed], wanted: Iterable[str]) -> Iterator[Gap]:
    """All findings. `wanted` are paths that messages say are not there."""
    yield from _members(entries)
    yield from _sizes(entries)
    names = defaultdict(list)
    for entry in entries:
        names[entry.name].append(entry)
    kinds: set[str] = set()
    for path in dict.fromkeys(wanted):
        kind = re.sub(r"\d+", "#", path)
        if kind not in kinds:  # one of a row tells
            kinds.add(kind)
            yield from _asked(path, entries, names)


def _members(entries: list[Listed]) -> Iterator[Gap]:
    """Numbers left out in a row of names that differ by one number only."""
    rows: dict[_Key, dict[int, tuple[str, Listed]]] = defaultdict(dict)
    totals: dict[_Key, int] = {}
    for entry in entries:
        if m := _OF.search(entry.name):
            key = (entry.folder, entry.name[: m.start("n")], entry.name[m.end("n") :])
            rows[key][int(m["n"])] = (m["n"], entry)
            totals[key] = int(m["all"])
            continue
        for m in _MEMBER.finditer(entry.name):
            key = (entry.folder, entry.name[: m.start("n")], entry.name[m.end("n") :])
            rows[key][int(m["n"])] = (m["n"], entry)
    for key, row in rows.items():
        first, last = (1, totals[key]) if key in totals else (0, max(row))
        if last - first >= SPAN or (len(row) < 3 and key not in totals):
            continue
        missing = [n for n in range(first, last + 1) if n not in row]
        if missing and (key in totals or len(missing) * 4 <= last - first + 1):
            yield from _missing(key, missing, row, entries)


def _missing(key: _Key, missing: list[int], row: dict[int, tuple[str, Listed]], entries: list[Listed]) -> Iterator[Gap]:
    folder, before, after = key
    padded = max((len(raw) for raw, _ in row.values() if raw.startswith("0") and len(raw) > 1), default=1)
    names = [f"{before}{str(n).zfill(padded)}{after}" for n in missing[:8]]
    beside = row[min(row, key=lambda n: abs(n - missing[0]))][1]
    rest = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
    yield Gap("missing_member", f"{', '.join(names)}{rest}: not in {folder or 'the listing'}", beside)
    for name in names:
        same = [
            e for e in entries if e.name == name and e.folder.count("/") == folder.count("/") and e.folder != folder
        ]
        if same:
            nearest = max(same, key=lambda e: _alike(e.folder, folder))
            yield Gap("member_elsewhere", f"{name} lies in {nearest.folder}", nearest)


def _alike(one: str, other: str) -> int:
    return sum(a == b for a, b in zip(one.split("/"), other.split("/"), strict=False))


def _sizes(entries: list[Listed]) -> Iterator[Gap]:
    """Tensor files that are tiny, far shorter than files of the same name in other folders, or no files at all."""
    same: dict[str, list[Listed]] = defaultdict(list)
    for entry in entries:
        if what := _WAITING.get(entry.kind):
            yield Gap("no_plain_file", f"{entry.path} is a {what}: who reads it waits for somebody to write", entry)
        elif entry.size is not None and _TENSORS.search(entry.name) and not _SMALL_BY_NATURE.search(entry.name):
            same[entry.name].append(entry)
            if entry.exact and entry.size < TINY:
                yield Gap("short_file", f"{entry.path} has {entry.size} bytes", entry)
                if entry.size > POINTER and _ADAPTER.search(entry.name):
                    yield Gap("empty_adapter", f"{entry.path} has {entry.size} bytes: names of no tensor", entry)
    for name, group in same.items():
        if len(group) < 2 or len({e.folder for e in group}) < 2:
            continue
        usual = median(sorted(e.size or 0 for e in group)[len(group) // 2 :])
        for entry in group:
            if TINY <= (entry.size or 0) < SHARE * usual:
                yield Gap("short_file", f"{entry.path} has {entry.size} bytes, elsewhere {name} has {usual:.0f}", entry)


def _asked(path: str, entries: list[Listed], names: dict[str, list[Listed]]) -> Iterator[Gap]:
    """A file that was looked for in vain, against what the listings hold."""
    folder, _, name = path.replace("\\", "/").rpartition("/")
    for entry in names.get(name, [])[:4]:
        if folder and entry.folder and not entry.folder.endswith(folder.removeprefix("./")):
            yield Gap("wanted_elsewhere", f"{name} was looked for in {folder}, it lies in {entry.folder}", entry)
    if name in names:
        return
    if m := _WORLD.search(name):
        for entry in entries:
            other = _WORLD.search(entry.name)
            if other and other["n"] != m["n"] and _blank(entry.name, other) == _blank(name, m):
                says = f"asked for {m['head']}{m['n']}, there is {other['head']}{other['n']}"
                yield Gap("other_world_size", says, entry)
                return
    shape = re.sub(r"\d+", "#", name)
    row = [e for e in entries if re.sub(r"\d+", "#", e.name) == shape]
    if len(row) > 1:
        yield Gap("part_of_row", f"{name} is not among the {len(row)} files of its kind here", row[-1])


def _blank(name: str, world: re.Match[str]) -> str:
    """A name without its world size and without the number of its rank."""
    before, after = name[: world.start("n")], name[world.end("n") :]
    return re.sub(r"(?<=rank_)\d+|(?<=-)\d{5}", "*", before) + re.sub(r"\d+", "*", after)
