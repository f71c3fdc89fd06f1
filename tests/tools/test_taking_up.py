"""What a run takes up again and what it leaves behind: optimizers, positions, parts of a checkpoint."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from traindoctor.agent.tools.anomalies import find_anomalies
from traindoctor.agent.tools.code import find_hazards
from traindoctor.agent.tools.lint import lint_settings
from traindoctor.agent.tools.logs import scan_logs
from traindoctor.agent.workspace import Workspace

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
def test_a_program_that_asks_the_driver(tmp_path: Path, call: str, bad: bool) -> None:
    assert ("driver_queried" in hazards(tmp_path, ASKS.format(call=call))) is bad


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
    (tmp_path / "train.log").write_text(f"loading pretrained model: a.pth\n{line}step 1 loss 2.0\n")
    found = {e.key for e in scan_logs(Workspace([tmp_path])).evidence}
    assert "sig.ckpt.weights_not_loaded" in found
    assert ("load.only_heads" in found) is harmless


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
