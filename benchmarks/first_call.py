"""Bytes of the first request to a model, on runs of 2 kB, 20 MB, 1 GB and 1,024 ranks; 32 kB is promised for each.

    python -m benchmarks.first_call [--gigabytes N]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from .large_log import LINE, write_log

OOM = "[rank{r}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
LIMIT = 32_000


def request_bytes(run: Path, question: str, window: int) -> int:
    """Size of the request as it would be sent."""
    from traindoctor.agent.llm.model_settings import ModelSettings
    from traindoctor.agent.reading.run.workspace import Workspace
    from traindoctor.agent.session.session import first_request

    asked = first_request(Workspace([run], question=question), question, ModelSettings("any", window=window))
    return len(json.dumps(json.loads(asked), ensure_ascii=False, separators=(",", ":")).encode())


def ranks(folder: Path, count: int) -> Path:
    """A run with a log for each rank, all of which fail alike."""
    folder.mkdir()
    for r in range(count):
        steps = [LINE.format(h=1, m=s // 60, s=s % 60, f=r, i=s, c=s * 1024, t=310 + r % 7, lr=3e-4, loss=2.5, g=0.5)
                 for s in range(1, 40)]  # fmt: skip
        (folder / f"rank{r}.log").write_text("".join(steps) + OOM.format(r=r))
    return folder


def main() -> None:
    """Print one JSON mapping."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    given = parser.parse_args()
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        runs = {"2 kB": 2e-6, "20 MB": 0.02, f"{given.gigabytes:g} GB": given.gigabytes}
        for name, gigabytes in runs.items():
            (root / name).mkdir()
            write_log(root / name / "train.log", gigabytes)
        for name, run in {**{n: root / n for n in runs}, "1,024 ranks": ranks(root / "ranks", 1024)}.items():
            for window in (131_072, 16_384):
                size = request_bytes(run, "it ran out of memory, why?", window)
                missed = "" if size <= LIMIT else ", MISSED"
                found[f"{name}, {window} tokens (bytes)"] = f"{size} (at most {LIMIT}{missed})"
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
