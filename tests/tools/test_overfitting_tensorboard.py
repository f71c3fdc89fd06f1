"""Overfitting told from the event files of a TensorBoard folder, and a healthy run beside it."""

from __future__ import annotations

import numpy as np
import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.curves.metrics_tools import find_anomalies

tensorboard = pytest.importorskip("torch.utils.tensorboard")


@pytest.mark.parametrize(("growth", "told"), [(0.002, True), (0.0, False)])
def test_validation_that_turns(tmp_path, growth, told) -> None:
    rng = np.random.default_rng(0)
    with tensorboard.SummaryWriter(str(tmp_path)) as out:
        for step in range(1, 401):
            out.add_scalar("train/loss", 3 * np.exp(-step / 120) + 0.05 + 0.02 * rng.random(), step)
            if step % 20 == 0:
                held = 1.4 + 3 * np.exp(-step / 60) + growth * max(0, step - 150) + 0.005 * rng.random()
                out.add_scalar("eval/loss", held, step)
    keys = {e.key: e.value for e in find_anomalies(Workspace([tmp_path])).evidence}
    assert ("eval.loss_rising_while_train_falls" in keys) is told
    if told:
        assert 160 <= keys["eval.best_step"] <= 240
