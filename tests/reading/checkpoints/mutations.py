"""Good checkpoints of every format, and what happens to files: they are cut, and bits of them flip."""

from __future__ import annotations

import argparse
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from traindoctor.agent.reading.checkpoints.formats.distributed import distributed_state
from traindoctor.agent.reading.checkpoints.numbers import examine
from traindoctor.agent.reading.checkpoints.parts import State
from traindoctor.agent.reading.checkpoints.weights import state_of
from traindoctor.agent.reading.run.workspace import Workspace

FORMATS = ("safetensors", "torch zip", "torch legacy", "DCP", "ZeRO")


@dataclass(frozen=True)
class Good:
    """A checkpoint in a folder of its own: `file` is the one that is damaged, `read` the one that is asked for."""

    format: str
    folder: Path
    file: Path
    read: str
    spans: dict[str, list[tuple[int, int]]]  # region: places in `file`


def content(seed: int) -> dict[str, Any]:
    """Something like a small model with its optimizer."""
    torch.manual_seed(seed)
    weights = {f"layers.{i}.weight": torch.randn(24 + i, 16) for i in range(4)}
    return {"model": weights, "step": 100 + seed, "optimizer": {"state": {0: {"exp_avg": torch.randn(24, 16)}}}}


def zero(seed: int) -> dict[str, Any]:
    """Something like a shard of DeepSpeed's ZeRO: flat partitions beside bookkeeping."""
    torch.manual_seed(seed)
    flat = torch.randn(3000)
    inner = {"state": {0: {"step": 7, "exp_avg": flat * 0.1, "exp_avg_sq": flat**2}}, "param_groups": [{"lr": 1e-4}]}
    held = {"base_optimizer_state": inner, "single_partition_of_fp32_groups": [flat], "partition_count": [2]}
    return {
        "optimizer_state_dict": held,
        "ds_config": {"zero_optimization": {"stage": 2}},
        "args": argparse.Namespace(x=1),
    }


def good(format: str, folder: Path, seed: int) -> Good:
    """Save one with the real library."""
    folder.mkdir(parents=True)
    if format == "safetensors":
        path = folder / "model.safetensors"
        save_file(content(seed)["model"], path, metadata={"format": "pt"})
        header = 8 + int.from_bytes(path.read_bytes()[:8], "little")
        return Good(format, folder, path, path.name, {"header": [(0, header)], "data": [(header, path.stat().st_size)]})
    if format == "DCP":
        dcp.save(content(seed), checkpoint_id=folder, no_dist=True)
        path = folder / "__0_0.distcp" if seed % 2 else folder / ".metadata"
        whole = [(0, path.stat().st_size)]
        return Good(format, folder, path, ".metadata", _spans(folder, ".metadata") if seed % 2 else {"index": whole})
    path = folder / ("model.pt" if format != "ZeRO" else "zero_pp_rank_0_mp_rank_00_optim_states.pt")
    saved = zero(seed) if format == "ZeRO" else content(seed)
    torch.save(saved, path, _use_new_zipfile_serialization=format != "torch legacy")
    return Good(format, folder, path, path.name, _spans(folder, path.name))


def _spans(folder: Path, name: str) -> dict[str, list[tuple[int, int]]]:
    """Regions of a file as our own reader sees them."""
    state, _ = answer(folder, name)
    path = folder / ("__0_0.distcp" if name == ".metadata" else name)
    size = path.stat().st_size
    data = sorted({(t.start, t.start + t.size) for t in state.tensors.values() if t.size})
    pickles = [(m.start, m.start + m.size) for m in state.members.values() if m.name.endswith("data.pkl")]
    if not state.members:
        return {"pickle": [(0, data[0][0])], "data": data}
    last = max(m.start + m.size for m in state.members.values())
    return {"pickle": pickles, "data": data, "directory": [(last, size)]}


def answer(folder: Path, name: str) -> tuple[State, list[str]]:
    """Our answer: the state and every problem, checksums included."""
    ws = Workspace([folder])
    file = next(f for f in ws.files if f.name == name)
    state = distributed_state(ws, file) if name == ".metadata" else state_of(ws, file)
    seen = examine(ws, state)
    bad = [n for n, numbers in seen.numbers.items() if numbers.nan or numbers.inf or not numbers.read]
    return state, [p.kind for p in [*state.problems, *seen.problems]] + ["unread"] * (not state.readable) + [
        "numbers"
    ] * len(bad)


def facts(state: State) -> list[Any]:
    """What a reader would take from a checkpoint: names, types, shapes, places, and plain values."""
    tensors = [(t.name, t.dtype, t.shape, t.strides, t.start, t.size) for t in state.tensors.values()]
    return [*tensors, _plain(state.tree), sorted(state.metadata.items())]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if isinstance(value, str | int | float | bool | None) else type(value).__name__


@dataclass(frozen=True)
class Damage:
    """One damaged file: what was done to it, and whether it was seen."""

    format: str
    kind: str
    seen: bool
    changed: bool
    problems: list[str]


def damages(folder: Path, count: int, seed: int = 0) -> Iterator[Damage]:
    """Damage good files again and again: a third cut, the others with one bit flipped in each region in turn."""
    chance = random.Random(seed)
    originals = [good(f, folder / f"{f}-{s}".replace(" ", "-"), s) for f in FORMATS for s in range(4)]
    before = {o.folder: facts(answer(o.folder, o.read)[0]) for o in originals}
    for number in range(count):
        original = originals[number % len(originals)]
        work = folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(original.folder, work)
        path = work / original.file.relative_to(original.folder)
        data = bytearray(path.read_bytes())
        region = ("cut", *original.spans)[number // len(originals) % (1 + len(original.spans))]
        if region == "cut":
            places = (len(data) - 1, len(data) - chance.randrange(1, 200), 0, chance.randrange(1, 64))
            at = chance.choice((*places, *(chance.randrange(len(data)) for _ in range(8))))
            del data[max(0, at) :]
        else:
            begin, end = chance.choice(original.spans[region])
            data[chance.randrange(begin, end)] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        state, problems = answer(work, original.read)
        kind = "truncated" if region == "cut" else f"flipped in {region}"
        changed = region in ("cut", "data") or facts(state) != before[original.folder]
        yield Damage(original.format, kind, bool(problems), changed, problems)


def table(found: list[Damage]) -> str:
    """Detection rates by format and kind: all files, those whose content changed, and how many of these were seen."""
    lines = ["format         damage                 files  content changed  detected  rate"]
    for format, kind in sorted({(d.format, d.kind) for d in found}):
        these = [d for d in found if (d.format, d.kind) == (format, kind)]
        changed = [d for d in these if d.changed or d.seen]
        seen = sum(d.seen for d in changed)
        rate = f"{100 * seen / len(changed):.1f} %" if changed else "-"
        lines.append(f"{format:<14} {kind:<22} {len(these):>5}  {len(changed):>15}  {seen:>8}  {rate:>7}")
    return "\n".join(lines)
