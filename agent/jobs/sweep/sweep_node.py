"""What one node is and has, one fact a line of JSON: shipped to its Python, which needs nothing of ours.

Only what the probes of `agent/jobs/probes` do not tell: names and versions, the time, GPUs by nvidia-smi where NVML
has no Python side, and Xid lines of the kernel log. Every program asked has a time limit.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import time

FIELDS = (
    "name", "driver_version", "temperature.gpu", "clocks.current.sm", "clocks.max.sm", "pcie.link.width.current",
    "pcie.link.width.max", "ecc.errors.uncorrected.volatile.total", "memory.total",
)  # fmt: skip
XID = re.compile(r"NVRM: Xid \(.*?\): (\d+),")
LIMIT = 15.0  # seconds for a program
MOST = 50  # Xid lines


def say(**what: object) -> None:
    """One line, at once."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def asked(argv: list[str]) -> tuple[str, str]:
    """What a program prints, and why it printed nothing."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=LIMIT, check=False)
    except FileNotFoundError:
        return "", "not installed"
    except subprocess.TimeoutExpired:
        return "", f"no answer within {LIMIT:g} s"
    except OSError as e:
        return "", type(e).__name__
    return (done.stdout, "") if done.returncode == 0 else ("", (done.stdout + done.stderr).strip()[:300] or "failed")


def versions() -> None:
    """Of Python and of what a training there would import, without importing it."""
    from importlib import metadata

    say(fact="version", of="python", value=platform.python_version())
    say(fact="version", of="kernel", value=platform.release())
    for distribution in list(metadata.distributions()):
        name = (distribution.metadata["Name"] or "").lower()
        if name == "torch" or name.startswith("nvidia-nccl"):
            say(fact="version", of="torch" if name == "torch" else "nccl", value=distribution.version)
    say(fact="torch", there=importlib.util.find_spec("torch") is not None)


def gpus() -> None:
    """By nvidia-smi."""
    said, why = asked(["nvidia-smi", "--query-gpu=" + ",".join(FIELDS), "--format=csv,noheader,nounits"])
    if why:
        say(fact="no_nvidia_smi", why=why)
        return
    for number, row in enumerate(line.split(", ") for line in said.splitlines() if line.strip()):
        for field, value in zip(FIELDS, row):  # noqa: B905 - Python 3.9 has no strict
            say(gpu=number, field=field, value=value.strip(), by="nvidia-smi")


def xids() -> None:
    """Since the machine was started; a user may not be allowed to look."""
    said, why = asked(["dmesg"])
    if why:
        say(fact="no_dmesg", why=why)
        return
    for line in [line for line in said.splitlines() if XID.search(line)][-MOST:]:
        say(fact="xid", number=int(XID.findall(line)[0]), text=line[:300])


def main(_arguments: list[str]) -> int:
    """Everything, what can hang last."""
    say(fact="time", now=time.time())
    say(fact="host", name=platform.node(), cores=os.cpu_count())
    versions()
    xids()
    gpus()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
