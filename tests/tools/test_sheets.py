"""What small tables and listings show by their shape."""

from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.curves.metrics_tools import compare_rows

CASES = {
    "variant.no_effect": "balance_weight,step,loss\n0.01,10,3.2071\n0.01,90,2.1412\n1,10,3.2071\n1,90,2.1412\n",
    "reward.component_zero": "step,total_reward,length_reward,tag_reward\n1,0.3,0.3,0\n2,0.5,0.5,0\n3,0.6,0.6,0\n",
    "numerics.tensor_unchanged": "tensor,max_change\nblock.0.scale,0.0\nblock.0.weight,0.031\n",
    "resume.samples_repeated": "run,step,sample_ids\nfirst,40,3;91;17\nfirst,90,8;12;55\nsecond,90,3;91;17\n",
    "variant.machine_decides": "change,host,result\nnone,gpu07,nan\nold driver,gpu07,nan\nother data,gpu07,nan\n"
    "same job,another host,ok\n",
    "rank.parameters_differ": "rank 0 embed.weight sum 4.12\nrank 1 embed.weight sum -2.88\n",
    "files.key_prefix_differs": "checkpoint: tower.0.weight\nmodel: net.tower.0.weight\n",
}


@pytest.mark.parametrize("key", CASES)
def test_a_small_table_shows_it(tmp_path: Path, key: str) -> None:
    (tmp_path / "table.csv").write_text(CASES[key])
    result = compare_rows(Workspace([tmp_path]))
    assert key in {e.key for e in result.evidence}
    assert all(e.line and e.text in CASES[key] for e in result.evidence)


def test_ordinary_tables_show_nothing(tmp_path: Path) -> None:
    (tmp_path / "sweep.csv").write_text("lr,step,loss\n0.1,10,3.2071\n0.1,90,2.1412\n0.2,10,3.3\n0.2,90,2.2\n")
    (tmp_path / "rewards.csv").write_text("step,reward,a_reward,b_reward\n1,0.3,0.3,0\n2,0.5,0.4,0.1\n3,0.6,0.6,0\n")
    assert not compare_rows(Workspace([tmp_path])).evidence


def test_one_number_apart_in_two_epoch_tables(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("epoch train_loss valid_loss accuracy\n0 0.9 0.8 0.5\n1 0.7 0.6 0.6\n")
    (tmp_path / "b.txt").write_text("epoch train_loss valid_loss accuracy\n0 900.1 0.8 0.5\n1 700.2 0.61 0.6\n")
    assert {e.key for e in compare_rows(Workspace([tmp_path])).evidence} == {"variant.one_metric_apart"}
