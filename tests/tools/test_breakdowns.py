"""Where the time goes by a run's own timers, by tables of cProfile, and by the rates of longer outputs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traindoctor.agent.reading.profiles.step_times import durations, part_named, shares_of
from traindoctor.agent.tools.curves.paces_tools import time_breakdown

from tests.tools.captured import look


def lines(form: str, count: int = 12) -> str:
    chance = random.Random(0)
    return "".join(form.format(step=i, jitter=chance.random() / 100) + "\n" for i in range(1, count))


@pytest.mark.parametrize("form", [
    "step {step} loss 2.1 | batch in {jitter:.3f} s | step in 0.125 s".replace("in {jitter:.3f}", "in 0.4"),
    "iter {step}: data 800 ms, step 1000 ms, loss 2.0{jitter:.4f}",
    "[{step}] loss=2.0 load=0.9s forward=0.1s backward=0.2s",
    "epoch 1 it {step} waiting for data: 0.61 sec, compute: 0.2 sec, optimizer: 0.05 sec",
])  # fmt: skip
def test_lines_that_say_how_long_the_data_took(tmp_path: Path, form: str) -> None:
    seen = look(time_breakdown, tmp_path, train_log=lines(form))
    assert 0.6 < seen.one("breakdown.data") < 0.85 and seen.result.outcome == "finding"


def test_columns_of_a_table_and_of_json_lines(tmp_path: Path) -> None:
    table = "step,loss,fetch_ms,fwd_bwd_ms\n" + "".join(f"{i},2.{i},{300 + i % 5},100\n" for i in range(12))
    assert 0.7 < look(time_breakdown, tmp_path, metrics_csv=table).one("breakdown.data") < 0.8
    (tmp_path / "metrics.csv").unlink()
    rows = "".join(f'{{"step": {i}, "loss": 2.0, "time": {{"save_s": 3.0, "compute_s": 1.0}}}}\n' for i in range(12))
    assert look(time_breakdown, tmp_path, metrics_jsonl=rows).one("breakdown.checkpoint") == 0.75


def test_a_table_at_the_end(tmp_path: Path) -> None:
    table = "done\n  save checkpoint   61.0 s   61.0 %\n  forward  30.0 s  30.0%\n  data loading  9.0 s  9.0 %\n"
    seen = look(time_breakdown, tmp_path, train_log=lines("step {step} loss 2.1") + table)
    assert seen.one("breakdown.checkpoint") == 0.61 and seen.one("breakdown.data") == 0.09


def test_data_that_arrive_in_time_are_clean(tmp_path: Path) -> None:
    seen = look(time_breakdown, tmp_path, train_log=lines("step {step} | data 0.01 s | step 0.8 s"))
    assert seen.result.outcome == "clean" and not seen.values("breakdown.data")


def test_a_save_now_and_then_is_no_share_of_every_step(tmp_path: Path) -> None:
    steps = [f"step {i} | data 0.1 s | step 1.0 s" for i in range(30)]
    steps[10::10] = [f"step {i} | saving 20 s | step 1.0 s" for i in (10, 20)]
    seen = look(time_breakdown, tmp_path, train_log="\n".join(steps) + "\n")
    assert not seen.values("breakdown.checkpoint") and seen.one("breakdown.data") == 0.1


def test_what_was_loaded_at_the_start_is_no_step(tmp_path: Path) -> None:
    start = "loaded data in 81.2 s, compute ready in 3.0 s\n"
    assert not look(time_breakdown, tmp_path, train_log=start + lines("step {step} loss 2.1")).evidence


def test_the_rank_that_waits_least_counts(tmp_path: Path) -> None:
    for rank, (compute, comm) in enumerate([(0.1, 0.9), (0.1, 0.9), (0.95, 0.05)]):
        text = lines(f"step {{step}} loss 2.0 compute {compute} s all_reduce {comm} s")
        (tmp_path / f"rank{rank}.log").write_text(text)
    assert look(time_breakdown, tmp_path).one("breakdown.comm") == 0.05


def profile(calls: int, cumulative: float, name: str) -> str:
    return (
        "         83174 function calls (63730 primitive calls) in 10.000 seconds\n\n   Ordered by: internal time\n\n"
        "   ncalls  tottime  percall  cumtime  percall filename:lineno(function)\n"
        f"   {calls}    1.200    0.000    {cumulative:.3f}    0.000 {name}\n"
        "       10    0.103    0.010    0.103    0.010 {method 'run_backward' of 'torch._C._EngineBase' objects}\n"
    )


def test_many_files_in_a_profile(tmp_path: Path) -> None:
    for name in ("npyio.py:253(load)", "{built-in method io.open}", "Image.py:3220(open)", "{imread}"):
        assert look(time_breakdown, tmp_path, prof_txt=profile(9000, 5.0, name)).one("profile.file_load_share") == 0.5


def test_few_large_files_in_a_profile_are_no_small_files(tmp_path: Path) -> None:
    assert not look(time_breakdown, tmp_path, prof_txt=profile(12, 5.0, "npyio.py:253(load)")).evidence
    assert not look(time_breakdown, tmp_path, prof_txt=profile(9000, 5.0, "module.py:1501(_call_impl)")).evidence


def outputs(rate) -> str:
    return "".join(
        f"sample: {n} tokens in {n / rate(n):.2f} s, {rate(n):.1f} tokens/s\n" for n in (32, 64, 128, 256, 512)
    )


def test_longer_outputs_come_slower(tmp_path: Path) -> None:
    seen = look(time_breakdown, tmp_path, generate_log=outputs(lambda n: 4000 / n))
    assert seen.one("generation.rate_falls") < 0.2


def test_an_even_rate_is_no_finding(tmp_path: Path) -> None:
    assert not look(time_breakdown, tmp_path, generate_log=outputs(lambda n: 40 - n / 100)).evidence


@given(st.text(max_size=120))
def test_any_line_is_read_without_a_crash(text: str) -> None:
    assert all(seconds >= 0 for seconds in durations(text).values())
    part_named(text)


@given(st.dictionaries(st.sampled_from(["whole", "data", "batch", "compute", "comm", "checkpoint"]), st.floats(0, 1e6)))
def test_shares_are_shares(seconds: dict[str, float]) -> None:
    shares = shares_of(seconds)
    assert all(0 <= share <= 1.06 for share in shares.values()) and sum(shares.values()) <= 1.06
