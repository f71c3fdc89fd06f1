"""What torchrun says of a failure: its summary block in the console, and the error.json of a rank."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from .clocks import from_epoch
from .failure import Failure, Frame, Read
from .files import RunFile

if TYPE_CHECKING:
    from ..workspace import Workspace

_BLOCK = re.compile(r"^\s*(?P<key>time|host|rank|exitcode|error_file|traceback)\s*: (?P<value>.*)$")


def read_block(block: dict[str, Read], read: Read, file: RunFile, units: list[Failure]) -> None:
    """The launcher's summary block names rank, host, time and exit code of what it saw die first."""
    if "Root Cause (first observed failure)" in read.body:
        block.clear()
        block["open"] = read
        return
    if "open" not in block:
        return
    m = _BLOCK.match(read.body)
    if m is None:
        if read.body.startswith("=====") or read.line.number > block["open"].line.number + 20:
            block.clear()
        return
    block[m["key"]] = read
    if m["key"] == "traceback":
        units.append(_from_block(block, file))
        block.clear()


def _from_block(block: dict[str, Read], file: RunFile) -> Failure:
    def value(key: str) -> str:
        m = _BLOCK.match(block[key].body) if key in block else None
        return m["value"].strip() if m else ""

    read = block.get("exitcode") or block["traceback"]
    rank = re.match(r"\d+", value("rank"))
    code = re.match(r"-?\d+", value("exitcode"))
    signal = re.search(r"Signal \d+ \((SIG\w+)\)", value("traceback"))
    number = int(code[0]) if code else 0
    return Failure(
        file,
        "exception",
        read.line,
        "exit",
        f"exit code {number}" + (f" ({signal[1]})" if signal else ""),
        rank=int(rank[0]) if rank else None,
        host=value("host") or None,
        stamp=block["time"].stamp if "time" in block else read.stamp,
        cascade="launcher",
        start=block["open"].line,
    )


def error_json(ws: Workspace, file: RunFile) -> list[Failure]:
    """torchelastic's error.json: message, call stack and time of one rank's exception."""
    line = next(ws.lines(file), None)
    try:
        data = json.loads(ws.text(file, 1 << 20))
        message = data["message"]
        text = message if isinstance(message, str) else message["message"]
        extra = {} if isinstance(message, str) else message.get("extraInfo", {})
        stamp = from_epoch(float(extra["timestamp"])) if "timestamp" in extra else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    if line is None:
        return []
    kind, _, rest = str(text).partition(": ")
    failure = Failure(file, "exception", line, kind, rest, file.rank, file.host, stamp=stamp, attempt=file.attempt)
    stack = str(extra.get("py_callstack", ""))
    for m in re.finditer(r'File "([^"]+)", line (\d+), in (\S+)\n\s+(.*)', stack):
        failure.frames.append(Frame(m[1], m[3], int(m[2]), line, m[4]))
    return [failure]
