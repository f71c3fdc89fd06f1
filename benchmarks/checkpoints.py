"""Checkpoints: structure, checksums and non-finite elements of a file, against torch and against merely reading it.

python -m benchmarks.checkpoints [--gigabytes 1.0] [--folder PATH]

Every figure is the median of a few runs in this process, in turns. "Cold" runs start after the file was dropped from
the page cache, so that the disk is measured too; where dropping has no effect, cold is as fast as warm.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from traindoctor.agent.reading.checkpoints.numbers import examine
from traindoctor.agent.reading.checkpoints.weights import state_of
from traindoctor.agent.reading.run.workspace import Workspace

RUNS = 5


def make(folder: Path, gigabytes: float) -> list[Path]:
    """A model of mixed types as a torch zip and as safetensors."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    side = 1024
    rows = int(gigabytes * 1e9 / 24 / side / 3)  # a layer of float32 takes two thirds, its bfloat16 copy one
    held: dict[str, Any] = {}
    for i in range(24):
        held[f"layers.{i}.weight"] = torch.randn(rows, side // 2)
        held[f"layers.{i}.norm"] = torch.ones(side)
        held[f"layers.{i}.half"] = torch.randn(rows, side // 2).to(torch.bfloat16)
    paths = [folder / "model.pt", folder / "model.safetensors"]
    torch.save(held, paths[0])
    save_file(held, paths[1])
    return paths


def drop(path: Path) -> None:
    """Have the page cache forget a file."""
    with path.open("rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def medians(works: dict[str, Callable[[], None]], path: Path) -> dict[str, tuple[float, float]]:
    """(seconds, processor seconds of all threads) by name; the works take turns, so that all see the same machine."""
    took: dict[str, list[float]] = {name: [] for name in works}
    busy: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(RUNS):
        for name, work in works.items():
            if name.endswith("_cold"):
                drop(path)
            started, cpu = time.perf_counter(), time.process_time()
            work()
            took[name].append(time.perf_counter() - started)
            busy[name].append(time.process_time() - cpu)
    return {name: (statistics.median(took[name]), statistics.median(busy[name])) for name in works}


def merely_read(path: Path) -> None:
    """Every byte, in one thread, looking at none."""
    buffer = bytearray(1 << 20)
    with path.open("rb", buffering=0) as f:
        while f.readinto(buffer):
            pass


def ours(path: Path, deep: bool = False) -> None:
    """What a verification reads: structure, checksums, NaN, infinities, zeros, minimum and maximum."""
    ws = Workspace([path])
    state = state_of(ws, ws.files[0])
    seen = examine(ws, state, deep=deep)
    assert state.readable and not seen.problems and not any(n.nan or n.inf for n in seen.numbers.values())


def theirs(path: Path) -> None:
    """The same question to torch: load, then isfinite on every tensor."""
    import torch

    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        held = load_file(path)
    else:
        held = torch.load(path, weights_only=True)
    assert all(bool(torch.isfinite(t).all()) for t in held.values())


def measure(path: Path) -> dict[str, float]:
    """Seconds and ratios for one file."""
    ours(path)  # imports
    cold = medians({"read_cold": lambda: merely_read(path), "ours_cold": lambda: ours(path)}, path)
    warm: dict[str, Callable[[], None]] = {
        "ours_warm": lambda: ours(path),
        "ours_deep_warm": lambda: ours(path, deep=True),
        "torch_warm": lambda: theirs(path),
    }
    seconds = {**cold, **medians(warm, path)}
    ratios = {
        "times_faster_than_torch": seconds["torch_warm"][0] / seconds["ours_warm"][0],
        "times_less_processor_than_torch": seconds["torch_warm"][1] / seconds["ours_warm"][1],
        "times_a_cold_read": seconds["ours_cold"][0] / seconds["read_cold"][0],
    }
    return {
        "gigabytes": round(path.stat().st_size / 1e9, 3),
        **{k: round(wall, 3) for k, (wall, _) in seconds.items()},
        **{k: round(v, 2) for k, v in ratios.items()},
        "peak_mb_above_idle": peak(path),
    }


PEAK = """
import resource, sys
from pathlib import Path
import numpy
from benchmarks.checkpoints import ours
used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
idle = used()
ours(Path(sys.argv[1]), deep=True)
print(used() - idle)
"""


def peak(path: Path) -> int:
    """MB that reading one file adds to a fresh process."""
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, cwd=root, check=True)
    return int(done.stdout)


def checkpoints(gigabytes: float, folder: Path | None = None) -> dict[str, dict[str, float]]:
    """Figures of both formats."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        paths = make(Path(place), gigabytes)
        return {path.suffix[1:]: measure(path) for path in paths}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, help="where the files are made: the disk that is measured")
    given = parser.parse_args()
    print(json.dumps(checkpoints(given.gigabytes, given.folder), indent=2))  # noqa: T201


if __name__ == "__main__":
    main()
