# ruff: noqa: PTH120
"""What the processes of a job stand in, read by py-spy without stopping them; what the kernel says where it may not.

    python -m traindoctor.agent.jobs.supervisor.job_stacks FOLDER PID:RANK[:w] ...

is a program of its own, so that the supervisor stays small. It looks at every process, then some times more at the
ranks, and says on standard output whether they stand still. Stacks are kept in FOLDER only if they do: those of a job
that works are no evidence of anything. No signal is ever sent to the job.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .spawn import settle
from .tree import content, read

EACH, ALL = 10.0, 20.0  # seconds for one process, and for the first look at all
ROUNDS, APART, WATCHED = 8, 0.5, 8  # further looks, at so many ranks at most
BUSY, CHANGES = 0.2, 3  # share of a processor, and different stacks, of a rank that works
BYTES = 1 << 20
_FRAME = re.compile(r"^ {4}(\S.*) \((.+)\)$")


def dump(pid: int, seconds: float) -> str:
    """What py-spy prints of a process; raises `OSError` with its first line where it cannot."""
    here = os.path.dirname(sys.executable)
    program = shutil.which("py-spy", path=f"{here}:{os.environ.get('PATH', '')}")
    if program is None:
        raise OSError("py-spy is not installed beside doctor")
    argv = [program, "dump", "--nonblocking", "--pid", str(pid)]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise OSError(f"py-spy did not answer within {seconds:.0f} s") from None
    if done.returncode:
        raise OSError(done.stderr.decode(errors="replace").strip().split("\n")[0][:200] or "py-spy failed")
    return done.stdout[:BYTES].decode(errors="replace")


def kernels(pid: int, why: str) -> str:
    """What the kernel tells of a process that py-spy may not read."""
    parts = [f"# py-spy: {why}"]
    for name in ("status", "wchan", "syscall", "stack"):
        text = content(f"/proc/{pid}/{name}", 4096).decode(errors="replace").strip()
        if text:
            parts.append(f"$ cat /proc/{pid}/{name}\n{text}")
    return "\n".join(parts) + "\n"


def main_stack(text: str) -> tuple[str, ...]:
    """The frames of the main thread in what py-spy printed, innermost first."""
    frames: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("Thread "):
            inside = '"MainThread"' in line or not frames
            if inside:
                frames = []
        elif inside and _FRAME.match(line):
            frames.append(line.strip())
    return tuple(frames)


def look(folder: Path, targets: list[tuple[int, int | None, bool]]) -> dict[str, object]:
    """Dump all, look at the ranks again, and say whether they work. `targets`: pid, rank, whether it is a worker.

    Returns:
        `moving`: true, false, or null where no stack could be read; `stacks`: the files that were kept; `why`.
    """
    beside = folder.with_name(f".{folder.name}.{os.getpid()}")
    beside.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + ALL
    kept: list[str] = []
    chains: dict[int, list[tuple[str, ...]]] = {}
    ready: dict[int, int] = {}  # how often it could go on, also where a crowded machine did not let it
    why = ""

    def first(target: tuple[int, int | None, bool]) -> tuple[str, str, str]:
        pid, rank, _ = target
        name = f"rank_{rank}_pid_{pid}.txt" if rank is not None else f"pid_{pid}.txt"
        left = min(EACH, until - time.monotonic())
        try:
            if left <= 0:
                raise OSError("no time was left for it")
            return name, dump(pid, left), ""
        except OSError as e:
            return name, kernels(pid, str(e)), str(e)

    watched = [pid for pid, _, worker in targets if not worker][:WATCHED]
    since, used = time.monotonic(), {pid: _used(pid) for pid in watched}
    with ThreadPoolExecutor(8) as pool:
        for target, (name, text, trouble) in zip(targets, pool.map(first, targets), strict=True):
            why = why or trouble
            with contextlib.suppress(OSError):
                (beside / name).write_text(text, encoding="utf-8", errors="replace")
                kept.append(name)
            if not trouble and target[0] in watched:
                chains[target[0]] = [main_stack(text)]
        for _ in range(ROUNDS if chains else 0):
            time.sleep(APART)
            for pid in chains:
                ready[pid] = ready.get(pid, 0) + _runnable(pid)
            for pid, frames in zip(chains, pool.map(_frames, chains), strict=True):
                chains[pid] += [frames] if frames else []
    over = max(time.monotonic() - since, 0.1)
    works = [
        pid for pid, seen in chains.items()
        if len(set(seen)) >= CHANGES and ((_used(pid) - used[pid]) / over >= BUSY or ready.get(pid, 0) >= CHANGES)
    ]  # fmt: skip
    if works:
        shutil.rmtree(beside, ignore_errors=True)
        return {"moving": True, "stacks": [], "why": f"the stack of pid {works[0]} keeps changing"}
    shutil.rmtree(folder, ignore_errors=True)
    try:
        beside.rename(folder)
    except OSError as e:
        return {"moving": False if chains else None, "stacks": [], "why": e.strerror or "not kept"}
    stacks = [f"{folder.name}/{name}" for name in kept]
    return {"moving": False if chains else None, "stacks": stacks, "why": why}


def _frames(pid: int) -> tuple[str, ...]:
    try:
        return main_stack(dump(pid, EACH))
    except OSError:
        return ()


def _runnable(pid: int) -> bool:
    process = read(pid)
    return process is not None and process.state == "R"


def _used(pid: int) -> float:
    process = read(pid)
    return process.cpu if process is not None else 0.0


def main(argv: list[str]) -> int:
    """The program; a target is `PID:RANK` or `PID:RANK:w` for a worker, RANK empty where it has none."""
    settle()
    targets = []
    for word in argv[1:]:
        pid, rank, worker = (*word.split(":"), "", "")[:3]
        targets.append((int(pid), int(rank) if rank else None, worker == "w"))
    sys.stdout.write(json.dumps(look(Path(argv[0]), targets)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
