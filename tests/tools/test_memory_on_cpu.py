"""The processor's allocator refuses a tensor of a step, the kernel's counter, kills of a neighbour."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traindoctor.agent.reading.logs.load_reports import outlying
from traindoctor.agent.reading.run.files import Line
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.logs.log_tools import scan_logs
from traindoctor.agent.tools.machine.host_tools import host_health
from traindoctor.agent.tools.memory.memory_tools import oom_report
from traindoctor.agent.verdict.salience import without_neighbours

from tests.tools.captured import look

REFUSED = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
    "to allocate {asked} bytes. Error code 12 (Cannot allocate memory)\n"
)
IN_MODEL = """Traceback (most recent call last):
  File "/data/run/train.py", line 76, in main
    loss = F.cross_entropy(model(ids), labels)
  File "/data/run/model.py", line 27, in forward
    scores = q @ k.transpose(-2, -1)
"""
IN_LOSS = """Traceback (most recent call last):
  File "/data/run/train.py", line 76, in main
    loss = F.cross_entropy(logits, labels)
  File "/opt/venv/lib/python3.11/site-packages/torch/nn/functional.py", line 3479, in cross_entropy
    return torch._C._nn.cross_entropy_loss(
"""
LOADING = """Traceback (most recent call last):
  File "/data/run/train.py", line 12, in main
    model = AutoModel.from_pretrained(name)
"""


def test_a_refused_tensor_of_a_step_is_no_full_host(tmp_path: Path) -> None:
    seen = look(oom_report, tmp_path, train_log=IN_MODEL + REFUSED.format(asked=4 << 30))
    assert seen.one("memory.oom") == "cpu_step" and "scores" in seen.lines("memory.inside_model")[0]
    assert "logits" not in seen.values("memory.phase") and "loss" not in seen.values("memory.phase")


@pytest.mark.parametrize(("frames", "asked"), [(LOADING, 4 << 30), (IN_MODEL, 4096)])
def test_loading_and_crumbs_are_the_host(frames: str, asked: int, tmp_path: Path) -> None:
    seen = look(oom_report, tmp_path, train_log=frames + REFUSED.format(asked=asked))
    assert seen.one("memory.oom") == "cpu"


def test_the_loss_itself_is_no_place_inside_the_model(tmp_path: Path) -> None:
    seen = look(oom_report, tmp_path, train_log=IN_LOSS + REFUSED.format(asked=4 << 30))
    assert "logits" in seen.values("memory.phase") and not seen.values("memory.inside_model")


@pytest.mark.parametrize(
    "told",
    [
        "step {i} tokens 8 x {n}",
        "iter {i} batch shape: torch.Size([8, {n}])",
        "{i} seq_len={n} loss 2.1",
        "[{i}] padded to {n}",
    ],
)
def test_the_one_long_batch(told: str, tmp_path: Path) -> None:
    lines = "".join(told.format(i=i, n=n) + "\n" for i, n in enumerate((250, 262, 248, 255, 8400), 1))
    seen = look(oom_report, tmp_path, train_log=lines + IN_MODEL + REFUSED.format(asked=4 << 30))
    assert seen.one("memory.long_batch") == 8400
    even = lines.replace("8400", "263")
    assert not look(oom_report, tmp_path, train_log=even + IN_MODEL + REFUSED.format(asked=4 << 30)).values(
        "memory.long_batch"
    )


@given(st.lists(st.text(max_size=60), max_size=12))
def test_any_lines_are_read(texts: list[str]) -> None:
    lines = [Line(i, 0, t.encode("utf-8", "replace")) for i, t in enumerate(texts, 1)]
    found = outlying(lines, len(lines))
    assert found is None or found[0] in lines


def test_a_counter_of_kills_that_stands_still(tmp_path: Path) -> None:
    seen = look(host_health, tmp_path, memory_txt="before\noom_kill 7\nafter\noom_kill 7\n")
    assert seen.one("host.no_kill_counted") is True
    assert not look(scan_logs, tmp_path).values("error.bare_kill")
    seen = look(host_health, tmp_path, memory_txt="before\noom_kill 7\nafter\noom_kill 9\n")
    assert seen.one("host.kills_counted") == 2
    assert not look(host_health, tmp_path, memory_txt="oom_kill 7\n").values("host.no_kill_counted")


@pytest.mark.parametrize(
    ("line", "kills"),
    [
        ("memory.oom_control: oom_kill_disable 0 under_oom 0 oom_kill 1", [1]),
        ("job_4/memory.events: low 0 high 0 max 311 oom 4 oom_kill 2 oom_group_kill 0", [2]),
        ("memory.oom_control: oom_kill_disable 0 under_oom 0 oom_kill 0", []),
    ],
)
def test_a_groups_own_counter_tells_in_one_reading(line: str, kills: list[int], tmp_path: Path) -> None:
    seen = look(host_health, tmp_path, accounting_txt=f"== step ==\nmemory.failcnt: 19 \n{line} \n")
    assert seen.values("host.group_oom_kills") == kills
    told = look(scan_logs, tmp_path, accounting_txt=f"== step ==\n{line} \n")
    assert not told.values("error.bare_kill")  # it does not say of whom


KERNEL = (
    "[100.1] {name} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
    "[100.2] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task={name},pid=991,uid=0\n"
    "[100.3] Memory cgroup out of memory: Killed process 991 ({name}) total-vm:9kB, anon-rss:8kB\n"
)
RAISED = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    x[9]\nIndexError: list index out of range\n'
LOST = RAISED.replace("x[9]", "next(batches)").replace(
    "IndexError: list index out of range", "RuntimeError: Pin memory thread exited unexpectedly"
)


@pytest.mark.parametrize(
    ("name", "log", "left"),
    [
        ("Rscript", RAISED, False),
        ("mysqld", RAISED, False),
        ("python3", RAISED, False),  # whoever it was: no kill brings about such an error
        ("python3", LOST, True),  # it may be ours: a loader, a rank, and this the answer to it
        ("pt_data_worker", LOST, True),
        ("Rscript", LOST, False),
        ("Rscript", "step 1 loss 2.0\nKilled\n", True),  # something of ours was killed, and by whom is not known
        ("Rscript", "step 1 loss 2.0\n", True),
    ],
)
def test_kills_of_programs_that_train_nothing(name: str, log: str, left: bool, tmp_path: Path) -> None:
    (tmp_path / "dmesg.txt").write_text(KERNEL.format(name=name))
    (tmp_path / "train.log").write_text(log)
    ws = Workspace([tmp_path])
    evidence = [e for tool in (oom_report, host_health, scan_logs) for e in tool(ws).evidence]
    kept = [e for e in without_neighbours(evidence) if e.file == "dmesg.txt"]
    assert bool(kept) is left
