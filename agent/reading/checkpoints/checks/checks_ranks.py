"""Whether every rank's file is there: by what the saved states say of the world they come from, and by gaps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ...run.files import RunFile
from ...settings.settings import read_settings
from ..layouts import Checkpoint, step_of_folder
from ..parts import Opaque
from ..weights import state_of
from .checks import Flaw, series_of

if TYPE_CHECKING:
    from ...run.workspace import Workspace

_SMALL = 64 << 20  # bytes of a file whose structure is read for the size of the world
_MOST = 4096  # ranks that are believed
_SHOWN = 64
_TELLING = 1024  # bytes from which two tensors are not alike by chance
_NEAREST = 3  # other saves that are compared with
_ZERO = re.compile(r"^(?P<head>.*?)zero_pp_rank_(?P<data>\d+)_mp_rank_(?P<model>\d+)_(?P<tail>optim|model)_states\.pt$")
_PLAIN = re.compile(r"^mp_rank_(?P<model>\d+)_model_states\.pt$")
_VERL = re.compile(r"^(?P<head>.*_world_size_)(?P<world>\d+)_rank_(?P<rank>\d+)(?P<rest>\..+)$")
_MEGATRON = re.compile(r"^mp_rank_(?P<tensor>\d+)(?:_(?P<pipe>\d+))?(?:_(?P<expert>\d+))?$")
_PIECES = re.compile(r"^__(?P<rank>\d+)_(?P<number>\d+)\.distcp$")
_RANKED = re.compile(
    r"^(?P<head>(?:rng_state|random_states|bf16_zero_pp_rank|.*?_rank)_)(?P<rank>\d+)(?P<rest>(?:_.*)?\..+)$"
)


def rank_flaws(ws: Workspace, checkpoint: Checkpoint, held: list[Checkpoint]) -> Iterator[Flaw]:
    """Files of ranks that must exist and do not."""
    seen: set[str] = set()
    for name, why in _expected(ws, checkpoint, held):
        if name not in seen:
            seen.add(name)
            if len(seen) <= _SHOWN:
                yield Flaw("checkpoint.missing_shard", f"{name} is not there: {why}", name, member=name)


def copied_flaws(ws: Workspace, checkpoint: Checkpoint) -> Iterator[Flaw]:
    """Two ranks with the same bytes, where each should hold a part of its own: one was copied over the other.

    Where half of the files or more are alike, ranks are replicas of each other by design.
    """
    files = checkpoint.files.get({"deepspeed": "optimizer", "megatron": "model"}.get(checkpoint.framework, ""), [])
    seen: dict[tuple[tuple[int, int], ...], RunFile] = {}
    copies: list[tuple[RunFile, RunFile]] = []
    for file in files:
        members = state_of(ws, file).members.values() if 0 < file.size <= _SMALL else ()
        held = tuple((m.size, m.crc) for m in members if m.size >= _TELLING)
        if held and held in seen:
            copies.append((file, seen[held]))
        elif held:
            seen[held] = file
    if len(files) > 2 and 2 * len(copies) >= len(files):
        return
    for file, first in copies:
        names = checkpoint.within(file), checkpoint.within(first)
        yield Flaw("checkpoint.duplicate_shard", f"{names[0]} holds the same tensors as {names[1]}", names[0], file)


def _expected(ws: Workspace, checkpoint: Checkpoint, held: list[Checkpoint]) -> Iterator[tuple[str, str]]:
    names = {checkpoint.within(f) for f in checkpoint.all}
    bases = {PurePosixPath(n).name for n in names}
    if checkpoint.framework == "deepspeed" or any(_ZERO.match(b) for b in bases):
        yield from _deepspeed(ws, checkpoint, bases)
    if checkpoint.framework == "verl":
        yield from _verl(names)
    if checkpoint.framework == "megatron":
        yield from _megatron(ws, checkpoint, names)
    beside = {f.path.name for f in ws.by_role("checkpoint") if f.path.parent in {g.path.parent for g in checkpoint.all}}
    yield from ((name, why) for name, why in _gaps(bases) if name not in beside)
    yield from _against_others(checkpoint, names, held)


def _deepspeed(ws: Workspace, checkpoint: Checkpoint, bases: set[str]) -> Iterator[tuple[str, str]]:
    """One optimizer file for each data-parallel rank; with stage 3 one of the model's too."""
    world = zero_world(ws, checkpoint)
    found = [m for b in bases if (m := _ZERO.match(b))]
    if world is None:
        return
    data, model = world
    why = f"the saved state comes from {data} data-parallel and {model} model-parallel ranks"
    widths = {m["model"] for m in found} or {"00"}
    width = max(map(len, widths))
    for tail in {m["tail"] for m in found}:
        head = next(m["head"] for m in found if m["tail"] == tail)
        for rank in range(data):
            for part in range(model):
                name = f"{head}zero_pp_rank_{rank}_mp_rank_{part:0{width}d}_{tail}_states.pt"
                if name not in bases:
                    yield name, why
    if any(_PLAIN.match(b) for b in bases):
        for part in range(model):
            if f"mp_rank_{part:02d}_model_states.pt" not in bases:
                yield f"mp_rank_{part:02d}_model_states.pt", why
    elif found and not any(m["tail"] == "model" for m in found):
        yield "mp_rank_00_model_states.pt", "no file holds the model's own state"


def zero_world(ws: Workspace, checkpoint: Checkpoint) -> tuple[int, int] | None:
    """Data and model parallel ranks that a DeepSpeed save comes from, as its first readable file tells."""
    for file in [*checkpoint.files.get("model", []), *checkpoint.files.get("optimizer", [])]:
        if not 0 < file.size <= _SMALL:
            continue
        tree = state_of(ws, file).tree
        if not isinstance(tree, dict):
            continue
        if isinstance(tree.get("dp_world_size"), int):
            model = tree.get("mp_world_size")
            return _believed(tree["dp_world_size"], model if isinstance(model, int) else 1)
        inner = tree.get("optimizer_state_dict")
        count = inner.get("partition_count") if isinstance(inner, dict) else None
        count = max((c for c in count if isinstance(c, int)), default=None) if isinstance(count, list) else count
        if isinstance(count, int):
            return _believed(count, 1)
    return None


def _believed(data: int, model: int) -> tuple[int, int] | None:
    return (data, model) if 0 < data <= _MOST and 0 < model <= _MOST and data * model <= 16 * _MOST else None


def verl_world(checkpoint: Checkpoint) -> int | None:
    """Ranks that a verl save comes from, as its file names tell."""
    found = [m for f in checkpoint.tensor_files if (m := _VERL.match(f.path.name))]
    return int(found[0]["world"]) if found and int(found[0]["world"]) <= _MOST else None


def _verl(names: set[str]) -> Iterator[tuple[str, str]]:
    for name in sorted(names):
        path = PurePosixPath(name)
        m = _VERL.match(path.name)
        if m and int(m["world"]) <= _MOST:
            for rank in range(int(m["world"])):
                other = str(path.with_name(f"{m['head']}{m['world']}_rank_{rank}{m['rest']}"))
                if other not in names:
                    yield other, f"{path.name} is one of {m['world']}"


def _megatron(ws: Workspace, checkpoint: Checkpoint, names: set[str]) -> Iterator[tuple[str, str]]:
    folders = {p.parent.name: p.name for n in names if _MEGATRON.match((p := PurePosixPath(n)).parent.name)}
    for file in checkpoint.files.get("model", []) if folders else []:
        sizes = megatron_sizes(ws, file)
        if sizes is None:
            continue
        tensor, pipe = sizes
        base = next(iter(folders.values()))
        for t in range(tensor):
            for p in range(pipe):
                folder = f"mp_rank_{t:02d}" if pipe == 1 else f"mp_rank_{t:02d}_{p:03d}"
                if not any(f == folder or f.startswith(f"{folder}_") for f in folders):
                    yield (
                        f"{folder}/{base}",
                        f"the arguments saved with it say {tensor} tensor and {pipe} pipeline ranks",
                    )
        return


def megatron_sizes(ws: Workspace, file: RunFile) -> tuple[int, int] | None:
    """Tensor and pipeline parallel sizes in the arguments that Megatron saves with the model."""
    if not 0 < file.size <= 1 << 40:
        return None
    tree = state_of(ws, file).tree
    known = plain(tree.get("args")) if isinstance(tree, dict) else None
    if not isinstance(known, dict):
        return None
    tensor, pipe = known.get("tensor_model_parallel_size"), known.get("pipeline_model_parallel_size", 1)
    return _believed(tensor, pipe) if isinstance(tensor, int) and isinstance(pipe, int) else None


def plain(value: Any) -> Any:
    """The attributes of an object whose class is not read, such as argparse's Namespace."""
    if isinstance(value, Opaque):
        return value.state
    return value


def _gaps(bases: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Ranks that are missing between others. What is missing at the end shows only in other ways."""
    sets: dict[tuple[str, str], dict[int, str]] = {}
    for base in bases:
        if m := _PIECES.match(base):
            sets.setdefault(("__", "_0.distcp"), {})[int(m["rank"])] = base
        elif m := _RANKED.match(base):
            sets.setdefault((m["head"], m["rest"]), {})[int(m["rank"])] = base
    for (head, rest), ranks in sets.items():
        last = max(ranks)
        if last <= 16 * _MOST and len(ranks) * 2 > last:
            digits = ranks[last][len(head) : len(ranks[last]) - len(rest)]
            width = len(digits) if digits.isdigit() and digits.startswith("0") else 1
            for rank in sorted(set(range(last)) - set(ranks))[:_SHOWN]:
                yield f"{head}{rank:0{width}d}{rest}", f"rank {last} has one"


def _against_others(checkpoint: Checkpoint, names: set[str], held: list[Checkpoint]) -> Iterator[tuple[str, str]]:
    """Files of ranks that the saves nearest to it all have."""
    others = series_of(checkpoint, held)
    if not others or checkpoint.framework not in ("dcp", "megatron", "megatron_dist", "deepspeed"):
        return
    step = checkpoint.step or 0
    others = sorted(others, key=lambda c: abs((c.step or 0) - step))[:_NEAREST]
    own = {_without_step(n) for n in names}
    common = set.intersection(*({_without_step(c.within(f)) for f in c.tensor_files} for c in others))
    for name in sorted(common - own):
        if PurePosixPath(name).suffix in (".pt", ".distcp"):
            yield name, f"the other {len(others)} saves have one" if len(others) > 1 else f"{others[0].name} has one"


def _without_step(name: str) -> str:
    """`global_step100/x.pt` within `checkpoint-100` is `#/x.pt`, to be held against those of other saves."""
    *folders, base = name.split("/")
    return "/".join([*("#" if step_of_folder(f) else f for f in folders), base])


# ----------
# Whether a save comes from the parallel layout that the run has now, where a save cannot be read under another.


def saved_layout(ws: Workspace, checkpoint: Checkpoint) -> dict[str, int]:
    """Sizes by canonical setting (world_size, tensor_parallel, pipeline_parallel) that the saved state tells."""
    if checkpoint.framework == "deepspeed":
        world = zero_world(ws, checkpoint)
        return {"world_size": world[0] * world[1]} if world else {}
    if checkpoint.framework == "verl":
        size = verl_world(checkpoint)
        return {"world_size": size} if size else {}
    if checkpoint.framework == "megatron":
        for file in checkpoint.files.get("model", []):
            if sizes := megatron_sizes(ws, file):
                return {"tensor_parallel": sizes[0], "pipeline_parallel": sizes[1]}
    return {}


def layout_flaws(ws: Workspace, checkpoint: Checkpoint) -> Iterator[Flaw]:
    """Sizes in which the run's settings differ from those of the save; a universal or DCP save is not bound to any."""
    if "universal" in checkpoint.name:
        return
    settings = read_settings(ws)
    for name, saved in saved_layout(ws, checkpoint).items():
        now = settings.value(name)
        if isinstance(now, int) and not isinstance(now, bool) and now > 0 and now != saved:
            text = f"saved with {name} {saved}, the run's settings say {now}"
            yield Flaw("checkpoint.layout_differs", text, name, checkpoint.tensor_files[0], name, "note")
