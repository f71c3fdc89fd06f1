"""Loads of experts and gradients of routers as logs keep them, without any checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

from traindoctor.agent.tools.curves.metrics_tools import find_anomalies
from traindoctor.agent.tools.weights.experts_tools import expert_balance

from tests.tools.captured import look

EVEN, UNEVEN = [0.26, 0.24, 0.25, 0.25], [0.91, 0.03, 0.05, 0.01]


def table(*layers: list[float]) -> str:
    rows = [[step, i, *shares] for step in range(10) for i, shares in enumerate(layers)]
    return "step,layer,expert_0,expert_1,expert_2,expert_3\n" + "".join(",".join(map(str, r)) + "\n" for r in rows)


def test_an_uneven_layer_is_told_from_an_even_one(tmp_path: Path) -> None:
    for layers in ((EVEN, UNEVEN), (UNEVEN, EVEN)):
        seen = look(expert_balance, tmp_path, experts_csv=table(*layers))
        assert seen.one("expert.imbalance_cv") > 1.4 and seen.result.outcome == "finding"


def test_even_layers_are_clean(tmp_path: Path) -> None:
    assert look(expert_balance, tmp_path, experts_csv=table(EVEN, EVEN)).result.outcome == "clean"


def norms(router: list[float | None], name: str = "moe.router") -> str:
    rows = [{"step": i, "loss": 2.0, "grad_norm": {"embed": 0.1, name: r, "head": 0.2}} for i, r in enumerate(router)]
    return "".join(json.dumps(r) + "\n" for r in rows)


def test_a_router_without_gradient(tmp_path: Path) -> None:
    for name, value in (("moe.router", None), ("layers.3.mlp.gate", None), ("moe.router", 0.0)):
        seen = look(expert_balance, tmp_path, grads_jsonl=norms([value] * 6, name))
        assert seen.one("expert.router_no_gradient") == name


def test_a_router_that_learns_and_other_gates(tmp_path: Path) -> None:
    assert not look(expert_balance, tmp_path, grads_jsonl=norms([None, 0.1, 0.2, 0.1])).evidence
    assert not look(expert_balance, tmp_path, grads_jsonl=norms([0.0] * 6, "mlp.gate_proj")).evidence


def test_one_expert_has_everything_by_extremes_alone(tmp_path: Path) -> None:
    text = "step,loss,max_load,min_load\n" + "".join(f"{i},2.{i},{{}},{{}}\n" for i in range(9))
    assert look(find_anomalies, tmp_path, train_csv=text.replace("{}", "1.0", 0).format(*[1.0, 0.0] * 9)).values(
        "expert.dead"
    )
    assert not look(find_anomalies, tmp_path, train_csv=text.format(*[0.3, 0.2] * 9)).values("expert.dead")


def collapse(distinct: float) -> str:
    rows = [f"{i},{i / 30:.3f},{0.5 if i < 5 else 0.01},{0.7 if i < 5 else distinct}\n" for i in range(30)]
    return "update,reward,entropy,distinct\n" + "".join(rows)


def test_a_reward_that_is_won_by_one_text_for_all(tmp_path: Path) -> None:
    seen = look(find_anomalies, tmp_path, stats_csv=collapse(0.02))
    assert seen.values("entropy.samples_alike") and seen.values("entropy.collapsed")


def test_a_policy_that_is_sure_of_many_texts(tmp_path: Path) -> None:
    seen = look(find_anomalies, tmp_path, stats_csv=collapse(0.65))
    assert not seen.values("entropy.samples_alike") and not seen.values("entropy.collapsed")
