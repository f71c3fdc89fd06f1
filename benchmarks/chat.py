"""The chat in a terminal of its own: seconds to the first frame, and from a key to its echo while thousands of lines
stream, a large report comes in, or a large log is read.

    python benchmarks/chat.py [--runs N] [--gigabytes N] [--size 160x50]
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import Any

DEMO = Path(__file__).resolve().parent.parent / "evals" / "demo" / "files"
PEER = [sys.executable, "-c", "import textual.app, typer, rich.console, pydantic"]
CHAT = "import sys; from traindoctor.agent.doors.cli import main; raise SystemExit(main(['chat', *sys.argv[1:]]))"
LINES = 10_000
NEVER = 10.0  # seconds after which a key counts as not heard
FIRST = "commands"  # stands in the empty prompt
# The same program with a diagnosis that only makes noise, as fast as it is taken: notes, checks and their cards, words
# of a model, a report with as much evidence.
STREAM = (
    f"""
import sys, time
from traindoctor.agent import session
from traindoctor.agent.core.events import CallStarted, Note, ReportReady, SessionStarted, Token, ToolFinished
from traindoctor.agent.core.report import CitedEvidence, Report, RootCause, Sentence
from traindoctor.agent.core.types import Call, ToolResult

def diagnose(workspace, question, **more):
    yield SessionStarted("noise")
    for n in range({LINES} // 4):
        call = Call("look_up", {{"n": n}}, "c%d" % n)
        yield CallStarted(call)
        yield Token("line %d of what a model writes, *with* `marks`\\n\\n" % n)
        yield Note("line %d of many" % n)
        yield ToolFinished(call, ToolResult("clean", "line %d, nothing found" % n), 0.01)
        time.sleep(0.001)
    rows = [CitedEvidence(id="E%d" % n, key="log.line", kind="line", file="train.log", line=n, text="row %d" % n * 8)
            for n in range({LINES})]
    yield ReportReady(Report(status="likely", root_cause=RootCause(id="resource.cuda_oom", title="x", confidence=0.8),
                             evidence=rows, summary=[Sentence(text="it", cites=["E7"])]))

session.diagnose = diagnose
"""
    + CHAT
)


class Screen:
    """A program on a terminal, of which only the bytes are looked at: to draw them would take the time it measures."""

    def __init__(self, code: str, arguments: list[str], size: tuple[int, int], env: dict[str, str]) -> None:
        self.seen = b""
        self._master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.began = time.perf_counter()
        self.child = subprocess.Popen(
            [sys.executable, "-c", code, *arguments], stdin=terminal, stdout=terminal, stderr=terminal, env=env,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(terminal)

    def until(self, words: str, limit: float = 60.0) -> float:
        """Seconds until something is written; what was written before it is forgotten.

        Raises:
            SystemExit: it never was.
        """
        began, sought = time.perf_counter(), words.encode()
        while sought not in self.seen:
            left = limit - (time.perf_counter() - began)
            if left <= 0 or not self._read(left):
                raise SystemExit(f"{words!r} never came; last: {self.seen[-2000:].decode(errors='replace')}")
        self.seen = self.seen[self.seen.index(sought) + len(sought) :]
        return time.perf_counter() - began

    def echo(self, key: str) -> float:
        """Seconds from a key to what it writes; `NEVER` where that does not come."""
        self._read(0)
        self.seen, sought = b"", key.encode()
        os.write(self._master, sought)
        began = time.perf_counter()
        while (took := time.perf_counter() - began) < NEVER:
            self._read(0.02)
            if sought in self.seen:
                return time.perf_counter() - began
        return min(took, NEVER)

    def press(self, keys: str) -> None:
        """Send keys and go on."""
        os.write(self._master, keys.encode())

    def rest(self, seconds: float) -> None:
        """Let it work; read what it writes."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            self._read(left)

    def cpu(self) -> float:
        """Seconds of processor time that it has taken."""
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Resident megabytes."""
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def close(self) -> None:
        """End it."""
        os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        os.close(self._master)

    def _read(self, seconds: float) -> bool:
        got = False
        for _ in range(8):  # a program that streams is never silent
            if not select.select([self._master], [], [], 0 if got else seconds)[0]:
                break
            try:
                piece = os.read(self._master, 1 << 16)
            except OSError:
                return got
            self.seen += piece
            got = True
        return got


def start(runs: int, size: tuple[int, int], env: dict[str, str]) -> dict[str, Any]:
    """From the command to a prompt that takes keys, against the import that any such program needs."""
    peers, ours = [], []
    for _ in range(runs + 1):
        began = time.perf_counter()
        subprocess.run(PEER, check=True, env=env)
        peers.append(time.perf_counter() - began)
        screen = Screen(CHAT, [str(DEMO)], size, env)
        screen.until(FIRST)
        ours.append(time.perf_counter() - screen.began)
        screen.close()
    peer, own = statistics.median(peers[1:]), statistics.median(ours[1:])
    return {
        "import textual.app, typer, rich.console, pydantic (s)": round(peer, 3),
        "first frame (s)": f"{own:.3f}, the fastest {min(ours):.3f}",
        "first frame, times the import": bound(own / peer, 3, ""),
    }


def idle(size: tuple[int, int], env: dict[str, str], seconds: float = 5.0) -> str:
    """Share of one processor that it takes while nothing is asked."""
    screen = Screen(CHAT, [str(DEMO)], size, env)
    screen.until(FIRST)
    screen.rest(3.0)
    before = screen.cpu()
    screen.rest(seconds)
    share = 100 * (screen.cpu() - before) / seconds
    screen.close()
    return bound(share, 1, " %")


def keys(screen: Screen, seconds: float, until: str = "") -> list[float]:
    """Keys at the pace of a fast writer and the seconds that each took to appear; ends early where a text appears."""
    found: list[float] = []
    end, over = time.perf_counter() + seconds, False
    while time.perf_counter() < end and not over:
        found.append(screen.echo(chr(0x100 + len(found) % 0x80)))  # letters that stand nowhere else
        screen.press("\x7f")
        screen.rest(0.05)
        over = bool(until) and until.encode() in screen.seen  # what came between a key and its echo is not looked at
    return found


def told(found: list[float]) -> dict[str, str]:
    """Median, 99th percentile and worst, in milliseconds."""
    ordered = sorted(1000 * s for s in found)
    high = ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)]
    return {
        "median (ms)": f"{statistics.median(ordered):.0f} of {len(ordered)} keys",
        "99th percentile (ms)": bound(high, 100, ""),
        "worst (ms)": f"{ordered[-1]:.0f}",
    }


def streams(size: tuple[int, int], env: dict[str, str]) -> dict[str, Any]:
    """Keys while lines stream, then a report with as many rows."""
    screen = Screen(STREAM, [str(DEMO)], size, env)
    screen.until(FIRST)
    screen.rest(2.0)
    screen.press("why?\r")
    began = time.perf_counter()
    found = keys(screen, 60.0, "likely")
    took = time.perf_counter() - began
    after = keys(screen, 3.0)
    memory = screen.memory()
    screen.close()
    return {
        f"{LINES} lines stream, {took:.0f} s": told(found),
        f"a report of {LINES} rows is there": told(after),
        "memory then (MB)": round(memory),
    }


def large(gigabytes: float, size: tuple[int, int], env: dict[str, str], folder: Path) -> dict[str, str]:
    """Keys while a large log is read."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from large_log import write_log  # pyright: ignore[reportMissingImports]

    folder.mkdir()
    write_log(folder / "train.log", gigabytes)
    screen = Screen(CHAT, [str(folder)], size, env)
    screen.until(FIRST)
    screen.rest(2.0)
    screen.press("why did it fail?\r")
    found = keys(screen, 60.0, "confirmed")
    screen.close()
    return told(found)


def bound(value: float, most: float, unit: str) -> str:
    """A measurement beside its budget."""
    return f"{value:.2f}{unit} (at most {most:g}{'' if value <= most else ', MISSED'})"


def main() -> None:
    """Print one JSON mapping."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--size", default="160x50")
    given = parser.parse_args()
    columns, rows = map(int, given.size.split("x"))
    size = (columns, rows)
    with tempfile.TemporaryDirectory() as name:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("DOCTOR_") and k != "PYTHONDONTWRITEBYTECODE"}
        env = kept | {
            "DOCTOR_STATE": f"{name}/state", "DOCTOR_CACHE": f"{name}/cache", "XDG_CONFIG_HOME": f"{name}/config",
            "PYTHONPYCACHEPREFIX": f"{name}/bytecode", "TERM": "xterm-256color", "COLORTERM": "truecolor",
            "TEXTUAL_ANIMATIONS": "none", "LANG": "C.UTF-8",
        }  # fmt: skip
        found = start(given.runs, size, env)
        found["idle"] = idle(size, env)
        found["key to echo"] = {
            **streams(size, env), f"a log of {given.gigabytes:g} GB is read": large(
                given.gigabytes, size, env, Path(name) / "run"
            ),
        }  # fmt: skip
    json.dump(found, sys.stdout, indent=2)


if __name__ == "__main__":
    main()
