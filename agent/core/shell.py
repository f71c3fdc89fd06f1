"""The only door to other programs: argv lists, a time limit, a byte cap. Never a shell string."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .deadline import check_wanted

OUTPUT_CAP = 1 << 20  # bytes kept of what a command prints
_LOOK = 0.25  # seconds between two looks whether a command is still wanted


@dataclass(frozen=True, slots=True)
class Completed:
    """What a command answered. `code` is None when it could not start or ran out of time."""

    argv: tuple[str, ...]
    code: int | None
    stdout: str
    stderr: str = ""


class Shell(Protocol):
    """Runs one command. A recorded incident and a live machine differ only in this."""

    def run(
        self, argv: list[str], timeout: float = 10.0, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> Completed: ...


class Live:
    """Runs commands on this machine.

    Programs installed beside our own interpreter (py-spy, torchrun) are found too. A command that runs out of time
    is killed with everything it started.
    """

    def run(
        self, argv: list[str], timeout: float = 10.0, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> Completed:
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                child = subprocess.Popen(
                    [_found(argv[0], path), *argv[1:]], stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd,
                    env={**os.environ, "PATH": path, **(env or {})}, start_new_session=True,
                )  # fmt: skip
            except (FileNotFoundError, NotADirectoryError):
                return Completed(tuple(argv), None, "", f"{argv[0]}: not installed")
            except (OSError, ValueError) as e:
                return Completed(tuple(argv), None, "", f"{argv[0]}: {type(e).__name__}")
            try:
                code: int | None = _wait(child, timeout)
                late = ""
            except subprocess.TimeoutExpired:
                code, late = None, f"{argv[0]}: no answer within {timeout:g} s"
            finally:
                if child.returncode is None:  # out of time, or we were interrupted: it must not outlive us
                    _end(child)
            texts = [_kept(stream) for stream in (out, err)]
        return Completed(tuple(argv), code, texts[0], "\n".join(t for t in (late, texts[1]) if t))


def _wait(child: subprocess.Popen[bytes], timeout: float) -> int:
    """The exit code of a child; asks on the way whether anybody still wants it.

    Raises:
        TimeoutError: nobody does.
        subprocess.TimeoutExpired: it took too long.
    """
    ends = time.monotonic() + timeout
    while True:
        left = ends - time.monotonic()
        try:
            return child.wait(max(min(left, _LOOK), 0))
        except subprocess.TimeoutExpired:
            if left <= _LOOK:
                raise
        check_wanted()


def _found(name: str, path: str) -> str:
    """The program by its full name, so that a search path of our own counts."""
    import shutil

    return shutil.which(name, path=path) or name


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the child and all it started; one stuck in the kernel is left behind rather than waited for."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(2)
    except (OSError, subprocess.TimeoutExpired):
        return


def _kept(stream: object) -> str:
    stream.seek(0)  # pyright: ignore[reportAttributeAccessIssue]
    return stream.read(OUTPUT_CAP).decode(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]


class Recorded:
    """Answers from `shell.json`: a list of `{argv, code, stdout, stderr}`. What was not recorded did not run.

    Our own programs are recognised under another interpreter's path, and with other paths or processes to look at,
    where they were run once: a recording is replayed on other machines and in other folders.
    """

    def __init__(self, path: Path) -> None:
        entries = json.loads(path.read_text()) if path.is_file() else []
        self._answers = {_plain(e["argv"]): e for e in entries}
        programs = [_program(e["argv"]) for e in entries]
        self._once = {p: e for p, e in zip(programs, entries, strict=True) if p and programs.count(p) == 1}

    def run(
        self, argv: list[str], timeout: float = 10.0, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> Completed:
        entry = self._answers.get(_plain(argv)) or self._once.get(_program(argv) or "")
        if entry is None:
            return Completed(tuple(argv), None, "", f"{argv[0]}: not recorded")
        return Completed(tuple(entry["argv"]), entry["code"], entry.get("stdout", ""), entry.get("stderr", ""))


class Recording:
    """Runs commands by another shell and keeps what they answered, as `Recorded` reads it; the last answer counts."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._kept: dict[tuple[str, ...], Completed] = {}

    def run(
        self, argv: list[str], timeout: float = 10.0, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> Completed:
        done = self._shell.run(argv, timeout, env, cwd)
        self._kept[done.argv] = done
        return done

    @property
    def answers(self) -> list[dict[str, object]]:
        """The content of a `shell.json`, in the order of the first calls."""
        return [
            {"argv": list(d.argv), "code": d.code, "stdout": d.stdout, "stderr": d.stderr} for d in self._kept.values()
        ]


_PYTHON = re.compile(r"(?:^|/)python(?:3(?:\.\d+)?)?$")
OWN = ("-m", "traindoctor.")  # how a program of ours is started


def _plain(argv: list[str]) -> tuple[str, ...]:
    """A command with any Python interpreter under one name."""
    return ("python" if _PYTHON.search(argv[0]) else argv[0], *argv[1:])


def _program(argv: list[str]) -> str | None:
    """The name of our own program that a command starts, wherever in the house it stood then; None for any other."""
    words = [w for w in argv[1:3] if w != "-I"] + argv[3:4]
    ours = len(words) > 1 and words[0] == OWN[0] and words[1].startswith(OWN[1])
    return words[1].rpartition(".")[2] if ours else None
