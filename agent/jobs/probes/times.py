"""When files were written: `python -m traindoctor.agent.jobs.probes.times FILE ...` prints one line.

A child of its own, so that a recording keeps the times: a run that is copied or checked out loses them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path


def births(names: list[str]) -> list[float]:
    """When files were made, where the file system keeps that."""
    argv = ["stat", "-c", "%W", "--", *names]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=3, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [float(word) for word in done.stdout.split() if word.isdigit() and word != "0"]


def main(arguments: list[str]) -> int:
    """Seconds since 1970: now, when the first file was made, and when the last was written (null where none is)."""
    written = []
    for name in arguments:
        try:
            written.append(Path(name).stat().st_mtime)
        except OSError:
            continue
    last = max(written, default=None)
    first = min([*births(arguments), *written], default=None)
    sys.stdout.write(json.dumps({"now": time.time(), "first": first, "last": last}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
