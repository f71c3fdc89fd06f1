"""What names, sizes and a few bytes of each file tell of a checkpoint, without reading what is saved in it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ...deadline import check
from ...errors import ParseError
from ..files import RunFile, open_regular
from .checks import Flaw, series_of
from .layouts import Checkpoint

if TYPE_CHECKING:
    from ...workspace import Workspace

_INDEX_LIMIT = 64 << 20
_HEADER_LIMIT = 32 << 20
_TAIL = 1 << 16
_QUOTED = 12  # missing shards whose line in the index is looked up
_OF = re.compile(r"^(?P<stem>.*?)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<rest>\..*)$")
_ENDS = re.compile(rb'"data_offsets"\s*:\s*\[\s*\d+\s*,\s*(\d{1,18})\s*\]')
# What a save that can be resumed has, where a file of its own holds it.
_STATES = ("optimizer", "scheduler", "rng")


def name_flaws(ws: Workspace, checkpoint: Checkpoint, held: list[Checkpoint]) -> Iterator[Flaw]:
    """Everything that can be said without opening a file of tensors."""
    yield from _unfinished(checkpoint, held)
    yield from _empty(checkpoint)
    yield from index_flaws(ws, checkpoint)
    yield from _numbered(checkpoint)
    yield from _parts(checkpoint, held)


def _unfinished(checkpoint: Checkpoint, held: list[Checkpoint]) -> Iterator[Flaw]:
    for mark in checkpoint.marks:
        yield Flaw("checkpoint.unfinished", f"the name {mark} says that the save never ended", mark, member=mark)
    if "metadata" not in checkpoint.files and any(f.path.suffix == ".distcp" for f in checkpoint.tensor_files):
        text = ".metadata, which is written last, is not there: the save never ended"
        yield Flaw("checkpoint.unfinished", text, ".metadata", member=".metadata")
    if (
        checkpoint.framework in ("hf", "peft")
        and "trainer_state" not in checkpoint.files
        and checkpoint.step is not None
    ):
        others = [c for c in series_of(checkpoint, held) if "trainer_state" in c.files]
        if others and {"optimizer", "scheduler", "rng"} & set(checkpoint.files):
            text = f"trainer_state.json, which is written last, is not there, but is in {others[-1].name}"
            yield Flaw("checkpoint.unfinished", text, "trainer_state.json", member="trainer_state.json")


def _empty(checkpoint: Checkpoint) -> Iterator[Flaw]:
    for file in checkpoint.all:
        if file.size == 0:
            yield Flaw("checkpoint.empty_file", f"{checkpoint.within(file)} has no bytes", file.path.name, file)


def index_flaws(ws: Workspace, checkpoint: Checkpoint) -> Iterator[Flaw]:
    """Shards that an index names and that are not there, and shards that none names."""
    for index in checkpoint.files.get("index", []):
        mapped = weight_map(ws, index)
        if mapped is None:
            text = f"{index.path.name} is no JSON with a weight_map"
            yield Flaw("checkpoint.index_broken", text, index.path.name, index)
            continue
        folder = PurePosixPath(index.name).parent
        here = {f.path.name: f for f in checkpoint.all if PurePosixPath(f.name).parent == folder}
        named = set(mapped.values())
        counts = Counter(mapped.values())
        for number, shard in enumerate(sorted(named - set(here))):
            text = f"{index.path.name} names {shard} with {counts[shard]} tensors, which is not there"
            line = _line_naming(ws, index, shard) if number < _QUOTED else None
            yield Flaw("checkpoint.missing_shard", text, shard, index, shard, line=line)
        patterns = {m["stem"] for n in named if (m := _OF.match(n))}
        for name, file in here.items():
            m = _OF.match(name)
            if m and name not in named and m["stem"] in patterns:
                text = f"{name} is named by no index: left over from another save"
                yield Flaw("checkpoint.surplus_shard", text, name, file, weight="note")


def weight_map(ws: Workspace, index: RunFile) -> dict[str, str] | None:
    """Tensor to shard, as an index of Hugging Face's layout says; None where it cannot be read."""
    try:
        known: Any = json.loads(ws.read(index, _INDEX_LIMIT))
        mapped = known["weight_map"]
        return {str(k): str(v) for k, v in mapped.items()}
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None


def _line_naming(ws: Workspace, index: RunFile, shard: str):
    wanted = shard.encode()
    return next((line for line in ws.lines(index) if wanted in line.data and not line.cut), None)


def _numbered(checkpoint: Checkpoint) -> Iterator[Flaw]:
    """Shards that count themselves (`-00001-of-00003`), where no index says the same."""
    indexed = {PurePosixPath(f.name).parent for f in checkpoint.files.get("index", [])}
    sets: dict[tuple[str, str, int, str], dict[int, RunFile]] = {}
    for file in checkpoint.tensor_files:
        if m := _OF.match(file.path.name):
            folder = PurePosixPath(file.name).parent
            key = (str(folder), m["stem"], int(m["count"]), m["rest"])
            sets.setdefault(key, {})[int(m["number"])] = file
    for (folder, stem, count, rest), files in sets.items():
        if PurePosixPath(folder) in indexed:
            continue
        first = next(iter(files.values()))
        if count <= 100_000:
            for number in sorted(set(range(1, count + 1)) - set(files))[:100]:
                name = f"{stem}-{number:05d}-of-{count:05d}{rest}"
                yield Flaw("checkpoint.missing_shard", f"{name} is not there", name, first, name)
        if rest in (".safetensors", ".bin"):
            name = f"{stem}{rest}.index.json"
            yield Flaw(
                "checkpoint.missing_shard", f"{name}, which maps tensors to shards, is not there", name, first, name
            )


def _parts(checkpoint: Checkpoint, held: list[Checkpoint]) -> Iterator[Flaw]:
    """States that lie in files of their own and are not there, though this save was meant for going on."""
    has = set(checkpoint.files)
    if checkpoint.framework not in ("hf", "peft", "accelerate", "deepspeed", "megatron", "verl"):
        return
    others = series_of(checkpoint, held)
    if "model" not in has and any("model" in c.files for c in others):
        yield Flaw(
            "checkpoint.missing_shard", "the weights are not there, other saves have them", "model", member="model"
        )
    meant = (
        ("trainer_state" in has and "#" in checkpoint.series)
        or checkpoint.framework == "deepspeed"
        or bool(has & {"scheduler", "rng", "scaler"})
    )
    for part in _STATES:
        if part in has:
            continue
        earlier = [c for c in others if part in c.files]
        expected = meant and checkpoint.framework in ("hf", "peft", "accelerate") and part != "scheduler"
        if part == "optimizer" and checkpoint.framework == "deepspeed":
            expected = True
        if not expected and not earlier:
            continue
        newest = not any((c.step or 0) > (checkpoint.step or 0) for c in others)
        text = f"no {part} state" + (f", but {earlier[-1].name} has one" if earlier else "")
        yield Flaw(
            f"checkpoint.no_{part}",
            text,
            checkpoint.name,
            member=part,
            weight="damage" if earlier and newest else "note",
        )


def cut_flaws(checkpoint: Checkpoint) -> Iterator[Flaw]:
    """Files that end before what their own header or directory announces; a few bytes of each are read."""
    for file in checkpoint.tensor_files:
        check()
        if file.size == 0:
            continue
        try:
            with open_regular(file.path) as raw:
                yield from _cut(raw, file)
        except (ParseError, OSError):
            yield Flaw("checkpoint.unreadable", f"{file.path.name} cannot be opened", True, file, weight="unknown")


def _cut(raw: Any, file: RunFile) -> Iterator[Flaw]:
    head = raw.read(8)
    if head.startswith(b"PK\x03\x04"):
        raw.seek(max(0, file.size - _TAIL))
        if b"PK\x05\x06" not in raw.read(_TAIL):
            text = f"{file.path.name} has {file.size} bytes and no zip directory at its end"
            yield Flaw("checkpoint.truncated", text, file.size, file)
    elif file.path.suffix == ".safetensors":
        length = int.from_bytes(head, "little")
        if len(head) < 8 or length + 8 > file.size:
            text = f"{file.path.name} has {file.size} bytes, its header alone takes {length + 8}"
            yield Flaw("checkpoint.truncated", text, file.size, file)
        elif length <= _HEADER_LIMIT:
            ends = [int(e) for e in _ENDS.findall(raw.read(length))]
            if ends and 8 + length + max(ends) > file.size:
                text = f"{file.path.name} has {file.size} bytes, its header announces {8 + length + max(ends)}"
                yield Flaw("checkpoint.truncated", text, file.size, file)
