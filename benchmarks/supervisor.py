"""What `doctor run` costs a job: the same job with and without it, in turn.

python benchmarks/supervisor.py [--pairs 10] [--seconds 10]

The job does a fixed amount of work in steps of about 50 ms and prints a line each step; its loop times itself, so that
the start of an interpreter is not among it. Told are the median of the paired ratios and their quartiles; memory (PSS,
shared pages divided by their users) and processor time of all processes of doctor while the job runs; what `true`
takes longer; how fast output passes.
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
from pathlib import Path

DOCTOR = [sys.executable, "-m", "traindoctor.agent.doors.cli", "run", "--quiet", "--run"]
JOB = """
import sys, time
steps, work = int(sys.argv[1]), int(sys.argv[2])
def step(n):
    x = 0
    for i in range(n):
        x += i & 7
    return x
began = time.perf_counter()
for i in range(steps):
    step(work)
    print("step", i, "loss 1.25", flush=True)
print(time.perf_counter() - began, file=sys.stderr)
"""
STEP = 0.05  # seconds
TICK = os.sysconf("SC_CLK_TCK")


def calibrated() -> int:
    """Turns of the inner loop that take one step here."""
    began, turns = time.perf_counter(), 4_000_000
    x = 0
    for i in range(turns):
        x += i & 7
    return max(1, int(turns * STEP / (time.perf_counter() - began)))


class Seen:
    """The most memory and the processor time of doctor's own processes: the supervisor and what it started."""

    def __init__(self) -> None:
        self.pss = self.rss = 0
        self.used: dict[int, float] = {}

    def look(self, supervisor: int) -> None:
        """Measure all of them now."""
        ours = [p for p in _family(supervisor) if _is_ours(p)]
        sizes = [_sizes(p) for p in ours]
        self.pss = max(self.pss, sum(s[0] for s in sizes))
        self.rss = max(self.rss, sum(s[1] for s in sizes))
        for pid in ours:
            self.used[pid] = max(self.used.get(pid, 0.0), _processor(pid))


def _family(pid: int) -> list[int]:
    try:
        below = [int(c) for t in Path(f"/proc/{pid}/task").iterdir() for c in (t / "children").read_text().split()]
    except OSError:
        below = []
    return [pid, *(p for child in below for p in _family(child))]


def _is_ours(pid: int) -> bool:
    """Not the job: it alone has the job's program on its command line without doctor's in front."""
    try:
        return b"traindoctor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _sizes(pid: int) -> tuple[int, int]:
    found = {"Pss:": 0, "Rss:": 0}
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, *rest = line.split()
            if name in found:
                found[name] = int(rest[0]) * 1024
    except OSError:
        return 0, 0
    return found["Pss:"], found["Rss:"]


def _processor(pid: int) -> float:
    try:
        part = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0.0
    return (int(part[11]) + int(part[12])) / TICK


def looped(words: list[str], folder: Path, seen: Seen | None) -> float:
    """Seconds of the job's loop, alone or, where it is to be seen, under doctor."""
    job = [sys.executable, "-c", JOB, *words]
    argv = [*DOCTOR, str(folder), "--", *job] if seen else job
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while seen and process.poll() is None:
        seen.look(process.pid)
        time.sleep(1.0)
    _, told = process.communicate()
    return float(told.strip().splitlines()[-1])


def of_true(folder: Path, times: int) -> float:
    """Seconds that `true` takes longer, median."""
    added = []
    for _ in range(times):
        took = []
        for argv in (["true"], [*DOCTOR, str(folder), "--", "true"]):
            began = time.perf_counter()
            subprocess.run(argv, check=True)
            took.append(time.perf_counter() - began)
        added.append(took[1] - took[0])
    return statistics.median(added)


def throughput(folder: Path, size: int = 1 << 30) -> float:
    """Bytes a second of a job that only writes."""
    began = time.perf_counter()
    argv = [*DOCTOR, str(folder), "--", "head", "-c", str(size), "/dev/zero"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return size / (time.perf_counter() - began)


def main() -> None:
    """Measure, and print one mapping."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10.0)
    asked = parser.parse_args()
    words = [str(max(1, int(asked.seconds / STEP))), str(calibrated())]
    seen, ratios, plain = Seen(), [], []
    with tempfile.TemporaryDirectory() as place:
        for number in range(asked.pairs):
            took = {}
            for under in (number % 2 == 0, number % 2 == 1):
                took[under] = looped(words, Path(place) / "run", seen if under else None)
            ratios.append(took[True] / took[False])
            plain.append(took[False])
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [*ratios] * 3
        rate = throughput(Path(place) / "rate")
        shown = {
            "pairs": asked.pairs,
            "the job alone (s)": round(statistics.median(plain), 3),
            "under doctor run, times that": f"{middle:.4f} (quartiles {low:.4f} to {high:.4f})",
            "processor time of doctor's processes a run (s)": round(sum(seen.used.values()) / asked.pairs, 3),
            "memory of doctor's processes, PSS (MB)": round(seen.pss / 1e6, 1),
            "memory of doctor's processes, RSS (MB)": round(seen.rss / 1e6, 1),
            "true takes longer (s)": round(of_true(Path(place) / "true", 9), 3),
            "output (MB/s)": round(rate / 1e6),
        }
    sys.stdout.write(json.dumps(shown, indent=1) + "\n")


if __name__ == "__main__":
    main()
