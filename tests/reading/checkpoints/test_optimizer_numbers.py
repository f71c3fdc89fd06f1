"""Numbers of an optimizer that no float holds, parameters found by name, and bytes that are gone in the middle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from traindoctor.agent.reading.checkpoints import optimizer_health, pairing
from traindoctor.agent.reading.checkpoints.layouts import Checkpoint, checkpoints
from traindoctor.agent.reading.checkpoints.moments import Moments, Optimizer, number_of
from traindoctor.agent.reading.checkpoints.pairing import updates_of
from traindoctor.agent.reading.checkpoints.parts import State
from traindoctor.agent.reading.checkpoints.weights import weights_of
from traindoctor.agent.reading.run.files import RunFile
from traindoctor.agent.reading.run.workspace import Workspace


def test_an_integer_beyond_every_float_is_no_number() -> None:
    assert number_of(10**400) is None
    assert number_of(True) is None
    assert number_of(3) == 3.0
    assert optimizer_health._limit([10**400, 0.999]) == optimizer_health._limit(None)


def test_moments_are_found_by_the_parameter_or_its_whole() -> None:
    file = RunFile("o.pt", Path("o.pt"), "checkpoint", 1)
    kept = [Moments(f"state.{n}", n, State(file, "pickle"), parameter=n) for n in ("a", "b[0, 4]", "b[4, 4]")]
    optimizer = Optimizer(Checkpoint("c", "torch", 1, {}), [*kept, Moments("state.9", "9", State(file, "pickle"))])
    assert optimizer.of("a") == kept[:1]
    assert optimizer.of("b") == kept[1:]
    assert optimizer.of("b[0, 4]") == kept[1:]
    assert optimizer.of("c") == []


@pytest.fixture
def cut(tmp_path: Path):
    """Weights of which the second half is gone after their header was read."""
    save_file({"layers.0.w": np.ones((64, 64), "f4")}, tmp_path / "model.safetensors")
    ws = Workspace([tmp_path])
    tensor = weights_of(ws, checkpoints(ws)[0]).tensors["layers.0.w"]
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:200])
    return ws, tensor


def test_bytes_that_are_gone_leave_the_others_readable(cut) -> None:
    ws, tensor = cut
    (change,) = pairing.changes(ws, [("w", tensor, tensor)])
    assert not change.read
    moments = Moments("w", "w", State(tensor.file, "safetensors"), {"exp_avg": tensor, "exp_avg_sq": tensor})
    (values,) = optimizer_health.values_of(ws, Optimizer(checkpoints(ws)[0], [moments]))
    assert not values.read
    moments.parameter = "layers.0.w"
    assert updates_of(ws, Optimizer(checkpoints(ws)[0], [moments]), weights_of(ws, checkpoints(ws)[0])) == []
