"""Out-of-memory messages of all generations, the phase their frames tell, and what is no failure."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.memory import oom
from traindoctor.agent.tools.memory.memory_tools import oom_report

from tests.tools.captured import look

GIB = 1 << 30
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 1; 23.65 GiB total capacity; 20.00 GiB already "
    "allocated; 1.00 GiB free; 22.00 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try "
    "setting max_split_size_mb to avoid fragmentation."
)
NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 3 has a total capacity of 79.15 GiB of "
    "which 10.00 MiB is free. Process 4711 has 30.00 GiB memory in use. Including non-PyTorch memory, this process has "
    "49.10 GiB memory in use. Of the allocated memory 40.00 GiB is allocated by PyTorch, and 8.00 GiB is reserved by "
    "PyTorch but unallocated. If reserved but unallocated memory is large try setting expandable_segments."
)


def test_numbers_of_both_generations() -> None:
    old, new = oom.parse(OLD), oom.parse(NEW)
    assert old and new
    assert old.bytes["asked"] == 1.5 * GIB and old.bytes["free"] == GIB and old.device == 1
    assert old.bytes["reserved"] == 22 * GIB and old.bytes["reserved_unallocated"] == 2 * GIB
    assert new.bytes["asked"] == 20 << 20 and new.bytes["free"] == 10 << 20
    assert new.bytes["reserved_unallocated"] == 8 * GIB and new.bytes["reserved"] == 48 * GIB
    assert new.other_pids == [4711] and new.bytes["other_process"] == 30 * GIB
    assert new.bytes["capacity"] == int(79.15 * GIB) and new.bytes["in_use"] == int(49.10 * GIB)


def test_what_nobody_accounts_for_belongs_to_another_process() -> None:
    old = "CUDA out of memory. Tried to allocate 64.00 MiB (GPU 0; 10.76 GiB total capacity; {} already allocated; 40.00 MiB free; {} reserved in total by PyTorch)"
    foreign, own = oom.parse(old.format("1.20 GiB", "1.40 GiB")), oom.parse(old.format("9.10 GiB", "9.40 GiB"))
    assert foreign and foreign.bytes["other_process"] == pytest.approx(9.32 * GIB, rel=0.01) and not foreign.other_pids
    assert own and "other_process" not in own.bytes
    new = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB "
        "of which 1.00 GiB is free. Including non-PyTorch memory, this process has {} memory in use. Of the allocated "
        "memory 30.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."
    )
    hidden, alone = oom.parse(new.format("33.00 GiB")), oom.parse(new.format("78.10 GiB"))
    assert hidden and hidden.bytes["other_process"] == pytest.approx(45.15 * GIB, rel=0.01)
    assert alone and "other_process" not in alone.bytes


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("cuda", "RuntimeError: CUDA error: out of memory"),
        ("cuda", "torch.cuda.OutOfMemoryError: CUDA out of memory."),
        ("cuda", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        ("cuda", "cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCStorage.cu:58"),
        ("cuda", "n1:10:11 [0] include/alloc.h:48 NCCL WARN Cuda failure 2 'out of memory'"),
        ("cuda", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 137438953472 bytes."),
        ("cuda", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"),
        ("cuda", "ValueError: The model's max seq len (4096) is larger than the maximum number of tokens that can be "
                 "stored in KV cache (3664). Try increasing `gpu_memory_utilization`"),
        ("cuda", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
        ("cuda", "[torch_memory_saver.cpp] CUresult error: 2 (out of memory)  file=csrc/utils.h func=cu_mem_create"),
        ("cuda", "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,000,000,000 bytes (allocated so far: 1 bytes)."),
        ("cuda", "RuntimeError: Triton Error [CUDA]: out of memory"),
        ("cuda", "RuntimeError: CUDA driver error: out of memory"),
        ("cuda", "torch.AcceleratorError: CUDA error: out of memory"),
        ("cuda", "Error: out of memory at line 380 in file /src/csrc/ops.cu"),
        ("cuda", "n1:1:1 [0] alloc.h:48 NCCL WARN Failed to CUDA calloc async 608 bytes"),
        ("cuda", "RuntimeError: MPS backend out of memory (MPS allocated: 17.94 GB, other allocations: 384.00 KB, max "
                 "allowed: 18.13 GB). Tried to allocate 500.00 MB on private pool."),
        ("cpu", "RuntimeError: CUDA error: cudaHostAlloc failed: out of memory"),
        ("cpu", "memory allocation of 1073741824 bytes failed"),
        ("hip", "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB."),
        ("cpu", "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: can't allocate memory: you "
                "tried to allocate 17179869184 bytes. Error code 12 (Cannot allocate memory)"),
        ("cpu", "terminate called after throwing an instance of 'std::bad_alloc'"),
        ("cpu", "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 12.3 GiB for an array with shape (1,)"),
        ("cpu", "MemoryError"),
        ("host", "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."),
        ("host", "[12.1] Memory cgroup out of memory: Killed process 4242 (python) total-vm:1kB, anon-rss:1kB"),
        ("host", "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0. Some of the step tasks have been OOM Killed."),
        ("host", "srun: error: nid001277: tasks 1-3: Out Of Memory"),
        ("shm", "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm)."),
        ("shm", "RuntimeError: unable to write to file </torch_123_456>"),
    ],
)  # fmt: skip
def test_every_wording(kind: str, text: str, tmp_path: Path) -> None:
    assert look(oom_report, tmp_path, train_log=f"start\n{text}\n").one("memory.oom") == kind


@pytest.mark.parametrize(
    "text",
    [
        "UserWarning: large batches may cause CUDA out of memory errors, lower the batch size",
        "|            CUDA OOMs: 0            |        cudaMalloc retries: 0         |",
        "INFO memory/num_ooms: 0",
        "If you run out of memory, reduce the micro batch size.",
        "To avoid out of memory errors we enable activation checkpointing",
        "Killing subprocess 12 with SIGTERM",
        "signal handler: will send SIGKILL to workers after 30 s",
        "step 12 loss 0.3 reserved 20.1 GiB",
    ],
)
def test_advice_and_counters_are_no_failure(text: str, tmp_path: Path) -> None:
    assert look(oom_report, tmp_path, train_log=f"step 1 loss 2\n{text}\nstep 2 loss 1\n").result.outcome == "clean"


TRACE = """step 41 loss 0.5
step 42 loss 0.4
[rank1]: Traceback (most recent call last):
[rank0]: still fine
[rank1]:   File "/proj/train.py", line 30, in main
[rank1]:     {user}
[rank1]:   File "/opt/lib/python3.11/site-packages/pkg/mod.py", line 5, in {function}
[rank1]:     {code}
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""


@pytest.mark.parametrize(
    ("phase", "user", "function", "code"),
    [
        ("optimizer_step", "optimizer.step()", "_init_group", 'state["exp_avg"] = torch.zeros_like(p)'),
        ("backward", "loss.backward()", "backward", "_engine_run_backward("),
        ("backward", "trainer.train()", "backward", "grad = weight.to(dtype).mul_(scale)"),
        ("logits", "loss = model(**batch).loss", "forward", "loss = F.cross_entropy(logits.float(), labels)"),
        ("eval", "trainer.evaluate()", "nested_concat", "return torch.cat((tensors, new_tensors), dim=0)"),
        ("model_load", "model = AutoModel.from_pretrained(path)", "_load", "param.data = value"),
        ("checkpoint_save", "trainer.save_checkpoint(out)", "_gather", "full = shard.full_tensor()"),
        ("wake_up", "llm.wake_up()", "create_and_map", "python_create_and_map(*handle)"),
        ("generate", "out = model.generate(**inputs)", "f", "x = y"),
        ("forward", "out = net(x)", "_call_impl", "return forward_call(*args, **kwargs)"),
    ],
)
def test_frames_tell_the_phase(phase: str, user: str, function: str, code: str, tmp_path: Path) -> None:
    seen = look(oom_report, tmp_path, train_log=TRACE.format(user=user, function=function, code=code))
    assert phase in seen.values("memory.phase")
    assert any(user in line for line in seen.lines("memory.frame"))
    assert seen.of("memory.oom")[0].step == 42 and seen.one("memory.after_many_steps") is True
    assert "rank 1 step 42" in seen.result.text and seen.one("memory.one_rank_only") is True


def test_an_argument_named_after_resuming_is_no_load(tmp_path: Path) -> None:
    call = "trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)"
    seen = look(oom_report, tmp_path, train_log=TRACE.format(user=call, function="forward", code="return layer(x)"))
    assert "checkpoint_load" not in seen.values("memory.phase") and "forward" in seen.values("memory.phase")


@pytest.mark.parametrize(
    ("said", "phase"),
    [
        ("Saving checkpoint-128", "checkpoint_save"),
        ("***** Running Evaluation *****", "eval"),
        ("step 128 loss 1.2", None),
        ("saving every 128 steps to out", None),
    ],
)
def test_without_a_traceback_what_was_announced_tells_the_phase(said: str, phase: str | None, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(f"step 127 loss 1.3\n{said}\n{NEW}\n")
    found = [e.value for e in look(oom_report, tmp_path).evidence if e.key == "memory.phase"]
    assert found == ([phase] if phase else [])


def test_another_rank_between_the_frames_is_passed_over(tmp_path: Path) -> None:
    seen = look(oom_report, tmp_path, train_log=TRACE.format(user="loss.backward()", function="g", code="h()"))
    assert not any("still fine" in line for line in seen.lines("memory.frame"))


def test_first_step_only_where_the_start_is_in_view(tmp_path: Path) -> None:
    first = 'Traceback (most recent call last):\n  File "t.py", line 1, in f\n    loss.backward()\n'
    seen = look(oom_report, tmp_path, train_log=first + "torch.OutOfMemoryError: CUDA out of memory.\n")
    assert seen.one("memory.at_first_step") is True


def test_planned_step_counts_are_no_progress() -> None:
    assert oom.step_of("Total optimization steps = 8000") is None
    assert oom.step_of(" 12%|#2   | 120/1000 [00:10<01:00, 9.9it/s]") == 120
    assert oom.step_of("{'loss': 0.1, 'global_step': 77}") == 77


def test_host_full_and_killed(tmp_path: Path) -> None:
    log = (
        "[INFO] MA 0.13 GB         Max_MA 0.13 GB         CA 0.63 GB         Max_CA 1 GB\n"
        "[INFO] CPU Virtual Memory:  used = 60.7 GB, percent = 96.4%\n"
        "['python', 'train.py'] exits with return code = -9\n"
    )
    seen = look(oom_report, tmp_path, train_log=log)
    assert seen.one("memory.oom") == "host" and seen.one("memory.host_percent") == 96.4
    assert seen.one("memory.host_low_gpu") == 0.13 and seen.one("memory.killed") == "SIGKILL"


def test_a_bare_kill_is_not_an_oom(tmp_path: Path) -> None:
    seen = look(oom_report, tmp_path, train_log="step 5 loss 1.0\nKilled\n")
    assert seen.values("memory.killed") and not seen.values("memory.oom")


def test_rays_monitor_gives_the_percentage(tmp_path: Path) -> None:
    text = (
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
        "Memory on the node (IP: 10.0.0.7, ID: ab) where the task (actor ID: cd, name=W.__init__, pid=43, memory "
        "used=2.22GB) was running was 59.49GB / 62.58GB (0.950744), which exceeds the memory usage threshold of 0.95.\n"
    )
    assert look(oom_report, tmp_path, train_log=text).one("memory.host_percent") == 95.1


CONTAINER = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 79.25 GiB of "
    "which 563.06 MiB is free. Process 79636 has 76.69 GiB memory in use. Process 811 has 2.00 GiB memory in use. Of the "
    "allocated memory 70.49 GiB is allocated by PyTorch, and 3.56 GiB is reserved by PyTorch but unallocated."
)


def test_in_a_container_our_own_process_is_listed_like_another() -> None:
    found = oom.parse(CONTAINER)
    assert found and found.bytes["in_use"] == int(76.69 * GIB)
    assert found.other_pids == [811] and found.bytes["other_process"] == 2 * GIB
    alone = oom.parse(CONTAINER.replace("Process 811 has 2.00 GiB memory in use. ", ""))
    assert alone and "other_process" not in alone.bytes and not alone.other_pids
    full = oom.parse(CONTAINER.replace("70.49 GiB", "10.49 GiB"))
    assert full and full.bytes["other_process"] == int(76.69 * GIB) + 2 * GIB


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ({"asked": 16.0, "free": 3.73}, "ValueError: (16.00 GiB KV cache is needed, which is larger than the available KV "
                                        "cache memory (3.73 GiB)."),
        ({"asked": 2.0, "limit": 40.0}, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. 40.00 GiB "
                                        "allowed; Of the allocated memory 39.00 GiB is allocated by PyTorch"),
        ({"in_use": 20.5, "capacity": 15.5}, "JaxRuntimeError: RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. "
                                             "Used 20.50G of 15.50G hbm."),
        ({"allocated": 57.2, "capacity": 60.97}, "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 "
                                                 "GiB total capacity; 57.20 GiB already allocated; 1.01 GiB free)"),
    ],
)  # fmt: skip
def test_numbers_of_further_wordings(numbers: dict[str, float], text: str) -> None:
    found = oom.parse(text)
    assert found
    for name, value in numbers.items():
        assert found.bytes[name] == pytest.approx(value * GIB, abs=GIB * 0.01)


def test_pinned_memory_is_the_hosts(tmp_path: Path) -> None:
    text = "RuntimeError: CUDA error: cudaHostAlloc failed: out of memory\n"
    seen = look(oom_report, tmp_path, train_log=text)
    assert seen.one("memory.pinned") is True and seen.one("memory.oom") == "cpu"


def test_small_request_on_a_full_card_and_another_process(tmp_path: Path) -> None:
    seen = look(oom_report, tmp_path, train_log=NEW + "\n")
    assert seen.one("memory.small_request_nearly_full") is True
    assert seen.one("memory.other_process") == "pid 4711"


def test_packed_logs_are_read_the_same(tmp_path: Path) -> None:
    text = TRACE.format(user="loss.backward()", function="backward", code="_engine_run_backward(")
    (tmp_path / "train.log.gz").write_bytes(gzip.compress(text.encode()))
    seen = look(oom_report, tmp_path)
    assert "backward" in seen.values("memory.phase") and seen.of("memory.oom")[0].step == 42


def test_a_thousand_ranks_stay_a_few_lines(tmp_path: Path) -> None:
    log = "".join(f"[rank{i}]: torch.OutOfMemoryError: CUDA out of memory.\n" for i in range(1024))
    seen = look(oom_report, tmp_path, train_log=log)
    assert "on 1024 rank(s)" in seen.result.summary and len(seen.evidence) < 20


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300))
def test_any_text_parses_or_not(text: str) -> None:
    for prefix in ("", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate ", "; of which "):
        found = oom.parse(prefix + text)
        assert found is None or all(v >= 0 for v in found.bytes.values())
    oom.step_of(text)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["Traceback (most recent call last):", '  File "a.py", line 3, in f', "    x()", "",
                                 "----> 3 y()", "a.py in g(x)", "-" * 40, "torch.OutOfMemoryError: "]), max_size=30))  # fmt: skip
def test_frames_of_any_order_point_into_the_text(lines: list[str]) -> None:
    for frame in oom.frames_above(lines, len(lines) - 1, [True] * len(lines)):
        assert 0 <= frame.index < len(lines)


def test_frames_of_an_earlier_failure_are_not_taken(tmp_path: Path) -> None:
    log = (
        'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    loss.backward()\nValueError: bad sample\n'
        "retrying\nRuntimeError: CUDA error: out of memory\n"
    )
    assert not look(oom_report, tmp_path, train_log=log).values("memory.phase")


@pytest.mark.parametrize(
    ("phase", "text"),
    [
        ("checkpoint_save", "UserWarning: Failed to clone() tensor with name lm_head.weight. This may mean that this state_dict "
                            "entry could point to invalid memory. Error: CUDA out of memory. Tried to allocate 502.00 MiB (GPU 1; "
                            "39.59 GiB total capacity; 35.54 GiB already allocated; 276.19 MiB free; 37.22 GiB reserved in total)"),
        ("wake_up", "CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62"),
        ("kv_cache", "ValueError: No available memory for the cache blocks."),
    ],
)  # fmt: skip
def test_messages_that_tell_the_phase_by_themselves(phase: str, text: str, tmp_path: Path) -> None:
    assert phase in look(oom_report, tmp_path, train_log=f"start\n{text}\n").values("memory.phase")


def test_an_engine_that_sleeps_and_still_holds_memory(tmp_path: Path) -> None:
    log = (
        "INFO 04-23 16:21:37 [worker.py:145] Sleep mode freed 19.51 GiB memory, 26.31 GiB memory is still in use.\n"
        "torch.OutOfMemoryError: CUDA out of memory.\n"
    )
    assert look(oom_report, tmp_path, train_log=log).one("memory.engine_still_holds_bytes") == int(26.31 * GIB)


def test_carets_under_the_code_are_no_code(tmp_path: Path) -> None:
    log = (
        "[rank7]: Traceback (most recent call last):\n"
        '[rank7]:   File "/fsx/train/fsdp_utils.py", line 109, in fsdp_save_ckpt\n'
        "[rank7]:     ema_state_dict = ema_model.state_dict()\n[rank7]:                      ^^^^^^^^^^^^^^^^^^^^^^\n"
        '[rank7]:   File "/opt/lib/python3.11/site-packages/torch/distributed/fsdp/_state_dict_utils.py", line 782, in hook\n'
        "[rank7]:     fn[state._state_dict_type](\n[rank7]: torch.OutOfMemoryError: CUDA out of memory.\n"
    )
    seen = look(oom_report, tmp_path, train_log=log)
    assert "checkpoint_save" in seen.values("memory.phase")
    assert any("ema_model.state_dict()" in line for line in seen.lines("memory.frame"))


@pytest.mark.parametrize(
    "text",
    [
        "  exitcode  : -9 (pid: 4242)",
        "traceback : Signal 9 (SIGKILL) received by PID 4242",
        "subprocess.CalledProcessError: Command '['python']' died with <Signals.SIGKILL: 9>.",
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL",
        "./run.sh: line 5: 12345 Killed                  python train.py",
        "    Exit Code:    137",
        "RuntimeError: DataLoader worker (pid 4161) is killed by signal: Killed.",
        "zsh: killed     python train.py",
    ],
)
def test_deaths_by_sigkill(text: str, tmp_path: Path) -> None:
    seen = look(oom_report, tmp_path, train_log=f"step 5 loss 1\n{text}\n")
    assert seen.values("memory.killed") == ["SIGKILL"] and not seen.values("memory.oom")


@pytest.mark.parametrize(
    "text",
    [
        "Unable to shutdown process 12 via 15, forcefully exiting via SIGKILL",
        "Sending process 2893 closing signal SIGTERM",
        "will send SIGKILL in 30 s",
        "Exit Code:    1",
        "killed workers are restarted by the launcher",
    ],
)
def test_a_launcher_that_cleans_up_is_no_death(text: str, tmp_path: Path) -> None:
    assert not look(oom_report, tmp_path, train_log=f"step 5 loss 1\n{text}\n").values("memory.killed")
