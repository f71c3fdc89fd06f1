"""`doctor watch` on many growing logs: its share of a core, its memory over time, and how soon a NaN is told.

python -m benchmarks.watch [SECONDS] [LOGS] [LINES_A_SECOND]
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

_WATCH = "from traindoctor.agent.doors.cli import main; raise SystemExit(main())"
_MARKS = (10, 60, 300)
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Write, watch, measure, print one JSON object."""
    asked = [int(a) for a in sys.argv[1:]]
    seconds, logs, rate = [*asked, *(300, 64, 20)[len(asked) :]]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _WATCH, "watch", folder, "--json", "--only", "loss_nan"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            try:
                sys.stdout.write(json.dumps(measured(child, Path(folder), seconds, logs, rate), indent=1) + "\n")
            finally:
                child.terminate()


def measured(child: subprocess.Popen[str], folder: Path, seconds: int, logs: int, rate: int) -> dict[str, object]:
    """Figures of one watch. Every fifth second the last log has a NaN; how late it is told is kept."""
    heard: dict[float, float] = {}
    threading.Thread(target=_hear, args=(child.stdout, heard), daemon=True).start()
    files = [(folder / f"rank_{r}.log").open("a", buffering=1) for r in range(logs)]
    written: dict[float, float] = {}
    resident: dict[str, float] = {}
    began, step, warm = time.monotonic(), 0, 0.0
    while (now := time.monotonic() - began) < seconds:
        step += 1
        bad = step % (5 * rate) == 0
        for rank, file in enumerate(files):
            loss = float("nan") if bad and rank == logs - 1 else 2.0 + random.gauss(0, 0.02)
            file.write(f"[rank{rank}]: step {step} loss {loss:.4f} grad_norm {random.random():.3f} lr 1.0e-04\n")
        if bad:
            written[float(step)] = time.monotonic()
        warm = warm or (_busy(child.pid) if now > min(10, seconds / 2) else 0.0)
        for mark in _MARKS:
            if now > mark and str(mark) not in resident:
                resident[str(mark)] = round(_resident(child.pid), 1)
        time.sleep(max(0.0, began + step / rate - time.monotonic()))
    resident[str(seconds)] = round(_resident(child.pid), 1)
    lasted = time.monotonic() - began
    took = lasted - min(10, seconds / 2)
    busy, end = _busy(child.pid) - warm, time.monotonic() + 30
    while len(heard) < len(written) and time.monotonic() < end:  # the last may have come just now
        time.sleep(0.1)
    late = sorted(heard[s] - at for s, at in written.items() if s in heard)
    return {
        "logs": logs,
        "lines_a_second": round(step * logs / lasted),
        "cpu_percent_of_a_core": round(100 * busy / took, 1),
        "resident_mib_after_seconds": resident,
        "seconds_until_a_nan_is_told": {"median": round(statistics.median(late), 2), "longest": round(late[-1], 2)},
        "told": f"{len(late)} of {len(written)}",
    }


def _hear(stream: IO[str] | None, heard: dict[float, float]) -> None:
    for line in stream or ():
        heard[json.loads(line)["step"]] = time.monotonic()


def _resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / (1 << 20)


def _busy(pid: int) -> float:
    """Seconds of processor time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


if __name__ == "__main__":
    main()
