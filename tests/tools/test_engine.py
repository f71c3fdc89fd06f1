"""Calls between trainer and rollout engine: order, deaths, disagreement."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.tools.curves.rollouts_tools import engine_events

from tests.tools.captured import look


def calls(*names: str) -> str:
    return "".join(f'INFO:     127.0.0.1:5101 - "POST /{name} HTTP/1.1" 200 OK\n' for name in names)


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        (("sleep?level=1", "start_weight_update", "update_weights"), True),
        (("release_memory_occupation", "update_weights_from_tensor"), True),
        (("sleep?level=1", "wake_up", "update_weights"), False),
        (("sleep?level=1", "wake_up?tags=weights", "update_weights", "wake_up?tags=kv_cache"), False),
        (("release_memory_occupation", "resume_memory_occupation", "update_weights_from_tensor"), False),
        (("update_weights", "sleep?level=1"), False),
        (("v1/completions", "update_weights", "reset_prefix_cache"), False),
    ],
)
def test_order(names: tuple[str, ...], wrong: bool, tmp_path: Path) -> None:
    seen = look(engine_events, tmp_path, server_log="v1 engine core\n" + calls(*names))
    assert bool(seen.values("rl.asleep_during_update")) is wrong
    if wrong:
        assert names[0].split("?")[0] in seen.lines("rl.asleep_during_update")[0]
        assert names[-1] in seen.lines("rl.event_order")[0]


def test_files_are_followed_apart(tmp_path: Path) -> None:
    seen = look(engine_events, tmp_path, a_log=calls("sleep"), b_log=calls("update_weights"))
    assert not seen.values("rl.asleep_during_update")


def test_updates_without_a_cache_reset(tmp_path: Path) -> None:
    seen = look(engine_events, tmp_path, server_log=calls("generate", "update_weights_from_disk", "generate"))
    assert seen.one("rl.prefix_cache_not_reset") is True
    seen = look(engine_events, tmp_path, server_log=calls("generate", "flush_cache", "update_weights_from_disk", "generate"))
    assert not seen.values("rl.prefix_cache_not_reset")


def test_death_and_timeout(tmp_path: Path) -> None:
    log = (
        "ERROR async_llm.py:858] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.\n"
        "rollout client: POST /update_weights timed out after 600.0 s\n"
        'resp = session.post(url + "/update_weights", data=payload, timeout=600)\n'
    )
    seen = look(engine_events, tmp_path, trainer_log=log)
    assert seen.values("rl.engine_dead") and len(seen.values("rl.update_timeout")) == 1


def test_an_engine_that_disagrees_with_itself(tmp_path: Path) -> None:
    log = (
        "  SGLang decode  vs SGLang prefill:   ratio = 41.2   DIVERGED\n"
        "  SGLang prefill vs FSDP prefill:     ratio = 1.01   OK\n3/64 outlier sequences\n"
    )
    seen = look(engine_events, tmp_path, check_log=log)
    assert seen.one("rl.decode_prefill_disagree") == 41.2 and seen.one("rl.prefill_agrees") == 1.01
    assert seen.one("rl.logprob_outliers") == "3 of 64"


def test_one_engine_takes_most_requests(tmp_path: Path) -> None:
    line = "(SGLangEngine pid={p}) Decode batch. #running-req: {n}, #token: 100, gen throughput: 5\n"
    log = "".join(line.format(p=1, n=90 + i) + line.format(p=2, n=2) for i in range(5))
    assert look(engine_events, tmp_path, router_log=log + "engine core\n").values("rl.router_skew")


JOIN = "(SGLangEngine pid={p}) [2026-01-01 10:00:00 TP0] init custom process group: master_address=10.0.0.1, master_port=2, rank_offset=1, rank=1, world_size=5, group_name={g}, backend=nccl\n"
FAILED = "(SGLangEngine pid={p}) Failed to initialize custom process group: wait timeout after 600000ms.\n"


@pytest.mark.parametrize(
    ("log", "apart"),
    [
        (JOIN.format(p=1, g="w-0") + JOIN.format(p=2, g="w-1") + FAILED.format(p=1), True),
        (JOIN.format(p=1, g="w-0") + JOIN.format(p=2, g="w-0") + FAILED.format(p=1), False),
        (JOIN.format(p=1, g="w-0") + JOIN.format(p=2, g="w-1"), False),
        (JOIN.format(p=1, g="w-0") + JOIN.format(p=1, g="w-1") + JOIN.format(p=2, g="w-1") + FAILED.format(p=2), False),
    ],
)
def test_engines_that_wait_in_different_groups(log: str, apart: bool, tmp_path: Path) -> None:
    seen = look(engine_events, tmp_path, engine_log=log)
    assert (sorted(seen.values("rl.update_groups_differ")) == ["w-0", "w-1"]) is apart
    assert bool(seen.values("rl.update_timeout")) is apart


def test_no_engine(tmp_path: Path) -> None:
    assert look(engine_events, tmp_path, train_log="step 1 loss 1\n").result.outcome == "not_applicable"
