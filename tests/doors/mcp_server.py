"""A `doctor mcp` process spoken to by hand, so that tests see every byte it writes."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from traindoctor.evals.case import load

ROOT = Path(__file__).resolve().parent.parent.parent
CASE = load(ROOT / "evals" / "incidents" / "dist-vlm-bucket-sizes-differ")
DOCTOR = "from traindoctor.agent.doors.cli import main; raise SystemExit(main())"
# Tools that behave badly, put beside the real ones in the process that serves.
MORE_TOOLS = """
import os, subprocess, sys, threading
from traindoctor.agent.tools.tool import Tool, all_tools, clean
from traindoctor.agent.core.types import Risk
from traindoctor.agent.reading.run.workspace import Workspace
both, never = threading.Barrier(2, timeout=60), threading.Event()
def noisy(ws: Workspace):
    print("a stray print")
    os.write(1, b"bytes on descriptor 1\\n")
    subprocess.run([sys.executable, "-c", "print('a child prints')"], check=True)
    return clean("made noise; standard input of a child is " + repr(subprocess.run(["cat"], capture_output=True).stdout))
def meets(ws: Workspace):
    both.wait()
    return clean("both were here")
def sleeps(ws: Workspace):
    sys.stderr.write("asleep\\n")
    never.wait()
    return clean("awake")
def breaks(ws: Workspace):
    raise KeyError("password=hunter2hunter2")
for f in (noisy, meets, sleeps, breaks):
    all_tools()[f.__name__] = Tool(f.__name__, f, Risk.READ, (), False)
"""


class Wire:
    """A server spoken to by hand, so that every byte it writes is seen."""

    def __init__(self, *arguments: object, before: str = "") -> None:
        argv = [sys.executable, "-c", f"{before}\n{DOCTOR}", "mcp", *map(str, arguments)]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        self.lines: list[str] = []
        self.inbox: queue.Queue[dict[str, Any]] = queue.Queue()
        self.errors: list[str] = []
        self._threads = [threading.Thread(target=t, daemon=True) for t in (self._out, self._err)]
        for thread in self._threads:
            thread.start()
        about = {"name": "tests", "version": "1"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}
        self.ask(0, "initialize", hello)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def ask(self, number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request; what comes before it is kept in `lines` as well."""
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        while (message := self.inbox.get(timeout=100)).get("id") != number:
            pass
        return message

    def call(self, number: int, name: str, **arguments: Any) -> dict[str, Any]:
        meta = {"progressToken": number}
        return self.ask(number, "tools/call", {"name": name, "arguments": arguments, "_meta": meta})

    def leave(self) -> int:
        """Close its standard input, as a client does at the end, and give the exit code."""
        assert self.process.stdin
        self.process.stdin.close()
        code = self.process.wait(30)
        for thread in self._threads:
            thread.join(10)
        return code

    def _out(self) -> None:
        for line in self.process.stdout or ():
            self.lines.append(line)
            self.inbox.put(json.loads(line))

    def _err(self) -> None:
        for line in self.process.stderr or ():
            self.errors.append(line)


@contextmanager
def wire(*arguments: object, before: str = "") -> Iterator[Wire]:
    found = Wire(*arguments, before=before)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait()
