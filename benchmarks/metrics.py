"""Curves: how fast metric lines of several kinds are read, and a whole gigabyte of Megatron lines with its anomalies.

python benchmarks/metrics.py [--gigabytes 1.0]
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from traindoctor.agent.reading.curves.formats.metric_lines import LineReader
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.curves.metrics_tools import find_anomalies, read_metrics

MEGATRON = (
    " [2026-08-22 {h:02d}:{m:02d}:{s:02d}.{f:06d}] iteration {i:8d}/ 9000000 | consumed samples: {c:12d} | "
    "elapsed time per iteration (ms): {t:.1f} | learning rate: {lr:.6E} | lm loss: {loss:.6E} | loss scale: 1.0 | "
    "grad norm: {g:.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)


def megatron(i: int) -> str:
    """A line of Megatron-LM."""
    return MEGATRON.format(
        h=i // 3600 % 24, m=i // 60 % 60, s=i % 60, f=i % 1_000_000, i=i, c=i * 1024, t=random.gauss(1000, 20),
        lr=1e-4 * min(1, i / 2000), loss=2 + 8 / (1 + i / 1000) + random.gauss(0, 0.02), g=abs(random.gauss(1, 0.1)),
    )  # fmt: skip


def trainer(i: int) -> str:
    """A line of the HF Trainer, whose numbers have every width."""
    loss, norm, rate = random.gauss(2, 0.3), random.gauss(1, 0.1), random.random() * 1e-5
    return f"{{'loss': {loss:.4f}, 'grad_norm': {norm!r}, 'learning_rate': {rate!r}, 'epoch': {i / 1000:.2f}}}\n"


def prose(i: int) -> str:
    """A line that measures nothing."""
    return f"2026-01-01 10:00:{i % 60:02d} INFO worker {i} wrote shard {i % 77} with {i * 31 % 9973} records, ok\n"


def kinds(megabytes: float) -> Iterator[tuple[str, float]]:
    """(kind of line, MB/s of one core) of the line reader."""
    makers: list[Callable[[int], str]] = [megatron, trainer, prose]
    for make in makers:
        count = int(megabytes * 1e6 / len(make(1000)))
        data = "".join(make(i) for i in range(count)).encode()
        started = time.process_time()
        LineReader().read([data[i : i + (1 << 20)] for i in range(0, len(data), 1 << 20)])
        yield make.__name__, len(data) / 1e6 / (time.process_time() - started)


def whole(gigabytes: float) -> dict[str, float]:
    """Seconds of both tools over one log, peak memory, and whether the one bad line in it was found."""
    random.seed(0)
    part = [megatron(i) for i in range(1, 200_001)]
    copies = max(1, round(gigabytes * 1e9 / sum(map(len, part))))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.log"
        with path.open("w") as f:
            for copy in range(copies):
                if copy == copies // 2:
                    f.write(part[-1].replace("lm loss: ", "lm loss: nan #"))
                f.writelines(part)
        ws = Workspace([Path(folder)])
        started = time.perf_counter()
        read_metrics(ws)
        read = time.perf_counter() - started
        keys = {e.key for e in find_anomalies(ws).evidence}
        return {
            "gigabytes": round(path.stat().st_size / 1e9, 3),
            "read_metrics_seconds": round(read, 2),
            "find_anomalies_seconds": round(time.perf_counter() - started - read, 2),
            "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            "planted_nan_found": float("loss.first_nan_step" in keys),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    given = parser.parse_args()
    result = {"megabytes_a_second": {name: round(speed) for name, speed in kinds(20)}, "whole": whole(given.gigabytes)}
    print(json.dumps(result, indent=2))  # noqa: T201


if __name__ == "__main__":
    main()
