"""The recorder's cost: steps with and without it, in turn, in one process.

python benchmarks/recorder.py [--pairs 40] [--steps 5] [--milliseconds 50]

Each pair is a block of steps without and one with the recorder, in changing order; what is told is the median of the
paired ratios, and their quartiles. Norms by parameter are sampled every 50 steps, as by default.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "recorder"))

import torch
from traindoctor_recorder import Recorder


class Transformer(torch.nn.Module):
    """A small language model; its batch is chosen so that a step takes the time asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(512, 128)
        layer = torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = torch.nn.Linear(128, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embed(x)))


class Deep(torch.nn.Module):
    """Two hundred parameter tensors, so that a cost for each tensor shows."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(512, 64)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(98))
        self.head = torch.nn.Linear(64, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = x + torch.tanh(layer(x)) * 0.1
        return self.head(x)


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, recorder: Recorder | None) -> None:
    """One step as a training script has it; the recorder's line is there or not."""
    loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
    optimizer.zero_grad()
    loss.backward()
    if recorder is not None:
        recorder.step(loss, ids=range(len(x)))
    optimizer.step()


def timed(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, recorder: Recorder | None, steps: int
) -> tuple[float, float]:
    """Milliseconds a step: by the clock, and of processor in all threads (the clock measures neighbours too)."""
    began = time.perf_counter(), time.process_time()
    if recorder is not None:
        recorder._last = None  # the block without it was no step of its own
    for batch in recorder.watch([x] * steps) if recorder is not None else [x] * steps:
        step(model, optimizer, batch, recorder)
    return (time.perf_counter() - began[0]) / steps * 1e3, (time.process_time() - began[1]) / steps * 1e3


def sized(model: torch.nn.Module, optimizer: torch.optim.Optimizer, milliseconds: float) -> torch.Tensor:
    """A batch with which a step takes about that long."""
    rows = 2
    while True:
        x = torch.randint(0, 512, (rows, 32))
        timed(model, optimizer, x, None, 2)
        took = min(timed(model, optimizer, x, None, 1)[0] for _ in range(5))
        if took >= 0.85 * milliseconds or rows >= 512:
            return x
        rows = max(rows + 1, min(512, int(rows * milliseconds / took)))


Times = tuple[float, float]


def pairs(model: torch.nn.Module, count: int, steps: int, milliseconds: float) -> Iterator[tuple[Times, Times]]:
    """(without, with) of each pair, each by the clock and of processor."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = sized(model, optimizer, milliseconds)
    with tempfile.TemporaryDirectory() as run, Recorder(run, model, optimizer) as recorder:
        timed(model, optimizer, x, recorder, 10)
        for _ in range(count):
            found = {}
            for kind in random.sample((None, recorder), 2):
                found[kind is None] = timed(model, optimizer, x, kind, steps)
            yield found[True], found[False]


def told(found: list[tuple[Times, Times]], which: int) -> dict[str, object]:
    """Medians, and the paired ratio with its quartiles."""
    ratios = [b[which] / a[which] for a, b in found]
    low, middle, high = statistics.quantiles(ratios, n=4)
    without, beside = (statistics.median(side[which] for side in sides) for sides in zip(*found, strict=True))
    return {"without (ms)": round(without, 2), "with (ms)": round(beside, 2),
            "ratio (at most 1.01)": round(middle, 4), "its quartiles": [round(low, 4), round(high, 4)]}  # fmt: skip


def main() -> None:
    """Print one mapping: each model by the clock and of processor."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--milliseconds", type=float, default=50.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    shown: dict[str, object] = {}
    for model in (Transformer(), Deep()):
        found = list(pairs(model, args.pairs, args.steps, args.milliseconds))
        name = f"{type(model).__name__}, {len(list(model.parameters()))} tensors, {len(found)} pairs"
        shown[f"recorder, {name}, clock"] = told(found, 0)
        shown[f"recorder, {name}, processor"] = told(found, 1)
    sys.stdout.write(json.dumps(shown) + "\n")


if __name__ == "__main__":
    main()
