"""The only door to other programs: argv lists, a time limit, a byte cap. Never a shell string."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

OUTPUT_CAP = 1 << 20  # bytes kept of what a command prints


@dataclass(frozen=True, slots=True)
class Completed:
    """What a command answered. `code` is None when it could not start or ran out of time."""

    argv: tuple[str, ...]
    code: int | None
    stdout: str
    stderr: str = ""


class Shell(Protocol):
    """Runs one command. A recorded incident and a live machine differ only in this."""

    def run(self, argv: list[str], timeout: float = 10.0) -> Completed: ...


class Live:
    """Runs commands on this machine."""

    def run(self, argv: list[str], timeout: float = 10.0) -> Completed:
        try:
            done = subprocess.run(argv, capture_output=True, timeout=timeout, stdin=subprocess.DEVNULL, check=False)
        except FileNotFoundError:
            return Completed(tuple(argv), None, "", f"{argv[0]}: not installed")
        except (subprocess.TimeoutExpired, OSError) as e:
            return Completed(tuple(argv), None, "", f"{argv[0]}: {type(e).__name__}")
        out, err = (b[:OUTPUT_CAP].decode(errors="replace") for b in (done.stdout, done.stderr))
        return Completed(tuple(argv), done.returncode, out, err)


class Recorded:
    """Answers from `shell.json`: a list of `{argv, code, stdout, stderr}`. What was not recorded did not run."""

    def __init__(self, path: Path) -> None:
        entries = json.loads(path.read_text()) if path.is_file() else []
        self._answers = {tuple(e["argv"]): e for e in entries}

    def run(self, argv: list[str], timeout: float = 10.0) -> Completed:
        entry = self._answers.get(tuple(argv))
        if entry is None:
            return Completed(tuple(argv), None, "", f"{argv[0]}: not recorded")
        return Completed(tuple(argv), entry["code"], entry.get("stdout", ""), entry.get("stderr", ""))
