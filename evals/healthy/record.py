"""Carry out the runs of runs.yaml and keep what each leaves as an incident: `python evals/healthy/record.py [ID ...]`.

The interpreter that runs this file runs the trainings too; requirements.txt says what it needs. A run sees a host
called node01 and a folder under /mnt where the system allows such a private view. Afterwards what still names this
machine is rewritten (`NEUTRAL`), and weights, caches and scripts are left out.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
KEPT_BYTES = 200_000  # of one file; above it nothing is kept
HOST, FOLDER, ENVIRONMENT, PRIVATE = "node01", "/data/run", "/opt/venv", "/mnt"
DROPPED = re.compile(
    r"(^|/)(__pycache__|\.cache|tmp|home)(/|$)|\.(safetensors|bin|pyc|lock)$|(^|/)(tokenizer\.json|last\.pt|core)$"
    r"|(^|/)checkpoint-\d+/(?!trainer_state)"
)
SCRIPT = re.compile(r"^\w+\.py$")
LEFT = ("train.py", "corpus.py")  # of the scripts, where the run keeps them
LIMIT_S = 400


def main(asked: list[str]) -> int:
    """Record the named runs, or all; 1 where one of them ended badly, 2 where there is no such run."""
    table: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "runs.yaml").read_text(encoding="utf-8"))
    if unknown := set(asked) - set(table):
        print(f"no such run: {', '.join(sorted(unknown))}", file=sys.stderr)  # noqa: T201
        return 2
    failed = 0
    for name, entry in table.items():
        if not asked or name in asked:
            began = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="healthy-") as scratch:
                work = Path(scratch) / "run"
                status = carry_out(entry, work)
                size = keep(name, entry, work)
            failed += status != 0
            seconds = time.monotonic() - began
            print(f"{name}: exit {status}, {seconds:.0f} s, {size / 1000:.0f} kB", file=sys.stderr, flush=True)  # noqa: T201
    return min(failed, 1)


def carry_out(entry: dict[str, Any], work: Path) -> int:
    """Run what `launch` says in `work`; the exit status, 0 where the run was meant to be looked at half-way."""
    work.mkdir()
    (work / "home").mkdir()
    for path in (HERE / "scripts").glob("*.py"):
        shutil.copy(path, work / ("train.py" if path.name == entry["script"] else path.name))
    for name, text in entry.get("files", {}).items():
        (work / name).write_text(text, encoding="utf-8")
    (work / "launch.sh").write_text("#!/bin/bash\n" + entry["launch"], encoding="utf-8")
    inside, command = private_view(work)
    env = {
        "PATH": f"{sysconfig.get_path('scripts')}:/usr/local/bin:/usr/bin:/bin", "HOME": f"{inside}/home",
        "USER": "user", "LOGNAME": "user", "LANG": "C.UTF-8", "HF_HUB_OFFLINE": "1", "TERM": "dumb", "COLUMNS": "120",
        "TORCH_EXTENSIONS_DIR": f"{tempfile.gettempdir()}/healthy-extensions",  # DeepSpeed compiles for minutes
        "WANDB_HOST": HOST, "WANDB_X_DISABLE_META": "true", "CUDA_VISIBLE_DEVICES": "",
        "DS_ACCELERATOR": "cpu", "PYTHONHASHSEED": "0",
    }  # fmt: skip
    if "torchrun" not in entry["launch"]:
        env["OMP_NUM_THREADS"] = "1"
    job = subprocess.Popen(
        command, cwd=work, env=env, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + LIMIT_S
    try:
        while job.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
            if entry.get("stop") and any(entry["stop"] in log.read_text() for log in work.glob("*.log")):
                time.sleep(1)
                return 0
        return job.returncode if job.returncode is not None else 124
    finally:
        if job.poll() is None:
            shutil.copytree(work, work.with_name("seen"), symlinks=True)
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            shutil.rmtree(work)
            work.with_name("seen").rename(work)


def private_view(work: Path) -> tuple[str, list[str]]:
    """The folder as the run sees it, and the command that starts it; a view of its own needs to be root."""
    root = os.geteuid() == 0 and shutil.which("unshare") is not None
    if not root or subprocess.run(["unshare", "-um", "true"], check=False).returncode:
        return str(work), ["bash", "launch.sh"]
    setup = [f"hostname {HOST}", f"mount -t tmpfs none {PRIVATE}", f"mkdir {PRIVATE}/run {PRIVATE}/venv"]
    setup += [f"mount --bind {work} {PRIVATE}/run", f"mount --bind {sys.prefix} {PRIVATE}/venv"]
    setup += [f"echo 127.0.0.1 localhost {HOST} > {PRIVATE}/hosts", f"mount --bind {PRIVATE}/hosts /etc/hosts"]
    inside = [f"cd {PRIVATE}/run", f"export PATH={PRIVATE}/venv/bin:$PATH", "exec bash launch.sh"]
    return f"{PRIVATE}/run", ["unshare", "-um", "bash", "-c", " && ".join(setup + inside)]


def neutral(work: Path) -> list[tuple[bytes, bytes]]:
    """What is rewritten in the text a run left: its folder, the environment's folder, the host's name and addresses."""
    pairs = [
        (str(work), FOLDER), (f"{PRIVATE}/run", FOLDER), (f"{PRIVATE}/venv", ENVIRONMENT),
        (sys.prefix, ENVIRONMENT), (sys.base_prefix, "/usr"), (socket.gethostname(), HOST), (str(HERE), FOLDER),
    ]  # fmt: skip
    found = [(a.encode(), b.encode()) for a, b in pairs if len(a) > 3]
    try:
        address = socket.gethostbyname(socket.gethostname())
    except OSError:
        return found
    return found if address.startswith("127.") else [*found, (address.encode(), b"10.0.0.1")]


def keep(name: str, entry: dict[str, Any], work: Path) -> int:
    """Make the incident of a run from its folder; the bytes kept."""
    home, here = HERE / name, socket.gethostname()
    shutil.rmtree(home, ignore_errors=True)
    size, pairs = 0, neutral(work)
    for path in sorted(p for p in work.rglob("*") if p.is_file() and not p.is_symlink()):
        inner = path.relative_to(work).as_posix()
        script = SCRIPT.search(inner) and not (entry.get("code") and inner in LEFT)
        if DROPPED.search(inner) or script or path.stat().st_size > KEPT_BYTES:
            continue
        data = path.read_bytes()
        if b"\0" not in data:
            for old, new in pairs:
                data = data.replace(old, new)
        target = home / "files" / (inner.replace(here, HOST) if len(here) > 3 else inner)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        size += len(data)
    labels = {
        "id": name, "source": f"recorded: {entry['framework']} ({', '.join(entry['loggers'])})", "family": "none",
        "difficulty": "easy", "question": "Is my run ok?", "also_asked": [entry["asked"]], "expected": ["none.healthy"],
        "acceptable": ["none.insufficient_evidence"] if entry.get("short") else [],
    }  # fmt: skip
    (home / "incident.yaml").write_text(yaml.safe_dump(labels, sort_keys=False, width=120), encoding="utf-8")
    return size


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
