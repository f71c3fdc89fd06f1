"""scan_logs, grep_logs, read_lines, list_files: what a diagnosis gets from the logs."""

from pathlib import Path
from typing import Any

import pytest
from traindoctor.agent.core.errors import ToolError
from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.core.types import ToolResult
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.scan import logpass as logpass_module
from traindoctor.agent.session.session import diagnose
from traindoctor.agent.tools.logs.log_tools import grep_logs, list_files, read_lines, scan_logs

OOM = """[rank{r}]: Traceback (most recent call last):
[rank{r}]:   File "/proj/train.py", line 9, in main
[rank{r}]:     loss.backward()
[rank{r}]:   File "/opt/lib/python3.11/site-packages/torch/_tensor.py", line 5, in backward
[rank{r}]:     run_backward()
[rank{r}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""


def scanned(tmp_path: Path, text: str, name: str = "train.log") -> ToolResult:
    (tmp_path / name).write_text(text)
    return scan_logs(Workspace([tmp_path]))


def values(result: ToolResult, key: str) -> list[Any]:
    return [e.value for e in result.evidence if e.key == key]


def test_a_failing_run(tmp_path: Path) -> None:
    r = scanned(tmp_path, "step 1 loss 2.0\n" + OOM.format(r=2))
    assert r.outcome == "finding"
    assert values(r, "error.first") == ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."]
    assert values(r, "error.exception") == ["OutOfMemoryError"]
    assert "backward" in values(r, "error.phase")
    assert values(r, "error.library") == ["torch"]
    assert values(r, "error.user_frame") == ["/proj/train.py:main: loss.backward()"]
    (frame,) = [e for e in r.evidence if e.key == "error.user_frame"]
    assert frame.line == 4 and frame.text.endswith("loss.backward()") and frame.rank == 2
    assert values(r, "run.state") == ["died"]


def test_one_event_on_many_ranks_is_one_event(tmp_path: Path) -> None:
    r = scanned(tmp_path, "".join(OOM.format(r=i) for i in range(8)))
    assert len(values(r, "error.first")) == 1
    assert {e.rank for e in r.evidence if e.key == "error.exception"} == set(range(8))
    assert len(values(r, "error.frame")) == 2  # the same stack is told once


def test_the_earliest_by_time_is_first_not_the_first_printed(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text("2024-01-01 10:00:09 ERROR x: RuntimeError: late\n")
    (tmp_path / "rank1.log").write_text("2024-01-01 10:00:02 ERROR x: ValueError: early\n")
    assert values(scan_logs(Workspace([tmp_path])), "error.first") == ["ValueError: early"]


def test_consequences_do_not_come_first(tmp_path: Path) -> None:
    text = (
        "[rank0]:[E415 21:17:08.9 ProcessGroupNCCL.cpp:552] [Rank 0] Watchdog caught collective operation timeout: x\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    )
    r = scanned(tmp_path, text)
    assert values(r, "error.first") == []
    assert {"watchdog", "launcher"} <= set(values(r, "error.cascade"))
    assert values(r, "run.state") == ["hung"]


def test_exit_codes_and_signals(tmp_path: Path) -> None:
    r = scanned(
        tmp_path,
        "[2023-04-20 19:03:26,106] [ERROR] [launch.py:3:f] ['python'] exits with return code = -9\n/bin/sh: line 1: 77 Killed python t.py\n",
    )
    assert values(r, "error.exit_code") == [-9]
    assert values(r, "error.bare_kill") == ["Killed"]


def test_the_launchers_summary_names_the_rank_that_died(tmp_path: Path) -> None:
    text = (
        "Root Cause (first observed failure):\n[0]:\n  time      : 2024-05-01_10:00:00\n  host      : n7\n"
        "  rank      : 3 (local_rank: 3)\n  exitcode  : -9 (pid: 77)\n  error_file: <N/A>\n"
        "  traceback : Signal 9 (SIGKILL) received by PID 77\n============\n"
    )
    r = scanned(tmp_path, text)
    (exit_code,) = [e for e in r.evidence if e.key == "error.exit_code"]
    assert exit_code.value == -9
    assert "SIGKILL" in values(r, "error.signal")
    assert any(e.rank == 3 and e.host == "n7" for e in r.evidence)


def test_error_json_of_torchelastic(tmp_path: Path) -> None:
    folder = tmp_path / "attempt_0" / "3"
    folder.mkdir(parents=True)
    (folder / "error.json").write_text(
        '{"message": {"message": "ValueError: bad sample id 17", "extraInfo": {"py_callstack": "Traceback...", "timestamp": "1795174046"}}}'
    )
    (tmp_path / "train.log").write_text("step 1\n")
    r = scan_logs(Workspace([tmp_path]))
    (first,) = [e for e in r.evidence if e.key == "error.first"]
    assert (first.value, first.rank, first.attempt) == ("ValueError: bad sample id 17", 3, 0)


def test_a_healthy_run_is_clean(tmp_path: Path) -> None:
    lines = [f"{{'loss': {3 - i / 100}, 'epoch': {i / 100}}}" for i in range(100)]
    r = scanned(tmp_path, "\n".join([*lines, "{'train_runtime': 12.0, 'train_loss': 2.1}", ""]))
    assert r.outcome == "clean"
    assert values(r, "run.state") == ["finished"]
    assert values(r, "run.healthy_end") == [True]
    assert not [e for e in r.evidence if e.key.startswith("error.")]


@pytest.mark.parametrize(
    "line",
    [
        "number of skipped iterations:   0 | number of nan iterations:   0 |",
        "Error rate: 0.05",
        "0 errors, 0 warnings",
        "node-a:1:1 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so).",
        "mean_absolute_error: 0.1",
        "node-a:1:1 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]",
        "[W socket.cpp:697] [c10d] The hostname of the client socket cannot be retrieved. err=-3",
    ],
)
def test_frightening_lines_that_mean_nothing(tmp_path: Path, line: str) -> None:
    r = scanned(tmp_path, f"step 1 loss 2.0\n{line}\n")
    assert not [e for e in r.evidence if e.key.startswith("error.")]


def test_a_log_that_just_stops(tmp_path: Path) -> None:
    r = scanned(tmp_path, "".join(f"step {i} loss 2.0\n" for i in range(50)))
    (silent,) = [e for e in r.evidence if e.key == "run.silent_end"]
    assert silent.line == 50
    assert values(r, "run.state") == ["unknown"]
    assert not values(r, "run.vanished"), "nothing tells of a death: the log may have been copied early"


def test_a_log_that_stops_and_is_missed_by_others(tmp_path: Path) -> None:
    steps = "".join(f"step {i} loss 2.0\n" for i in range(50))
    (tmp_path / "launcher.log").write_text("starting\nworker 3: process exited with exit code -9\n")
    r = scanned(tmp_path, steps)
    assert [e.line for e in r.evidence if e.key == "run.vanished"] == [50]


def test_restarts_begin_attempts(tmp_path: Path) -> None:
    text = "step 1 loss 3\nstep 2 loss 2\n--- system reboot ---\nresume from step 2\nstep 3 loss 2\nValueError: bad\n"
    r = scanned(tmp_path, text)
    assert values(r, "run.restarted") == [2]
    assert [e.attempt for e in r.evidence if e.key == "error.first"] == [2]


def test_distinct_warnings_once(tmp_path: Path) -> None:
    r = scanned(
        tmp_path,
        "".join(f"WARNING: tokenization mismatch: {i} vs. {i + 2}\n" for i in range(500)) + "UserWarning: other\n",
    )
    assert len(values(r, "log.warning")) == 2


def test_signatures_and_their_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [logpass_module.Pattern("sig.memory.x", r"Tried to allocate (?P<asked>[\d.]+ [KMG]iB)")]
    monkeypatch.setattr(logpass_module, "signature_patterns", lambda _: known)
    r = scanned(tmp_path, OOM.format(r=1))
    assert values(r, "sig.memory.x") == [{"asked": 2.0 * 2**30}]
    assert values(r, "sig.memory.x.asked") == [2.0 * 2**30]


def test_every_piece_of_evidence_is_declared_and_quotes_its_line(tmp_path: Path) -> None:
    text = OOM.format(r=0) + "Killed\nexitcode: -9\nWARNING: a\nFATAL: b\nzsh: segmentation fault\n"
    r = scanned(tmp_path, text)
    lines = text.split("\n")
    for e in r.evidence:
        assert scan_logs.allows(e.key)
        assert e.line is not None and e.text == lines[e.line - 1]


def test_what_a_model_reads_is_capped(tmp_path: Path) -> None:
    text = "".join(f"Error{chr(97 + i % 26)}{i}Error: thing {i} failed badly {'x' * 300}\n" for i in range(3000))
    r = scanned(tmp_path, text)
    assert len(r.text) < 13_000
    assert "more failures" in r.text


def test_grep_counts_exactly_and_refuses_look_around(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("".join(f"line {i}\n" for i in range(300)))
    ws = Workspace([tmp_path])
    r = grep_logs(ws, pattern=r"line \d*5$", limit=5)
    assert r.summary.startswith("30 lines") and len(r.evidence) == 5
    with pytest.raises(ToolError, match="syntax"):
        grep_logs(ws, pattern="(?=a)b")
    assert grep_logs(ws, pattern="(a+)+b").outcome == "clean"


def test_read_lines_gives_numbers_and_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("".join(f"line {i}\n" for i in range(1, 301)))
    ws = Workspace([tmp_path])
    r = read_lines(ws, file="a.log", start=10, count=3)
    assert r.text == "10: line 10\n11: line 11\n12: line 12"
    assert r.more == {"tool": "read_lines", "file": "a.log", "start": 13, "count": 3}
    assert "300: line 300" in read_lines(ws, file="a.log", start=9999, count=5).text
    with pytest.raises(ToolError, match="no file"):
        read_lines(ws, file="../../etc/passwd")


def test_list_files_names_what_was_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x\n")
    (tmp_path / "c.yaml").write_text("a: 1\n")
    (tmp_path / "away").symlink_to("/etc/passwd")
    r = list_files(Workspace([tmp_path]))
    assert "1 log" in r.summary and "1 skipped" in r.summary
    assert "away" in r.text and "out of the run" in r.text


@pytest.mark.parametrize("where", ["<frozen os>", "/usr/lib/python3.10/os.py"])
def test_a_variable_that_is_not_set_is_no_record_of_a_data_set(tmp_path: Path, where: str) -> None:
    text = 'Traceback (most recent call last):\n  File "train.py", line 2, in <module>\n    root = os.environ["CORPUS"]\n'
    r = scanned(tmp_path, f"{text}  File \"{where}\", line 679, in __getitem__\nKeyError: 'CORPUS'\n")
    assert values(r, "error.exception") == ["KeyError"] and "data" not in values(r, "error.phase")


BROKEN = """step 40 loss 0.28
^CException ignored in: <bound method _DataLoaderIter.__del__ of <torch.utils.data.dataloader._DataLoaderIter object>>
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 349, in __del__
Process Process-19:
    self._shutdown_workers()
KeyboardInterrupt:
Traceback (most recent call last):
  File "tools/train_net.py", line 415, in main
    inputs = next(batches)
  File "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 259, in _get_batch
    return self.data_queue.get()
  File "/usr/lib/python3.11/queue.py", line 164, in get
    self.not_empty.wait()
KeyboardInterrupt
"""


def test_an_interrupt_tells_where_the_process_stood_and_is_no_fault_of_the_data(tmp_path: Path) -> None:
    r = scanned(tmp_path, BROKEN)
    assert values(r, "stack.interrupted") == ["dataloader"]
    assert [e.text.strip() for e in r.evidence if e.key == "stack.interrupted"] == ["return self.data_queue.get()"]
    assert values(r, "error.phase") == []  # the first print is broken into by another process


def test_an_interrupt_at_a_moment_when_the_loop_fetches_a_batch_blames_nobody(tmp_path: Path) -> None:
    steps = "".join(f"step {n} loss {3 - n / 200:.3f}\n" for n in range(300))
    (tmp_path / "train.log").write_text(steps + BROKEN[BROKEN.rindex("Traceback") :])
    for question in ("why did it stop?", "I stopped it by hand, was it all right?"):
        *_, last = diagnose(Workspace([tmp_path], question=question), question, state=tmp_path / "s", history=False)
        assert isinstance(last, ReportReady) and last.report.root_cause.id.startswith("none.")


def test_an_interrupt_in_the_users_own_loop_tells_nothing(tmp_path: Path) -> None:
    text = 'step 4 loss 2.0\nTraceback (most recent call last):\n  File "train.py", line 4, in main\n    work(x)\n'
    assert values(scanned(tmp_path, text + "KeyboardInterrupt\n"), "stack.interrupted") == []


def test_a_print_that_is_cut_off_is_still_told_where_it_is_all_there_is(tmp_path: Path) -> None:
    text = 'step 4 loss 2.0\nTraceback (most recent call last):\n  File "train.py", line 4, in main\n    work(x)\n'
    assert values(scanned(tmp_path, text), "error.frame") == ["train.py:main: work(x)"]
