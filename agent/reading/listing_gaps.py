"""What listings of checkpoint folders say is wrong: numbers that are missing, files elsewhere, files too short."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median

from .folder_listings import Listed

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
