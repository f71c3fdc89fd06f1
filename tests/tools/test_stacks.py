"""Dumps of py-spy, faulthandler, gdb, lldb and crash handlers: where the threads stand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.run.files import Line
from traindoctor.agent.reading.stacks import stack_dumps as sd
from traindoctor.agent.reading.stacks.stack_groups import where
from traindoctor.agent.tools.time.stacks_tools import stacks

from tests.tools.captured import look

COLLECTIVE = """Process {pid}: /usr/bin/python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread {pid} (active): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2501)
    wrapper (torch/distributed/c10d_logger.py:83)
    train (train.py:88)
    <module> (train.py:120)
Thread 12 (idle): "Thread-1"
    wait (threading.py:324)
    run (tqdm/_monitor.py:60)
    _bootstrap_inner (threading.py:1016)
"""
LOADER = """Process 9: /usr/bin/python train.py
Thread 9 (idle): "MainThread"
    select (selectors.py:415)
    wait (multiprocessing/connection.py:948)
    _try_get_data (torch/utils/data/dataloader.py:1275)
    _next_data (torch/utils/data/dataloader.py:1482)
    train (train.py:80)
"""


def test_the_rank_that_stands_elsewhere(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        (tmp_path / f"rank{rank}.txt").write_text(
            f"$ py-spy dump --pid 1 (rank {rank})\n" + COLLECTIVE.format(pid=rank + 5)
        )
    seen = look(stacks, tmp_path, rank2_txt="$ py-spy dump --pid 9 (rank 2)\n" + LOADER)
    assert seen.values("stack.rank_odd_one_out") == [2]
    assert {"collective", "dataloader"} <= set(seen.values("stack.where"))
    assert "_try_get_data (torch/utils/data/dataloader.py:1275)" in seen.values("stack.frame")


def test_workers_told_to_stand_alike(tmp_path: Path) -> None:
    dump = (
        "$ py-spy dump (rank 0, 4 child processes, all the same)\ncollect (polars/lazyframe/frame.py:2407)\n"
        "_get_item (litdata/streaming/item_loader.py:776)\n_worker_loop (torch/utils/data/_utils/worker.py:300)\n"
    )
    seen = look(stacks, tmp_path, workers_txt=dump)
    assert seen.one("stack.workers_stuck").startswith("collect") and "worker" in seen.values("stack.where")
    assert seen.one("stack.library") == "polars"


def test_equal_stacks_of_several_workers(tmp_path: Path) -> None:
    worker = 'Process {p}: python\nThread {p} (active): "MainThread"\n    read (img.py:3)\n    _worker_loop (torch/utils/data/_utils/worker.py:300)\n'
    seen = look(stacks, tmp_path, dump_txt="".join(worker.format(p=p) for p in (1, 2, 3)))
    assert seen.one("stack.workers_stuck") == "read (img.py:3)"


def test_faulthandler(tmp_path: Path) -> None:
    log = (
        "step 3 loss 1.0\nFatal Python error: Segmentation fault\n\nCurrent thread 0x00007f5b (most recent call first):\n"
        '  File "/opt/lib/python3.11/site-packages/flash_attn/ops.py", line 12 in fwd\n  File "/proj/train.py", line 7 in main\n'
    )
    seen = look(stacks, tmp_path, train_log=log)
    assert seen.one("stack.library") == "flash_attn" and any("fwd" in v for v in seen.values("stack.frame"))


def test_gdb_and_lldb(tmp_path: Path) -> None:
    gdb = (
        "(gdb) bt\n#0  0x00007f12 in ncclGroupEndInternal () from /usr/lib/libnccl.so.2\n"
        "#1  0x00007f13 in c10d::ProcessGroupNCCL::allreduce (this=0x1, n=2) at ProcessGroupNCCL.cpp:3000\n"
        "#2  0x0000 in main () at x.c:1\n"
    )
    seen = look(stacks, tmp_path, bt_txt=gdb)
    assert seen.one("stack.where") == "collective" and seen.one("stack.library") == "libnccl"
    lldb = (
        "(lldb) bt all\n  * frame #0: 0x0001 libarrow.1601.dylib`malloc_init + 302\n    frame #1: 0x02 dyld`start + 5\n"
    )
    seen = look(stacks, tmp_path, bt_txt=lldb)
    assert (
        seen.one("stack.native_frame") == "malloc_init (libarrow.1601.dylib)"
        and seen.one("stack.library") == "libarrow"
    )


def test_py_spys_json(tmp_path: Path) -> None:
    threads = [{"pid": 1, "thread_id": 1, "frames": [
        {"name": "barrier", "filename": "torch/distributed/distributed_c10d.py", "line": 9, "short_filename": "x"},
        {"name": "main", "filename": "train.py", "line": 3, "short_filename": "train.py"}]}]  # fmt: skip
    seen = look(stacks, tmp_path, dump_json=json.dumps(threads))
    assert seen.one("stack.where") == "collective"


def test_cpp_frames_of_an_exception_are_no_dump(tmp_path: Path) -> None:
    log = (
        "[rank1]: RuntimeError: CUDA error\nframe #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 "
        "(0x754ee7c6c1b6 in /opt/lib/libc10.so)\nframe #1: c10d::f() + 0x220 (0x754e in /opt/lib/libtorch_cuda.so)\n"
    )
    assert look(stacks, tmp_path, train_log=log).result.outcome == "not_applicable"


def test_a_dump_deep_in_a_large_log(tmp_path: Path) -> None:
    filler = "".join(f"step {i} loss {1 / (i + 1):.6f} and some more words to fill the line\n" for i in range(30000))
    seen = look(stacks, tmp_path, train_log=filler + LOADER + filler)
    assert "dataloader" in seen.values("stack.where")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.text(max_size=60)
        | st.sampled_from([*COLLECTIVE.splitlines(), "#0  0x01 in f () from /a.so", "  @ 0x1 f()"]),
        max_size=25,
    )
)
def test_any_mixture_of_lines(texts: list[str]) -> None:
    lines = [Line(i + 1, 0, t.encode()) for i, t in enumerate(texts)]
    for stack in sd.stacks(lines):
        assert all(f.line in lines for f in stack.frames)
        where(stack)
    sd.json_stacks("\n".join(texts))


def test_equal_stacks_are_merged_over_ranks(tmp_path: Path) -> None:
    for rank in range(6):
        (tmp_path / f"rank{rank}.txt").write_text(
            f"$ py-spy dump --pid 1 (rank {rank})\n" + COLLECTIVE.format(pid=rank + 5)
        )
    seen = look(stacks, tmp_path, rank6_txt="$ py-spy dump --pid 9 (rank 6)\n" + LOADER)
    groups = seen.values("stack.group")
    assert (
        groups[0].startswith("6 ranks (0-5): collective: all_reduce") and "called from train (train.py:88)" in groups[0]
    )
    assert groups[1].startswith("1 rank (6): dataloader")
    assert seen.one("stack.odd_where") == "dataloader"


def test_ranks_in_different_collectives(tmp_path: Path) -> None:
    other = COLLECTIVE.replace("all_reduce", "barrier").replace("train (train.py:88)", "save (save.py:12)")
    for rank in (0, 1, 2):
        (tmp_path / f"rank{rank}.txt").write_text(
            f"$ py-spy dump --pid 1 (rank {rank})\n" + COLLECTIVE.format(pid=rank + 5)
        )
    seen = look(stacks, tmp_path, rank3_txt="$ py-spy dump --pid 9 (rank 3)\n" + other.format(pid=9))
    told = seen.one("stack.collectives_differ")
    assert told.startswith("0-2: all_reduce at train.py:88") and "3: barrier at save.py:12" in told
    assert seen.values("stack.rank_odd_one_out") == [3]


def test_all_ranks_in_the_same_collective_are_not_blamed(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"rank{rank}.txt").write_text(
            f"$ py-spy dump --pid 1 (rank {rank})\n" + COLLECTIVE.format(pid=rank + 5)
        )
    seen = look(stacks, tmp_path)
    assert not seen.values("stack.rank_odd_one_out") and not seen.values("stack.collectives_differ")


WAITS = (
    'Process {pid}: python main.py\n\nThread {pid} (active): "MainThread"\n'
    "    all_gather_into_tensor (torch/distributed/distributed_c10d.py:3825)\n{way}    main (main.py:88)\n"
)
TRAINS = "    forward (transformers/models/qwen2/modeling_qwen2.py:242)\n    _inner_training_loop (transformers/trainer.py:2674)\n"
EVALUATES = "    forward (transformers/models/qwen2/modeling_qwen2.py:242)\n    evaluation_loop (transformers/trainer.py:4406)\n"
EARLIER, LATER = (
    f"    {call} (torch/distributed/fsdp/_runtime_utils.py:{line})\n    train (recipes/loop.py:40)\n"
    for call, line in (("_prefetch_handle", 1229), ("_unshard", 307))
)


@pytest.mark.parametrize(
    ("most", "one", "told"),
    [
        (TRAINS, EVALUATES, "evaluation_loop (transformers/trainer.py:4406)"),
        (
            "    train_step (megatron/training/training.py:1420)\n    train (megatron/training/training.py:2510)\n",
            "    save_checkpoint (megatron/training/checkpointing.py:480)\n    train (megatron/training/training.py:2602)\n",
            "train (megatron/training/training.py:2602)",
        ),
        (TRAINS, TRAINS, None),
        (EARLIER, LATER, None),  # one rank gathers ahead
    ],
)
def test_ways_that_part_within_a_package(most: str, one: str, told: str | None, tmp_path: Path) -> None:
    for rank, way in enumerate((most, most, one, most)):
        (tmp_path / f"rank{rank}.txt").write_text(WAITS.format(pid=rank + 5, way=way))
    seen = look(stacks, tmp_path)
    assert seen.values("stack.rank_odd_one_out") == ([2] if told else [])
    assert told is None or f"2: all_gather_into_tensor through {told}" in str(seen.one("stack.collectives_differ"))


IDLE_WORKER = """Process {pid}: python train.py
Parent Process 9: python train.py

Thread {pid} (idle): "MainThread"
    _PollLikeSelector.select (selectors.py:415)
    wait (multiprocessing/connection.py:947)
    Queue.get (multiprocessing/queues.py:113)
    _worker_loop (torch/utils/data/_utils/worker.py:334)
    BaseProcess.run (multiprocessing/process.py:108)
    _MultiProcessingDataLoaderIter.__init__ (torch/utils/data/dataloader.py:1176)
    main (job.py:67)
"""


def test_workers_without_an_order_are_idle(tmp_path: Path) -> None:
    seen = look(
        stacks, tmp_path, dump_txt="".join(IDLE_WORKER.format(pid=p) for p in (11, 12)) + COLLECTIVE.format(pid=9)
    )
    assert not seen.values("stack.workers_stuck") and "dataloader" not in seen.values("stack.where")


def test_a_lock_in_the_runs_own_code(tmp_path: Path) -> None:
    (tmp_path / "data.py").write_text(
        "import threading\nclass Reader:\n    def get(self):\n        with self.lock:\n            return 1\n"
    )
    dump = (
        'Process 12: python\nThread 12 (idle): "MainThread"\n    get (data.py:4)\n    fetch (torch/utils/data/_utils/fetch.py:54)\n'
        "    _worker_loop (torch/utils/data/_utils/worker.py:374)\n"
    )
    seen = look(stacks, tmp_path, dump_txt=dump)
    assert "data.py:4 takes a lock: with self.lock:" in seen.result.text
    assert seen.one("stack.forked_lock") == "get (data.py:4)"


def test_pystack_prints_the_outermost_frame_first(tmp_path: Path) -> None:
    text = (
        "Traceback for thread 4242 (python) [] (most recent call last):\n"
        '    (Python) File "/proj/train.py", line 120, in <module>\n        main()\n'
        '    (Python) File "/proj/train.py", line 88, in main\n        dist.barrier()\n'
        '    (Python) File "/opt/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 9, in barrier\n'
    )
    seen = look(stacks, tmp_path, pystack_txt=text)
    assert seen.one("stack.where") == "collective" and "called from main (/proj/train.py:88)" in seen.one("stack.group")


def test_python_frames_of_gdb(tmp_path: Path) -> None:
    text = (
        "(gdb) py-bt\nTraceback (most recent call first):\n"
        '  File "/opt/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1291, in _try_get_data\n'
        '    data = self._data_queue.get(timeout=timeout)\n  File "/proj/train.py", line 80, in train\n    for batch in loader:\n'
    )
    seen = look(stacks, tmp_path, bt_txt=text)
    assert seen.one("stack.where") == "dataloader" and "called from train (/proj/train.py:80)" in seen.one(
        "stack.group"
    )


def test_probings_backtrace(tmp_path: Path) -> None:
    text = (
        "[C/C++] 0x7fd78bfc67a8, file: :0\n\t_RINvNtCsgwUMlHOZE4Y_9backtrace\n\n"
        "[C/C++] 0x7fd78caed545, file: ./time/../sysdeps/unix/sysv/linux/clock_nanosleep.c:48\n\t__GI___clock_nanosleep\n\n"
        "[Python] file: /proj/train.py:7 func: wait_for_file\n\tlocals:\n\t\tpassword = hunter2\n\n"
        "[C/C++] 0x7fd78ce98909, file: /tmp/Python-3.11.7/Python/pythonrun.c:1710\n\trun_eval_code_obj\n\n"
        "[Python] file: /proj/train.py:1 func: <module>\n\tlocals:\n"
    )
    seen = look(stacks, tmp_path, probing_txt=text)
    assert "wait_for_file (/proj/train.py:7)" in seen.values("stack.frame")
    assert not any("hunter2" in str(e.value) + e.text for e in seen.evidence)


def test_faulthandler_behind_rank_prefixes(tmp_path: Path) -> None:
    def dump(rank: int, call: str) -> str:
        head = f"[rank{rank}]:"
        return (
            f"{head}Timeout (0:05:00)!\n{head}Thread 0x00007f5b (most recent call first):\n"
            f'{head}  File "{call}\n{head}  File "/proj/train.py", line {7 + rank // 3} in main\n'
        )

    at = '/opt/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 9 in all_reduce'
    log = "".join(dump(r, at) for r in range(3)) + dump(3, '/proj/data.py", line 3 in read_forever')
    seen = look(stacks, tmp_path, train_log=log)
    assert seen.values("stack.rank_odd_one_out") == [3] and seen.one("stack.odd_where") == "user"


def test_a_captured_traceback_of_an_exception_is_no_dump(tmp_path: Path) -> None:
    log = (
        "terminate called after throwing an instance of 'c10::DistBackendError'\nC++ CapturedTraceback:\n"
        "#4 std::_Function_handler<...> from Logging.cpp:0\n#5 c10::Error::Error(c10::SourceLocation, int) from ??:0\n"
    )
    assert look(stacks, tmp_path, train_log=log).result.outcome == "not_applicable"


def test_json_frames_are_quoted_on_their_own_lines(tmp_path: Path) -> None:
    threads = [{"pid": 1, "thread_id": 1, "thread_name": "MainThread", "active": False, "frames": [
        {"name": "barrier", "filename": "torch/distributed/distributed_c10d.py", "line": 9, "short_filename": "x"},
        {"name": "main", "filename": "train.py", "line": 3, "short_filename": "train.py"}]}]  # fmt: skip
    seen = look(stacks, tmp_path, dump_json=json.dumps(threads, indent=2) + "\n" + json.dumps(threads, indent=2))
    assert seen.lines("stack.where")[0].strip() == '"name": "barrier",'


def test_a_main_thread_that_loads_by_itself_is_no_worker(tmp_path: Path) -> None:
    main = (
        '$ py-spy dump (rank 2)\nProcess 9: python\nThread 9 (idle): "MainThread"\n    read (img.py:3)\n'
        "    _MapDatasetFetcher.fetch (torch/utils/data/_utils/fetch.py:54)\n"
        "    _SingleProcessDataLoaderIter._next_data (torch/utils/data/dataloader.py:785)\n    main (train.py:6)\n"
    )
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.txt").write_text(
            f"$ py-spy dump --pid 1 (rank {rank})\n" + COLLECTIVE.format(pid=rank + 5)
        )
    seen = look(stacks, tmp_path, rank2_txt=main)
    assert seen.values("stack.rank_odd_one_out") == [2] and seen.one("stack.odd_where") == "dataloader"
