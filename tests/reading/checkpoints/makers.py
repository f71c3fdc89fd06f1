"""Real checkpoints of every framework, made once and kept: `made("zero2")` is a folder nobody may write into.

Each script runs in a process of its own. What it made stays under the test cache, named by a hash of the script and
the versions of the libraries, so that a change of either makes it anew.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock

SCRIPTS = Path(__file__).resolve().parent / "scripts"
CACHE = Path(__file__).resolve().parents[3] / ".pytest_cache" / "doctor"
LIBRARIES = ("torch", "transformers", "peft", "deepspeed", "lightning", "safetensors")

# What each script makes, and on how many ranks it runs.
MADE_BY: dict[str, tuple[str, int]] = {
    **dict.fromkeys(("hf", "hf_gpt2", "hf_sharded", "hf_bf16", "peft", "accelerate"), ("hf.py", 1)),
    **dict.fromkeys(("zero1", "zero2", "zero3"), ("zero.py", 2)),
    "dcp": ("dcp.py", 2),
    **dict.fromkeys(("lightning", "torch", "megatron", "megatron_dist"), ("plain.py", 1)),
}


def made(kind: str) -> Path:
    """The folder of a run that saved checkpoints of this kind. Copy it before you damage it."""
    script, ranks = MADE_BY[kind]
    folder = CACHE / f"checkpoints-{_identity(script)}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            _make(SCRIPTS / script, ranks, folder)
    return folder / kind


def copy(kind: str, into: Path) -> Path:
    """A copy to damage."""
    folder = into / kind
    shutil.copytree(made(kind), folder)
    return folder


def _identity(script: str) -> str:
    known = hashlib.sha256()
    for path in sorted(SCRIPTS.glob("*.py")):
        if path.name in (script, "tokens.py"):
            known.update(path.read_bytes())
    known.update(" ".join(version(name) for name in LIBRARIES).encode())
    return f"{Path(script).stem}-{known.hexdigest()[:12]}"


def _make(script: Path, ranks: int, folder: Path) -> None:
    """Run a script into a folder beside the last one, then give it its name."""
    into = folder.with_name(f"{folder.name}.{os.getpid()}.{time.monotonic_ns()}")
    into.mkdir()
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    settled = {
        "DS_ACCELERATOR": "cpu",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    done = subprocess.run(
        [sys.executable, *launch, str(script), str(into)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, **settled, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(SCRIPTS)},
    )
    if done.returncode:
        shutil.rmtree(into, ignore_errors=True)
        raise RuntimeError(f"{script.name} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    into.rename(folder)
