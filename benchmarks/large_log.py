"""A large log: the signature pass against ripgrep on the same patterns and file, the whole triage, peak memory.

    python benchmarks/large_log.py [--gigabytes 1.0]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LINE = (
    " [2026-08-22 {h:02d}:{m:02d}:{s:02d}.{f:06d}] iteration {i:8d}/ 9000000 | consumed samples: {c:12d} | "
    "elapsed time per iteration (ms): {t:.1f} | learning rate: {lr:.6E} | global batch size:  1024 | "
    "lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {g:.3f} | number of skipped iterations:   0 |\n"
)
END = """[rank3]: Traceback (most recent call last):
[rank3]:   File "/opt/train/pretrain.py", line 210, in train
[rank3]:     loss.backward()
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of \
79.11 GiB of which 1.06 GiB is free.
"""
PASS = """
import sys, time
from pathlib import Path
from traindoctor.agent.reading.scan.logpass import logpass
from traindoctor.agent.reading.run.workspace import Workspace
ws = Workspace([Path(sys.argv[1])])
began = time.perf_counter()
found = logpass(ws)
print(time.perf_counter() - began, found.bytes)
"""
PATTERNS = """
from traindoctor.agent.core.playbook import playbooks
from traindoctor.agent.reading.scan.anchors import anchor_patterns
from traindoctor.agent.reading.scan.logpass import signature_patterns
for p in [*signature_patterns(playbooks()), *anchor_patterns()]:
    print(p.regex)
"""
IDLE = "from traindoctor.agent.session import graph, session;from traindoctor.agent.tools import tool; tool.all_tools()"
_NAME = re.compile(r"\(\?P<\w+>")  # ripgrep joins all patterns into one, which may not name two groups alike
TRIAGE = "from traindoctor.agent.doors.cli import main; raise SystemExit(main())"


def write_log(path: Path, gigabytes: float) -> int:
    """Megatron lines up to the size, an out-of-memory failure at the end. Returns the number of metric lines."""
    size, number = int(gigabytes * (1 << 30)), 0
    with path.open("w", buffering=1 << 22) as out:
        written = 0
        while written < size:
            number += 1
            seconds = number // 3
            loss = 2.0 + 9.0 / (1 + number / 2000) + 0.02 * ((number * 7919) % 101) / 101
            written += out.write(LINE.format(
                h=seconds // 3600 % 24, m=seconds // 60 % 60, s=seconds % 60, f=number * 331 % 1_000_000, i=number,
                c=number * 1024, t=310 + number * 31 % 17, lr=3e-4 / (1 + number / 1e6), loss=loss,
                g=0.4 + (number * 104729) % 97 / 500,
            ))  # fmt: skip
        out.write(END)
    return number


def python(code: str, *arguments: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def measured(argv: list[str]) -> tuple[float, float]:
    """Seconds and peak resident megabytes of a command."""
    began = time.perf_counter()
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        process = subprocess.Popen(argv, stdout=nowhere, stderr=nowhere, stdin=subprocess.DEVNULL)
        _, code, usage = os.wait4(process.pid, 0)
    if code:
        raise SystemExit(f"{argv} ended with {code}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def accepted(folder: Path) -> tuple[Path, int, int]:
    """The patterns in a file for ripgrep: how many it takes, how many it does not."""
    rg, patterns = shutil.which("rg"), [_NAME.sub("(?:", p) for p in python(PATTERNS).splitlines()]
    takes = [p for p in patterns if subprocess.run([rg or "rg", "--no-unicode", "-e", p, os.devnull], check=False,
                                                   capture_output=True).returncode != 2]  # fmt: skip
    path = folder / "patterns"
    path.write_text("\n".join(takes) + "\n")
    return path, len(takes), len(patterns) - len(takes)


def measure(gigabytes: float, folder: Path) -> dict[str, Any]:
    """Everything as one mapping."""
    log = folder / "train.log"
    lines = write_log(log, gigabytes)
    size = log.stat().st_size / 1e9
    python(PASS, str(_small(folder)))  # compiles the patterns into the cache
    own = statistics.median(float(python(PASS, str(log)).split()[0]) for _ in range(3))
    found: dict[str, Any] = {"file": f"{size:.2f} GB, {lines} metric lines"}
    found["signature pass (GB/s)"] = round(size / own, 2)
    rg = float("nan")
    if shutil.which("rg"):
        patterns, taken, refused = accepted(folder)
        limits = ["--dfa-size-limit", "2G", "--regex-size-limit", "2G"]
        argv = ["rg", "-a", "-c", "--no-unicode", *limits, "-f", str(patterns), str(log)]
        rg = statistics.median(measured(argv)[0] for _ in range(3))
        found["ripgrep, the same patterns (GB/s)"] = round(size / rg, 2)
        found["patterns"] = f"{taken}, and {refused} that ripgrep does not take"
        found["signature pass, times ripgrep"] = bound(rg / own, rg / own >= 3, "at least 3")
    else:
        found["ripgrep"] = "not installed"
    _, idle = measured([sys.executable, "-c", IDLE])
    runs = [measured([sys.executable, "-c", TRIAGE, "triage", str(log), "--json", "--quiet"]) for _ in range(3)]
    whole, peak = statistics.median(r[0] for r in runs), max(r[1] for r in runs)
    found["whole triage (s)"] = round(whole, 2)
    if rg == rg:
        found["whole triage, times ripgrep's pass"] = bound(whole / rg, whole <= 2 * rg, "at most 2")
    found["peak memory above the idle process (MB)"] = bound(peak - idle, peak - idle <= 300, "at most 300")
    return found


def bound(value: float, kept: bool, budget: str) -> str:
    """A measurement beside its budget."""
    return f"{value:.2f} ({budget}{'' if kept else ', MISSED'})"


def _small(folder: Path) -> Path:
    path = folder / "small.log"
    path.write_text(END)
    return path


def main() -> None:
    """Print the measurements as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ.update(DOCTOR_CACHE=f"{name}/cache", DOCTOR_STATE=f"{name}/state")
        sys.stdout.write(json.dumps(measure(arguments.gigabytes, Path(name)), indent=2) + "\n")


if __name__ == "__main__":
    main()
