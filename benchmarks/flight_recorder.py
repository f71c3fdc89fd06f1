"""Flight-recorder dumps of 1,024 ranks: doctor against torchfrtrace, whole processes, the same verdict.

python benchmarks/flight_recorder.py [--ranks 1024] [--entries 200] [--runs 3]
"""

from __future__ import annotations

import argparse
import json
import pickle
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FRAMES = [
    {"name": "all_reduce", "filename": "/env/torch/distributed/distributed_c10d.py", "line": 3245},
    {"name": "wrapper", "filename": "/env/torch/distributed/c10d_logger.py", "line": 83},
    {"name": "reduce_gradients", "filename": "/job/trainer.py", "line": 212},
    {"name": "train_step", "filename": "/job/trainer.py", "line": 148},
    {"name": "main", "filename": "/job/train.py", "line": 40},
]
ODD = 341  # the rank that reduces another size at the end
DOCTOR = "from traindoctor.agent.doors.cli import main; raise SystemExit(main())"
PEER = "from torch.distributed.flight_recorder.fr_trace import main; main()"


def entry(number: int, last: int, rank: int) -> dict:
    """One all-reduce; the last has not ended."""
    size = 99 if rank == ODD and number == last else 8 + number % 5
    at = 1_795_000_000_000_000_000 + number * 1_000_003 + rank
    return {
        "frames": [dict(f) for f in FRAMES], "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"),
        "thread_name": "python3", "thread_id": "140534452902784", "collective_seq_id": number + 1, "p2p_seq_id": 0,
        "op_id": number + 1, "profiling_name": "nccl:all_reduce", "time_created_ns": at, "input_sizes": [[size]],
        "input_dtypes": ["Float"], "output_sizes": [[size]], "output_dtypes": ["Float"],
        "state": "started" if number == last else "completed", "time_discovered_started_ns": at + 10,
        "time_discovered_completed_ns": None if number == last else at + 1000, "retired": number != last,
        "timeout_ms": 600000, "is_p2p": False,
    }  # fmt: skip


def write(folder: Path, ranks: int, entries: int) -> int:
    """All dumps; gives their size in bytes."""
    group = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}
    size = 0
    for rank in range(ranks):
        dump = {
            "version": "2.10", "pg_config": group, "comm_lib_version": "2.27.5", "pg_status": {},
            "entries": [entry(i, entries - 1, rank) for i in range(entries)],
        }  # fmt: skip
        data = pickle.dumps(dump, protocol=2)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(data)
        size += len(data)
    return size


def timed(argv: list[str], runs: int) -> tuple[float, str]:
    """Median seconds of processor time of a process, and what it printed; another job on the machine counts less."""
    found, text = [], ""
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        text = done.stdout + done.stderr
    return statistics.median(found), text


def main() -> None:
    """Make the dumps, ask both, print one JSON mapping."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--entries", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        size = write(Path(folder), given.ranks, given.entries)
        began = time.perf_counter()
        mine, said = timed([sys.executable, "-c", DOCTOR, "tool", "flight-recorder", folder], given.runs)
        wall = (time.perf_counter() - began) / given.runs
        peer, answer = timed([sys.executable, "-c", PEER, folder], given.runs)
    number = re.search(r"sequence number: (\d+) has errors", answer)
    same = bool(number and f"#{number[1]} differs in size" in said and "SIZE_OR_SYNTAX_MISMATCH" in answer)
    ratio = peer / mine
    print(json.dumps({  # noqa: T201
        "ranks": given.ranks, "entries a rank": given.entries, "megabytes": round(size / 1e6, 1),
        "doctor (s of processor)": round(mine, 2), "doctor (s of wall clock)": round(wall, 2),
        "torchfrtrace (s of processor)": round(peer, 2),
        "times faster": f"{ratio:.1f} (at least 5{'' if ratio >= 5 else ', MISSED'})",
        "same verdict": same, "culprit named": f"rank {ODD}" in said,
    }, indent=2))  # fmt: skip


if __name__ == "__main__":
    main()
