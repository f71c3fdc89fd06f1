"""What a check of a checkpoint says: a flaw with its place, and how much it weighs in the verdict."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from ....core.deadline import check
from ....core.errors import ParseError
from ....core.types import Evidence, Value
from ...run.files import Line, RunFile, open_regular
from ..formats.symbols import dangerous, known
from ..layouts import SAVED, Checkpoint, holds_weights, part_of
from ..parts import Problem, State
from ..weights import state_of, states_of

if TYPE_CHECKING:
    from ...run.workspace import Workspace

_RANK = re.compile(r"rank_(\d{1,5})")
Weight = Literal["damage", "unknown", "note"]

# Kinds of `parts.Problem` that go by another name as evidence, and those that only keep a file from being called clean.
_KEYS = {"empty": "empty_file", "dangerous_globals": "unsafe_global", "unfinished_save": "unfinished",
         "missing_file": "missing_shard"}  # fmt: skip
_UNKNOWN = {"unreadable", "unknown_format", "too_large"}


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something about a checkpoint.

    Attributes:
        key: evidence key.
        text: what is seen, in words.
        value: a number, a name or True.
        file: the file that shows it; None: the first one of the checkpoint.
        member: tensor, entry or missing file that it is about.
        weight: damage: what was saved is broken or incomplete. unknown: it could not be read, so that nothing may
            be called clean. note: worth knowing, the save itself is whole.
        line: the line of a text file that shows it.
    """

    key: str
    text: str
    value: Value = True
    file: RunFile | None = None
    member: str = ""
    weight: Weight = "damage"
    line: Line | None = None


def flaw_of(problem: Problem, file: RunFile) -> Flaw:
    """A problem of a file's structure as a flaw."""
    key = f"checkpoint.{_KEYS.get(problem.kind, problem.kind)}"
    weight: Weight = "unknown" if problem.kind in _UNKNOWN else "damage"
    return Flaw(key, f"{file.path.name}: {problem.text}", problem.kind, file, problem.member, weight)


def evidence_of(ws: Workspace, checkpoint: Checkpoint, flaw: Flaw) -> Evidence:
    """The evidence that shows a flaw."""
    file = flaw.file or checkpoint.all[0]
    if flaw.line is not None:
        return ws.cite(file, flaw.line, flaw.key, flaw.value, step=checkpoint.step)
    text = f"{checkpoint.name}: {flaw.text}"
    named = _RANK.search(flaw.member) if flaw.file is None else None
    rank = int(named[1]) if named else file.rank if flaw.file is not None else None  # not that of a file beside it
    member = flaw.member or file.path.name
    return ws.binary(file, member, flaw.key, flaw.value, text=text, step=checkpoint.step, rank=rank)


def series_of(checkpoint: Checkpoint, held: list[Checkpoint]) -> list[Checkpoint]:
    """The other saves of the same series, in their order."""
    same = (checkpoint.run, checkpoint.folder, checkpoint.framework)
    return [
        c for c in held
        if c is not checkpoint and (c.run, c.folder, c.framework) == same
        and (c.series == checkpoint.series or (c.step is not None and checkpoint.step is not None))
    ]  # fmt: skip


def skipped_in(ws: Workspace, checkpoint: Checkpoint) -> dict[str, str]:
    """Files of a save that were found and may not be read (links out of the run, no permission), with why."""
    prefix = f"{checkpoint.name}/" if checkpoint.folder else ""
    return {
        name.removeprefix(prefix).rpartition("/")[2]: why
        for name, why in ws.skipped
        if name.startswith(prefix) and (part_of(name) or holds_weights(name))
    }


def present(ws: Workspace, checkpoint: Checkpoint, flaws: Iterable[Flaw]) -> Iterator[Flaw]:
    """Flaws without those that call a file missing which is there and may not be read; that is told instead."""
    skipped = skipped_in(ws, checkpoint)
    for flaw in flaws:
        if flaw.key != "checkpoint.missing_shard" or flaw.member.rpartition("/")[2] not in skipped:
            yield flaw
    for name, why in skipped.items():
        yield Flaw("checkpoint.unreadable", f"{name} was not read: {why}", True, None, name, "unknown")


# ----------
# What names, sizes and a few bytes of each file tell of a checkpoint, without reading what is saved in it.

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


# ----------
# The states of a checkpoint's files, and what is wrong with the structure of each.

_GLOBALS = 12
_DATA = frozenset(("deepspeed.utils.tensor_fragment.fragment_address",))  # a named tuple


def states_of_checkpoint(ws: Workspace, checkpoint: Checkpoint, *parts: str) -> Iterator[tuple[str, State]]:
    """`(part, state)` of every file of tensors that has any bytes; empty ones are told by their names alone.

    Args:
        parts: those that are read; all that hold saved states when none is named.
    """
    for part in parts or [p for p in checkpoint.files if p in SAVED]:
        yield from ((part, state) for state in states_of(ws, checkpoint, part) if state.file.size)


def structure_flaws(ws: Workspace, checkpoint: Checkpoint) -> Iterator[Flaw]:
    """Problems of each file's structure, names in pickles that are no data, and an index that its shards contradict."""
    for _, state in states_of_checkpoint(ws, checkpoint):
        flaws = [flaw_of(p, state.file) for p in state.problems]
        yield from flaws
        if not state.readable and not flaws:
            text = f"{state.file.path.name}: its structure was not wholly understood"
            yield Flaw("checkpoint.unreadable", text, True, state.file, weight="unknown")
        yield from _globals(state)
    yield from _indexed(ws, checkpoint)


def _globals(state: State) -> Iterator[Flaw]:
    """A pickle that names what is no data: it would be called when the file is loaded without restriction."""
    foreign = [name for name in state.globals if not known(name) and not dangerous(name) and name not in _DATA]
    if foreign:
        names = ", ".join(foreign[:_GLOBALS])
        text = f"{state.file.path.name} names {names}: refused by weights_only, called by a plain load"
        yield Flaw("checkpoint.foreign_global", text, foreign[0], state.file, foreign[0], "note")


def _indexed(ws: Workspace, checkpoint: Checkpoint) -> Iterator[Flaw]:
    """Tensors that an index promises in a shard, and that the shard's own header does not have."""
    here = {f.path.name: f for f in checkpoint.files.get("model", [])}
    for index in checkpoint.files.get("index", []):
        mapped = weight_map(ws, index) or {}
        by_shard: dict[str, list[str]] = {}
        for tensor, shard in mapped.items():
            by_shard.setdefault(shard, []).append(tensor)
        for shard, tensors in by_shard.items():
            if shard not in here or here[shard].size == 0:
                continue
            state = state_of(ws, here[shard])
            lost = [t for t in tensors if t not in state.tensors] if state.readable else []
            if lost:
                names = ", ".join(lost[:4])
                text = f"{index.path.name} places {len(lost)} tensors in {shard} that it does not hold: {names}"
                yield Flaw("checkpoint.missing_tensor", text, len(lost), here[shard], lost[0])


# ----------
# What a saved file is by its first bytes, where its name says another; keys that a wrapper's name precedes.

_FORMS_HEADER_LIMIT = 100 << 20  # bytes of a header that safetensors accepts
_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pth.tar", ".pkl")
_MARKS = ((b"GGUF", "a GGUF file"), (b"\x93NUMPY", "a NumPy array"), (b"\x89HDF", "an HDF5 file"), (b"PAR1", "Parquet"))
_ZIP, _PICKLE = b"PK\x03\x04", b"\x80"
_WRAPPED = re.compile(r"(?:^|\.)(_orig_mod\.|module\.|_fsdp_wrapped_module\.)")
_READ = 64 << 20  # bytes of a file whose keys are compared
_COMPARED = 6  # saves whose keys are compared
_FEWEST = 3  # keys, below which a common prefix says nothing


def form_flaws(checkpoint: Checkpoint) -> Iterator[Flaw]:
    """Files of tensors in another format than their names say: a loader goes by the name."""
    for file in checkpoint.tensor_files:
        try:
            with open_regular(file.path) as raw:
                found = _other_form(file.path.name, raw.read(9))
        except (ParseError, OSError):
            continue
        if found:
            text = f"{file.path.name} is {found} by its first bytes, whatever its name says"
            yield Flaw("checkpoint.other_format", text, found, file, weight="note")


def _other_form(name: str, head: bytes) -> str:
    """The format that the first bytes tell where the name tells another; empty where both agree or none is known."""
    if name.endswith(".safetensors"):
        return "a torch file" if head.startswith(_ZIP) or head[:2] in (b"\x80\x02", b"\x80\x04") else ""
    if not name.endswith(_PICKLES):
        return ""
    length = int.from_bytes(head[:8], "little")
    if head[8:9] == b"{" and 2 <= length <= _FORMS_HEADER_LIMIT:
        return "safetensors"
    return next((said for mark, said in _MARKS if head.startswith(mark)), "")


def wrapped_flaws(ws: Workspace, held: list[Checkpoint]) -> Iterator[tuple[Checkpoint, Flaw]]:
    """Of two saves with the same keys, one has a wrapper's name before each: loaded without `strict`, none fits."""
    known = [(c, keys) for c in held[-_COMPARED:] if (keys := _keys(ws, c))]
    for one, keys in known:
        prefix = _prefix(keys)
        for other, others in known if prefix else ():
            if other is not one and {k.replace(prefix, "", 1) for k in keys} == others:
                text = f"all {len(keys)} keys hold {prefix!r}, those of {other.name} are the same without it"
                yield one, Flaw("checkpoint.wrapped_keys", text, prefix, weight="note")
                break


def _keys(ws: Workspace, checkpoint: Checkpoint) -> set[str]:
    """Names of the tensors in a save that is one small file."""
    files = checkpoint.files.get("model", ())
    if len(files) != 1 or files[0].size > _READ:
        return set()
    try:
        return set(state_of(ws, files[0]).tensors)
    except (ParseError, OSError):
        return set()


def _prefix(keys: set[str]) -> str:
    """The wrapper's name that stands in every key, or nothing."""
    found = {m[1] if (m := _WRAPPED.search(k)) else "" for k in keys}
    return found.pop() if len(found) == 1 and len(keys) >= _FEWEST else ""
