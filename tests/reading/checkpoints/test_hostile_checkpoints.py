"""Broken and hostile checkpoint files: each is answered, in bounded time and memory, and nothing of it is run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hostile_files import hostile_rest, hostile_safetensors, hostile_zips, legacy, torch_zip
from hostile_pickles import CALLED, MERELY_UNKNOWN, hostile_pickles, malformed_pickles
from traindoctor.agent.reading.checkpoints.formats.symbols import verdict

SECONDS, MEGABYTES = 5.0, 300  # of the processor: a busy machine is no fault of the file

READER = """
import json, resource, sys, time
from pathlib import Path
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.checkpoints.formats.symbols import verdict
from traindoctor.agent.reading.checkpoints.numbers import examine
from traindoctor.agent.reading.checkpoints.weights import state_of
import numpy
ws = Workspace([Path(sys.argv[1])], may_be_empty=True)
used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
idle = used()
for file in ws.files:
    started = time.process_time()
    state = state_of(ws, file)
    seen = examine(ws, state)
    ws._memo.clear()
    print(json.dumps({
        "name": file.name, "seconds": time.process_time() - started, "readable": state.readable,
        "verdict": verdict(state.globals), "globals": state.globals,
        "problems": [p.kind for p in [*state.problems, *seen.problems]], "megabytes": used() - idle,
    }))
"""


def answers(folder: Path) -> dict[str, dict[str, Any]]:
    """What a process of its own says of every file of a folder."""
    done = subprocess.run(
        [sys.executable, "-c", READER, str(folder)],
        capture_output=True, text=True, timeout=280, cwd=Path(__file__).parents[3], env={**os.environ, "MALLOC_ARENA_MAX": "2"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return {a["name"]: a for a in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("canary") / "executed"


def _write(folder: Path, files: list[tuple[str, bytes]]) -> dict[str, dict[str, Any]]:
    for name, data in files:
        (folder / name).write_bytes(data)
    told = answers(folder)
    assert sorted(told) == sorted(name for name, _ in files)
    for name, answer in told.items():
        assert answer["seconds"] < SECONDS, (name, answer)
        assert answer["megabytes"] < MEGABYTES, (name, answer)
    return told


def test_broken_files_are_never_called_readable(tmp_path: Path) -> None:
    files = [(f"{name}.safetensors", data) for name, data in hostile_safetensors()]
    files += [(f"{name}.pt", data) for name, data in hostile_zips()]
    files += list(hostile_rest())
    malformed = list(malformed_pickles())
    files += [(f"{name}.pkl", data) for name, data in malformed]
    assert len(files) >= 120
    harmless = {f"{n}.pkl" for n in ("self_list", "self_dict", "memo_far", "memo_negative", "collisions")}
    for name, answer in _write(tmp_path, files).items():
        if name not in harmless:
            assert answer["problems"] and not answer["readable"], (name, answer)


def test_no_hostile_pickle_is_run(tmp_path: Path, canary: Path) -> None:
    pickles = list(hostile_pickles(canary))
    assert len(pickles) >= 100
    files = []
    for number, (name, data) in enumerate(pickles):
        wrap = (lambda d: d, torch_zip, legacy)[number % 3]
        files.append((f"{name}{('.pkl', '.pt', '.bin')[number % 3]}", wrap(data)))
    told = _write(tmp_path, files)
    assert not canary.exists()
    for name, answer in told.items():
        assert answer["verdict"] == "dangerous", (name, answer)
        assert "dangerous_globals" in answer["problems"] and not answer["readable"], (name, answer)


def test_malformed_pickles_inside_of_torch_files(tmp_path: Path) -> None:
    small = [(n, d) for n, d in malformed_pickles() if len(d) < 10_000]
    files = [(f"{n}.pt", torch_zip(d)) for n, d in small] + [(f"{n}.bin", legacy(d)) for n, d in small]
    _write(tmp_path, files)


@pytest.mark.parametrize("name", CALLED)
def test_plainly_dangerous_names(name: str) -> None:
    assert verdict([name]) == "dangerous"


@pytest.mark.parametrize("name", MERELY_UNKNOWN)
def test_unknown_names_are_called_unknown(name: str) -> None:
    assert verdict([name, "torch.FloatStorage"]) == "unknown-globals"


def test_the_names_of_an_ordinary_checkpoint_are_known() -> None:
    assert (
        verdict(["torch._utils._rebuild_tensor_v2", "collections.OrderedDict", "torch.BFloat16Storage"])
        == "safe-to-parse"
    )


def test_a_sparse_file_of_40_gb_costs_no_time(tmp_path: Path) -> None:
    raw = json.dumps({"w": {"dtype": "F32", "shape": [10_000_000_000], "data_offsets": [0, 40_000_000_000]}}).encode()
    with (tmp_path / "big.safetensors").open("wb") as f:
        f.write(len(raw).to_bytes(8, "little") + raw)
        f.truncate(8 + len(raw) + 40_000_000_000)
    with (tmp_path / "nothing.pt").open("wb") as f:
        f.truncate(40_000_000_000)
    code = READER.replace("seen = examine(ws, state)", "seen = state")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[3],
    )
    told = {a["name"]: a for a in map(json.loads, done.stdout.splitlines())}
    assert told["big.safetensors"]["readable"] and told["big.safetensors"]["seconds"] < 1
    assert set(told["nothing.pt"]["problems"]) == {"empty"} and told["nothing.pt"]["seconds"] < 1
    assert told["nothing.pt"]["megabytes"] < 20
