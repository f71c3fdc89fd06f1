"""Measure a folder: `python -m traindoctor.agent.jobs.probes.storage FOLDER MEGABYTES SECONDS FILES`, a result a line.

The large file has no name from the moment it is opened, so that its bytes are freed whenever we die. Small files need
names: they lie in one folder, printed first, that is removed at the end and on a signal. `--remove FOLDER` removes
such a folder after a kill. Nothing is written where less than four times the amount is free.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

CHUNK = 4 << 20
PREFIX = ".doctor-storage-"
SPARE = 4  # times the amount that must be free
SMALL = 4096  # bytes of a small file


def say(**what: object) -> None:
    """One line, at once."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def kind_of(folder: Path) -> str:
    """The file system's type, by the longest mount point above the folder."""
    best, kind = "", ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text(errors="replace").splitlines():
            _, mount, found, *_ = [*line.split(), "", "", ""]
            inside = str(folder) == mount or str(folder).startswith(mount.rstrip("/") + "/")
            if inside and len(mount) >= len(best):
                best, kind = mount, found
    return kind


def large(folder: Path, size: int, ends: float) -> None:
    """One stream: write and flush to the device, then read back with the cache dropped."""
    fd, name = tempfile.mkstemp(prefix=PREFIX, dir=folder)
    os.unlink(name)  # noqa: PTH108 - from here on only the descriptor keeps it
    chunk = os.urandom(CHUNK)  # nothing that compresses
    written, began = 0, time.perf_counter()
    try:
        while written < size and time.monotonic() < ends:
            written += os.write(fd, chunk)
        os.fsync(fd)
        say(measure="write", bytes=written, seconds=round(time.perf_counter() - began, 4))
        with contextlib.suppress(OSError):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.lseek(fd, 0, os.SEEK_SET)
        seen, began = 0, time.perf_counter()
        while time.monotonic() < ends + 5 and (block := os.read(fd, CHUNK)):
            seen += len(block)
        say(measure="read", bytes=seen, seconds=round(time.perf_counter() - began, 4))
    finally:
        os.close(fd)


def small(folder: Path, count: int, ends: float) -> None:
    """Create many small files, then ask for each of them."""
    data = b"x" * SMALL
    names = [folder / f"{i:06}" for i in range(count)]
    began, done = time.perf_counter(), 0
    for name in names:
        if time.monotonic() > ends:
            break
        name.write_bytes(data)
        done += 1
    say(measure="files", count=done, seconds=round(time.perf_counter() - began, 4))
    began = time.perf_counter()
    for name in names[:done]:
        name.stat()
    say(measure="stats", count=done, seconds=round(time.perf_counter() - began, 4))


def measure(folder: Path, size: int, seconds: float, count: int) -> int:
    """Exit code 1 where it may or must not be measured; the last line says why."""
    free = os.statvfs(folder)
    if free.f_bavail * free.f_frsize < SPARE * size + count * 2 * SMALL or 0 < free.f_favail < SPARE * count:
        say(refused=f"only {free.f_bavail * free.f_frsize >> 20} MiB are free in {folder}")
        return 1
    own = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
    say(folder=str(own), kind=kind_of(folder.resolve()))
    try:
        now = time.monotonic()
        large(own, size, now + seconds / 2)
        small(own, count, now + seconds)
    finally:
        shutil.rmtree(own, ignore_errors=True)
    return 0


def main(arguments: list[str]) -> int:
    """See the module."""
    if arguments[0] == "--remove":
        path = Path(arguments[1])
        if path.name.startswith(PREFIX) and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return measure(Path(arguments[0]), int(arguments[1]) << 20, float(arguments[2]), int(arguments[3]))
    except OSError as e:
        say(refused=f"{e.strerror}: {arguments[0]}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
