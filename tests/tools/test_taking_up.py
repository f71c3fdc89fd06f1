"""What a run takes up again and what it leaves behind: optimizers, positions, parts of a checkpoint."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

import pytest
from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.reading.logs import load_reports
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.session import diagnose
from traindoctor.agent.tools.curves.metrics_tools import find_anomalies
from traindoctor.agent.tools.logs.log_tools import scan_logs
from traindoctor.agent.tools.settings.code_tools import find_hazards
from traindoctor.agent.tools.settings.settings_tools import lint_settings

GIVEN = """
def fit(model, optimizer, epochs):
    {made}
    for epoch in range(epochs):
        step(model, optimizer)
"""
LOADERS = """
def loaders(cfg, {given}, dataset):
    sampler = DistributedSampler(dataset, shuffle=True{more})
    return DataLoader(dataset, batch_size=cfg.size, sampler=sampler)
"""
LOAD = """
def load(model, path):
    ckpt = torch.load(path, map_location="cpu", weights_only=True)
    mine = {{{taken} for k, v in ckpt.items(){only}}}
    missing, _ = model.load_state_dict(mine, strict={strict})
    print(missing)
"""
ASKS = """
import subprocess
def memory():
    return {call}
memory()
"""


def hazards(folder: Path, source: str) -> dict[str, list[int]]:
    (folder / "train.py").write_text(textwrap.dedent(source))
    found: dict[str, list[int]] = {}
    for e in find_hazards(Workspace([folder])).evidence:
        found.setdefault(e.key.removeprefix("code."), []).append(e.line or 0)
    return found


@pytest.mark.parametrize(
    ("made", "bad"),
    [
        ("optimizer = optimizer.__class__(model.parameters(), **optimizer.defaults)", True),
        ("optimizer = type(optimizer)(model.parameters(), lr=1e-3)", True),
        ("cls = optimizer.__class__\n    optimizer = cls(model.parameters())", True),
        ("optimizer.load_state_dict(saved)\n    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)", True),
        ("optimizer = torch.optim.AdamW(model.parameters())\n    optimizer.load_state_dict(saved)", False),
        ("optimizer = accelerator.prepare(optimizer)", False),
        ("optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)", False),
    ],
)
def test_an_optimizer_that_is_replaced_loses_what_was_restored(tmp_path: Path, made: str, bad: bool) -> None:
    assert ("optimizer_rebuilt" in hazards(tmp_path, GIVEN.format(made=made))) is bad


@pytest.mark.parametrize(
    ("given", "more", "bad"),
    [
        ("train_state", "", True),
        ("consumed_samples", "", True),
        ("train_state", ", seed=train_state.step", False),
        ("seed", "", False),
    ],
)
def test_a_loader_that_is_told_the_position_uses_it(tmp_path: Path, given: str, more: str, bad: bool) -> None:
    assert ("position_unused" in hazards(tmp_path, LOADERS.format(given=given, more=more))) is bad


@pytest.mark.parametrize(
    ("taken", "only", "strict", "bad"),
    [
        ('k.replace("detector.", ""): v', ' if "detector" in k', False, True),
        ("k[6:]: v", ' if k.startswith("model.")', False, True),
        ("k[6:]: v", ' if k.startswith("model.")', True, False),
        ('k.removeprefix("module."): v', "", False, False),
    ],
)
def test_a_part_of_a_checkpoint_is_taken_by_name(
    tmp_path: Path, taken: str, only: str, strict: bool, bad: bool
) -> None:
    source = LOAD.format(taken=taken, only=only, strict=strict)
    assert ("filtered_load" in hazards(tmp_path, source)) is bad


@pytest.mark.parametrize(
    ("call", "bad"),
    [
        ('subprocess.check_output(["nvidia-smi", "--query-gpu=memory.used"], encoding="utf-8")', True),
        ('os.popen("nvidia-smi -q").read()', True),
        ('subprocess.run(["git", "rev-parse", "HEAD"])', False),
        ("torch.cuda.memory_allocated()", False),
    ],
)
def test_a_program_that_asks_the_driver_in_the_loop(tmp_path: Path, call: str, bad: bool) -> None:
    at_the_start = ASKS.format(call=call)
    assert "driver_queried" not in hazards(tmp_path, at_the_start)
    assert ("driver_queried" in hazards(tmp_path, f"{at_the_start}for b in data:\n    print(memory())\n")) is bad
    assert ("driver_queried" in hazards(tmp_path, f"import os, subprocess\nfor b in data:\n    {call}\n")) is bad


@pytest.mark.parametrize("source", ["a = a", "a = b\nb = a"])
def test_names_that_are_assigned_in_a_circle_end(tmp_path: Path, source: str) -> None:
    assert "optimizer_rebuilt" not in hazards(tmp_path, f"{source}\noptimizer = a(model.parameters())\n")


@pytest.mark.parametrize(
    ("missing", "left", "harmless"),
    [
        ("'category_tokens.CLS_a', 'category_tokens.CLS_b'", "'pretrain_head.mlp.fc1.weight'", True),
        ("'head.weight', 'head.bias'", "", True),
        ("'module.fc.weight'", "'queue', 'queue_ptr'", True),
        ("'bert.embeddings.position_ids'", "", True),
        ("'encoder.layers.0.fc.weight'", "", False),
        ("'head.weight'", "'module.encoder.layers.0.weight'", False),
    ],
)
def test_a_new_head_is_no_lost_layer(tmp_path: Path, missing: str, left: str, harmless: bool) -> None:
    line = f"_IncompatibleKeys(missing_keys=[{missing}], unexpected_keys=[{left}])\n"
    log = tmp_path / "train.log"
    log.write_text(f"loading pretrained model: a.pth\n{line}" + "".join(f"step {n} loss {2 - n / 9}\n" for n in range(9)))
    found = {e.key for e in scan_logs(Workspace([tmp_path])).evidence}
    assert "sig.ckpt.weights_not_loaded" in found
    assert ("load.only_heads" in found) is harmless
    log.write_text(f"loading the best checkpoint: a.pth\n{line}accuracy 0.0102\n")
    assert "load.only_heads" not in {e.key for e in scan_logs(Workspace([tmp_path])).evidence}, "it stays at random"


@pytest.mark.parametrize(("launch", "many"), [("8 --num_workers 32", True), ("8 --num_workers 8", False)])
def test_loader_workers_count_for_each_process(tmp_path: Path, launch: str, many: bool) -> None:
    (tmp_path / "launch.sh").write_text(
        f"python -m torch.distributed.launch --nproc_per_node={launch.replace(' ', ' main.py ', 1)}\n"
    )
    found = {e.key: e.value for e in lint_settings(Workspace([tmp_path])).evidence}
    assert ("lint.dataloader_workers_many" in found) is many


@pytest.mark.parametrize(("reported", "told"), [("false", True), ("true", False)])
def test_a_coefficient_of_a_loss_that_is_not_made(tmp_path: Path, reported: str, told: bool) -> None:
    (tmp_path / "config.json").write_text(
        '{"model_type": "mixtral", "num_local_experts": 8, "router_aux_loss_coef": 0.02,'
        f' "output_router_logits": {reported}}}\n'
    )
    found = {e.key for e in lint_settings(Workspace([tmp_path])).evidence}
    assert ("lint.router_loss_not_computed" in found) is told


@pytest.mark.parametrize(
    ("counts", "rare"),
    [([6, 6, 7, 8], True), ([6, 6, 6, 6], True), ([10, 110, 210, 310], False), ([0, 0, 0, 0], False)],
)
def test_a_scaler_that_hardly_skips_is_at_work(tmp_path: Path, counts: list[int], rare: bool) -> None:
    rows = (f"[INFO] [logging.py:96:log_dist] [Rank 0] step={10 + 100 * i}, skipped={n}" for i, n in enumerate(counts))
    (tmp_path / "train.log").write_text("\n".join(rows) + "\n")
    found = {e.key for e in find_anomalies(Workspace([tmp_path])).evidence}
    assert ("loss_scale.rare_skips" in found) is rare


OVERFLOWS = "".join(
    f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {2 ** (16 - i)}, reducing to {2 ** (15 - i)}\n"
    for i in range(16)
)


@pytest.mark.parametrize(
    "end",
    [
        OVERFLOWS,
        "[INFO] [logging.py:96:log_dist] [Rank 0] step=4996, skipped=24\n",
        "[INFO] [logging.py:96:log_dist] [Rank 0] step=4996, skipped=5, loss_scale=1.0\n",
    ],
)
def test_a_scale_that_collapses_late_in_a_long_run_is_none_at_work(end: str, tmp_path: Path) -> None:
    rows = "".join(
        f"[INFO] [logging.py:96:log_dist] [Rank 0] step={n}, skipped=4, loss_scale=65536.0\n" for n in range(10, 4990, 10)
    )
    (tmp_path / "train.log").write_text(rows + end)
    question = "why did it stop?"
    *_, last = diagnose(Workspace([tmp_path], question=question), question, state=tmp_path / "s", history=False)
    assert isinstance(last, ReportReady)
    assert "loss_scale.rare_skips" not in {e.key for e in last.report.evidence}
    assert last.report.root_cause.id != "none.healthy"


@pytest.mark.parametrize("unit", ["missing[", "_IncompatibleKeys(missing_keys=["])
def test_a_load_report_without_an_end_costs_no_time(unit: str) -> None:
    began = time.process_time()
    assert load_reports._listed(unit * 8_000) == ([], [])
    assert time.process_time() - began < 0.3
