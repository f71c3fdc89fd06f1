"""Two logs of the same steps: other batches after a resume, and a loss that is a multiple of the other's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from traindoctor.agent.tools.curves.metrics_tools import find_anomalies
from traindoctor.agent.tools.settings.code_tools import find_hazards

from tests.tools.captured import look

RESUMED = "Continuing training from global step 200\n"


def log(first: int, last: int, seed: int, factor: float = 1.0) -> str:
    noise = np.random.default_rng(seed).normal(0, 0.06, 400)
    row = "{{'loss': {v:.4f}, 'learning_rate': 5e-05, 'step': {i}}}\n"
    return "".join(row.format(v=factor * (1.9 + noise[i - 100]), i=i) for i in range(first, last))


@pytest.mark.parametrize(("seed", "told"), [(2, True), (1, False)])
def test_a_resume_that_meets_other_batches(tmp_path: Path, seed: int, told: bool) -> None:
    direct, resumed = log(190, 230, 1), RESUMED + log(201, 230, seed)
    seen = look(find_anomalies, tmp_path, direct_log=direct, resumed_log=resumed)
    found = [(e.file, e.value) for e in seen.of("resume.other_batches")]
    assert found == ([("direct.log", 201), ("resumed.log", 201)] if told else [])


@pytest.mark.parametrize(("factor", "told"), [(1.6, True), (1.02, False)])
def test_a_loss_that_is_higher_in_one_log(tmp_path: Path, factor: float, told: bool) -> None:
    seen = look(find_anomalies, tmp_path, plain_log=log(101, 150, 1), adapter_log=log(101, 150, 2, factor))
    assert bool(seen.values("variant.loss_higher_in_one_log")) is told
    assert not seen.values("resume.other_batches")


COLLATOR = """
def wrap(data_collator):
    def wrapper(features):
        for feature in features:
            for k in label_keys:
                feature[k] = feature[k][1:]
            feature["input_ids"] = feature["input_ids"]{cut}
        return data_collator(features)
    return wrapper
"""


@pytest.mark.parametrize(("cut", "told"), [("[:-1]", True), ("[:2048]", False)])
def test_a_collator_that_shifts_for_a_model_that_shifts(tmp_path: Path, cut: str, told: bool) -> None:
    seen = look(find_hazards, tmp_path, collate_py=COLLATOR.format(cut=cut))
    assert bool(seen.values("code.label_shift_twice")) is told
