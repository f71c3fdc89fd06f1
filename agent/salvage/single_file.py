"""A torch.save file without its optimizer: rewritten by torch in a process of its own.

Only a file whose whole structure our own reader understood, with no pickle global outside the allow-list, is given to
torch, and then to `torch.load(weights_only=True)`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ..errors import UsageError
from ..reading.checkpoints.allowed import verdict
from ..reading.checkpoints.state import state_of
from ..workspace import Workspace

_SECONDS = 6 * 3600
_OPTIMIZERS = ("optimizer", "optimizers", "optim", "opt", "optimizer_states", "optimizer_state_dict", "optimizer_state",
               "optim_state_dict", "optimizer_state_dicts", "optimiser")  # fmt: skip
_SCHEDULERS = ("scheduler", "schedulers", "lr_scheduler", "lr_schedulers", "lr_scheduler_state_dict", "sched",
               "scheduler_state_dict", "lr_sched", "scheduler_state")  # fmt: skip
_EMPTIED = ("optimizer_states", "lr_schedulers")  # Lightning wants the keys, and takes empty lists

# Runs alone, isolated from the environment. Prints one JSON object.
_PROGRAM = """
import json, sys
import torch
source, target, dropped, emptied = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])

def same(a, b):
    if isinstance(a, torch.Tensor):
        if not isinstance(b, torch.Tensor) or a.shape != b.shape or a.dtype != b.dtype:
            return False
        a, b = a.detach().contiguous().reshape(-1), b.detach().contiguous().reshape(-1)
        return not len(a) or bool(torch.equal(a.view(torch.uint8), b.view(torch.uint8)))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b or a != a

def load(path):
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError:
        return torch.load(path, map_location="cpu", weights_only=True)

state = load(source)
kept = type(state)((k, [] if k in emptied else v) for k, v in state.items() if k not in dropped or k in emptied)
torch.save(kept, target)
print(json.dumps({"same": same(kept, load(target)), "kept": [str(k) for k in kept]}))
"""


def keys_of(checkpoint: Path, keep_scheduler: bool) -> tuple[list[str], list[str]]:
    """Keys at the top of the file that are dropped, and those emptied.

    Raises:
        UsageError: the file is not safe to parse, or holds no optimizer state.
    """
    ws = Workspace([checkpoint])
    state = state_of(ws, ws.files[0])
    if not state.readable or state.problems:
        why = state.problems[0].text if state.problems else "its structure was not understood"
        raise UsageError(f"{checkpoint.name}: refused, as it may not be safe to load: {why}")
    if verdict(state.globals) != "safe-to-parse":
        raise UsageError(f"{checkpoint.name}: refused, its pickle names code: {', '.join(state.globals[:6])}")
    if not isinstance(state.tree, dict):
        raise UsageError(f"{checkpoint.name}: holds no dictionary, so no optimizer state of its own")
    wanted = _OPTIMIZERS if keep_scheduler else (*_OPTIMIZERS, *_SCHEDULERS)
    dropped = [k for k in state.tree if isinstance(k, str) and k in wanted]
    if not any(k in _OPTIMIZERS and state.tree[k] for k in dropped):
        keys = ", ".join(map(str, state.tree))[:160]
        raise UsageError(f"{checkpoint.name}: no optimizer state found", f"it holds {keys}")
    lightning = "pytorch-lightning_version" in state.tree
    return dropped, [k for k in dropped if lightning and k in _EMPTIED]


def rewrite(checkpoint: Path, target: Path, dropped: list[str], emptied: list[str]) -> None:
    """Write `target` without the dropped keys, and have every tensor compared with the original, byte for byte.

    Raises:
        UsageError: torch is missing, refuses the file, or what it wrote is not the same.
    """
    keys = [json.dumps(dropped), json.dumps(emptied)]
    argv = [sys.executable, "-I", "-c", _PROGRAM, str(checkpoint), str(target), *keys]
    environment = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH")}
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=_SECONDS, check=False, stdin=subprocess.DEVNULL,
            env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UsageError(f"{checkpoint.name}: torch did not finish within {_SECONDS // 3600} hours") from None
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:300]
        raise UsageError(f"{checkpoint.name}: torch could not rewrite it: {why}")
    if not json.loads(done.stdout.strip().splitlines()[-1])["same"]:
        raise UsageError(f"{checkpoint.name}: what was written differs from the original; nothing was kept")
    with target.open("rb") as made:
        os.fsync(made.fileno())
