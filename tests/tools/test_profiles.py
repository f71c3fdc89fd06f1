"""Where the time of a step goes: real traces of torch.profiler, made-up GPU traces with known shares, text tables."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.profiles.trace_events import trace_of
from traindoctor.agent.reading.profiles.trace_shares import shares
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.time.profiles_tools import training_profile

from tests.tools.captured import look

SCRIPT = """
import sys, time, torch
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return 80
    def __getitem__(self, i):
        if sys.argv[1] == "loader":
            time.sleep(0.015)
        return torch.randn(64)

model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimizer = torch.optim.AdamW(model.parameters())

# data that are there at once where the loop itself is to be the slow part: a hiccup of the machine is no loader's
batches = torch.randn(10, 8, 64) if sys.argv[1] == "item" else DataLoader(Samples(), batch_size=8)

def report(loss):
    for _ in range(20):
        loss.item()

with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=5),
             on_trace_ready=tensorboard_trace_handler(sys.argv[2]), with_stack=sys.argv[1] == "item") as p:
    for batch in batches:
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if sys.argv[1] == "item":
            report(loss)
        p.step()
"""


def traced(folder: Path, mode: str) -> Path:
    """A folder with the traces of a real run of `SCRIPT`."""
    (folder / "script.py").write_text(SCRIPT)
    out = folder / "run"
    out.mkdir()
    subprocess.run(
        [sys.executable, "script.py", mode, str(out)], cwd=folder, check=True, capture_output=True, timeout=120
    )
    return out


def test_a_real_trace_of_a_slow_loader(tmp_path: Path) -> None:
    seen = look(training_profile, traced(tmp_path, "loader"))
    assert seen.one("profile.bound") == "data" and seen.one("profile.data_fraction") > 0.5
    assert re.search(r", step 0\.(?:0[2-9]|[1-9])", seen.result.summary) and seen.one("profile.items_per_step") == 0
    assert "held up by data" in seen.result.summary


def test_a_real_trace_of_values_read_in_the_loop(tmp_path: Path) -> None:
    seen = look(training_profile, traced(tmp_path, "item"))
    assert seen.one("profile.items_per_step") == 20, "AdamW's own reads of its step are not the user's"
    assert "report" in seen.one("profile.item_site") and "script.py" in seen.one("profile.item_site")
    assert seen.one("profile.bound") == "cpu"


def gpu_trace(steps: int = 4, items: int = 0, gap: float = 0.0) -> dict:
    """Steps of 1000 us: 600 of kernels, 300 of nccl of which 100 lie under a kernel, `gap` of it left out."""
    events: list[dict] = [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}}]

    def add(cat: str, name: str, ts: float, dur: float, tid: int = 1, **args: object) -> None:
        events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args})

    for n in range(steps):
        t = n * 1000.0
        add("user_annotation", f"ProfilerStep#{n}", t, 1000)
        add("cpu_op", "aten::mm", t, 50)
        add("cuda_runtime", "cudaLaunchKernel", t + 10, 5)
        add("kernel", "sm90_gemm", t, 600 - gap, 7)
        add("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)", t + 500, 300, 9)
        add("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", t + 900, 50, 7, bytes=4096)
        add("cuda_runtime", "cudaStreamSynchronize", t + 900, 60)
        for i in range(items):
            add("cpu_op", "aten::_local_scalar_dense", t + 100 + i, 1)
    return {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
        "traceEvents": events,
    }


def test_exposed_communication_and_idle_time(tmp_path: Path) -> None:
    seen = look(training_profile, tmp_path, trace_json=json.dumps(gpu_trace()))
    assert seen.one("profile.communication_fraction") == pytest.approx(0.3, abs=0.01)
    assert seen.one("profile.communication_exposed_fraction") == pytest.approx(0.2, abs=0.01)
    assert seen.one("profile.gpu_busy_fraction") == pytest.approx(0.85, abs=0.01)
    assert seen.one("profile.gpu_idle_fraction") == pytest.approx(0.15, abs=0.01)
    assert (
        f"{4 * 4096} bytes copied from memory that is not pinned" in seen.result.text
        and seen.one("profile.syncs_per_step") == 1
    )
    assert seen.one("profile.bound") == "gpu" and seen.evidence[0].rank == 3
    assert "kernel sm90_gemm" in seen.result.text


def test_a_gpu_that_waits_for_reads(tmp_path: Path) -> None:
    seen = look(training_profile, tmp_path, trace_json=json.dumps(gpu_trace(items=30, gap=500)))
    assert seen.one("profile.bound") == "sync" and seen.one("profile.gpu_idle_fraction") > 0.3


def test_packed_compact_and_truncated(tmp_path: Path) -> None:
    whole = json.dumps(gpu_trace(200), separators=(",", ":"))
    (tmp_path / "rank3.pt.trace.json.gz").write_bytes(gzip.compress(whole.encode()))
    seen = look(training_profile, tmp_path)
    assert seen.one("profile.gpu_busy_fraction") == pytest.approx(0.85, abs=0.01)
    (tmp_path / "rank3.pt.trace.json.gz").unlink()
    cut = look(training_profile, tmp_path, trace_json=whole[: len(whole) // 2])
    assert cut.result.outcome == "finding" and "not read to the end" in cut.result.summary
    assert cut.one("profile.gpu_busy_fraction") == pytest.approx(0.85, abs=0.02)


def test_a_broken_trace_is_not_clean(tmp_path: Path) -> None:
    assert look(training_profile, tmp_path, x_json='{"traceEvents": [{"ph": "X", "na').result.outcome == "failed"
    assert training_profile(Workspace([tmp_path / "x.json"])).outcome == "failed"


def test_a_large_trace_in_bounded_memory() -> None:
    import tracemalloc

    one = json.dumps(gpu_trace(50)["traceEvents"])[1:-1].encode()

    def blocks():
        yield b'{"traceEvents": ['
        for _ in range(400):
            yield one + b","
        yield b"{}]}"

    tracemalloc.start()
    trace = trace_of(blocks())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert trace.events == 400 * 50 * 8 - 400 * 50 and trace.whole and peak < 40 << 20
    assert shares(trace) is not None


def test_tables_of_torch_lightning_and_timers(tmp_path: Path) -> None:
    torch_table = (
        "---------------  ------------  ------------  ------------  ------------  ------------  ------------\n"
        "           Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls\n"
        "---------------  ------------  ------------  ------------  ------------  ------------  ------------\n"
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter._...        71.20%        9.301s        71.33%        9.4s     1.1ms        10\n"
        "Optimizer.step#AdamW.step         2.0%     11.788ms        4.50%      11.788ms     736.724us            16\n"
    )
    seen = look(training_profile, tmp_path, profile_txt=torch_table)
    assert not seen.values("profile.sync_call_share")
    assert seen.one("profile.data_fraction") == 0.7133 and seen.told("profile.optimizer_fraction") == ["0.045"]
    lightning = (
        "|  Action                                   |  Mean duration (s)\t|  Num calls      |  Total time (s) |  Percentage %   |\n"
        "|  Total                                    |  -                |  2000           |  20.1           |  100 %          |\n"
        "|  [_TrainingEpochLoop].train_dataloader_next|  0.1             |  100            |  10.0           |  49.8           |\n"
    )
    (tmp_path / "profile.txt").unlink()
    seen = look(training_profile, tmp_path, lightning_log=lightning)
    assert seen.one("profile.data_fraction") == 0.498


def test_a_table_whose_first_row_is_a_wait(tmp_path: Path) -> None:
    table = (
        "           Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls\n"
        "---------------  ------------  ------------  ------------  ------------  ------------  ------------\n"
        "cudaStreamSynchronize        61.20%        4.812s        61.20%        4.812s      48.120ms           100\n"
        "aten::mm         4.11%     323.155ms         6.20%     487.489ms     243.745us          2000\n"
    )
    assert look(training_profile, tmp_path, profile_txt=table).one("profile.sync_call_share") == 0.612


def test_timers_of_deepspeed_and_megatron(tmp_path: Path) -> None:
    deepspeed = (
        "[2024-01-01 10:00:00,001] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | fwd_microstep: 100.0 | "
        "bwd_microstep: 300.0 | bwd_inner_microstep: 120.0 | bwd_allreduce_microstep: 180.0 | step_microstep: 100.0\n"
    )
    seen = look(training_profile, tmp_path, ds_log=deepspeed)
    assert seen.one("profile.communication_fraction") == 0.36 and seen.told("profile.optimizer_fraction") == ["0.2"]
    (tmp_path / "ds.log").unlink()
    megatron = (
        " iteration  10/ 100 | elapsed time per iteration (ms): 1000.0 | learning rate: 1.0E-04 |\n"
        "(min, max) time across ranks (ms):\n"
        "    forward-backward ...............................: (500.11, 510.00)\n"
        "    batch-generator ................................: (301.20, 400.00)\n"
        "    optimizer ......................................: (20.00, 30.00)\n"
    )
    seen = look(training_profile, tmp_path, mega_log=megatron)
    assert seen.one("profile.data_fraction") == 0.4 and seen.told("profile.optimizer_fraction") == ["0.03"]


def test_nothing_recorded(tmp_path: Path) -> None:
    assert look(training_profile, tmp_path, train_log="step 1 loss 2.0\n").result.outcome == "not_applicable"


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 2000))
def test_any_bytes(noise: bytes, at: int) -> None:
    good = json.dumps(gpu_trace(2)).encode()
    at = min(at, len(good))
    shares(trace_of([good[:at], noise, good[at:]]))


def test_more_spans_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares then refer to the steps of which everything was kept."""
    from traindoctor.agent.reading.profiles import trace_events

    monkeypatch.setattr(trace_events, "MOST", 150)
    trace = trace_of([json.dumps(gpu_trace(400, items=3)).encode()])
    found = shares(trace)
    assert not trace.complete and found
    assert found.fraction["communication"] == pytest.approx(0.3, abs=0.02)
    assert found.per_step["items"] == pytest.approx(3, abs=0.1)


def test_nsys_stats_as_csv_and_as_text(tmp_path: Path) -> None:
    rows = (
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
        '55.1,1000,10,100.0,100.0,1,2,0.1,"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"\n'
        "44.9,800,10,80.0,80.0,1,2,0.1,sm90_xmma_gemm\n"
    )
    seen = look(training_profile, tmp_path, kern_csv=rows)
    assert seen.one("profile.nccl_kernel_share") == 0.551
    (tmp_path / "kern.csv").unlink()
    text = (
        " Time (%)  Total Time (ns)  Num Calls  Avg (ns)   Name\n --------  ---------------  ---------  --------   ----\n"
        "     81.5        900000000        100   9000000   cudaStreamSynchronize\n     10.0        100000000        900    100000   cudaLaunchKernel\n"
    )
    assert look(training_profile, tmp_path, api_txt=text).one("profile.sync_call_share") == 0.815


def test_nsight_systems_database(tmp_path: Path) -> None:
    import sqlite3

    base = sqlite3.connect(tmp_path / "report.sqlite")
    base.execute("create table StringIds (id integer, value text)")
    base.execute(
        "create table CUPTI_ACTIVITY_KIND_KERNEL (start integer, end integer, deviceId integer, shortName integer)"
    )
    base.execute(
        "create table CUPTI_ACTIVITY_KIND_MEMCPY (start integer, end integer, bytes integer, copyKind integer, srcKind integer)"
    )
    base.execute(
        "create table CUPTI_ACTIVITY_KIND_RUNTIME (start integer, end integer, globalTid integer, nameId integer)"
    )
    base.executemany(
        "insert into StringIds values (?, ?)",
        [(1, "gemm"), (2, "ncclDevKernel_AllReduce"), (3, "cudaStreamSynchronize_v3020")],
    )
    for n in range(10):
        t = n * 1_000_000
        base.execute("insert into CUPTI_ACTIVITY_KIND_KERNEL values (?, ?, 0, 1)", (t, t + 300_000))
        base.execute("insert into CUPTI_ACTIVITY_KIND_KERNEL values (?, ?, 0, 2)", (t + 200_000, t + 500_000))
        base.execute("insert into CUPTI_ACTIVITY_KIND_MEMCPY values (?, ?, 64, 1, 0)", (t + 900_000, t + 1_000_000))
        base.execute("insert into CUPTI_ACTIVITY_KIND_RUNTIME values (?, ?, 7, 3)", (t + 900_000, t + 950_000))
    base.commit()
    base.close()
    seen = look(training_profile, tmp_path)
    assert seen.one("profile.communication_exposed_fraction") == pytest.approx(0.2, abs=0.01)
    assert seen.one("profile.gpu_idle_fraction") == pytest.approx(0.4, abs=0.01)
    assert "640 bytes copied from memory that is not pinned" in seen.result.text
    (tmp_path / "report.sqlite").write_bytes((tmp_path / "report.sqlite").read_bytes()[:4096] + b"\xff" * 8000)
    assert look(training_profile, tmp_path).result.outcome in ("failed", "finding")


def test_a_report_that_was_not_exported(tmp_path: Path) -> None:
    seen = look(training_profile, tmp_path, **{"report_nsys-rep": b"\x00\x01\x02NSYS\x00" * 50})
    assert seen.result.outcome == "failed" and "nsys export --type sqlite" in seen.result.summary


def test_timers_as_deepspeed_prints_them_today(tmp_path: Path) -> None:
    """Both forms of each timer, recorded from a run of version 0.19."""
    log = (
        "[Rank 0] time (ms) | optimizer_allgather: 0.03 | optimizer_gradients: 0.12 | optimizer_step: 23.11\n"
        "[Rank 0] time (ms) | fwd_microstep: 11.47 | bwd_microstep: 11.71 | bwd_inner_microstep: 0.25 | "
        "bwd_allreduce_microstep: 11.43 | step_microstep: 24.29\n"
        "[Rank 0] time (ms) | fwd: 11.47 | bwd: 11.71 | bwd_inner: 0.25 | bwd_allreduce: 11.43 | step: 24.29\n"
    )
    seen = look(training_profile, tmp_path, ds_log=log)
    assert seen.one("profile.communication_fraction") == 0.2408 and seen.told("profile.optimizer_fraction") == [
        "0.5117"
    ]
    assert seen.told("profile.compute_fraction") == ["0.2469"]


def test_lightnings_profiler_as_it_is_written_today(tmp_path: Path) -> None:
    """Recorded from a run of version 2.6."""
    report = (
        "FIT Profiler Report\n\n"
        "|  Action                                       \t|  Mean duration (s)\t|  Num calls      \t|  Total time (s) \t|  Percentage %   \t|\n"
        "|  Total                                        \t|  -              \t|  501            \t|  0.90231        \t|  100 %          \t|\n"
        "|  [_TrainingEpochLoop].train_dataloader_next   \t|  0.042833       \t|  20             \t|  0.85666        \t|  94.94          \t|\n"
        "|  [LightningModule]M.optimizer_step            \t|  0.00074439     \t|  20             \t|  0.014888       \t|  1.65           \t|\n"
    )
    seen = look(training_profile, tmp_path, perf_txt=report)
    assert seen.one("profile.data_fraction") == 0.9494 and seen.told("profile.optimizer_fraction") == ["0.0165"]


def test_a_flight_recorders_dump_is_no_trace(tmp_path: Path) -> None:
    dump = {"version": "2.9", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}, "entries": []}
    assert look(training_profile, tmp_path, nccl_trace_rank_0=json.dumps(dump)).result.outcome == "not_applicable"
    (tmp_path / "nccl_trace_rank.0").unlink()
    assert look(training_profile, tmp_path, dump_json=json.dumps(dump)).result.outcome == "not_applicable"


def test_recorded_samples_of_py_spy(tmp_path: Path) -> None:
    """As `py-spy record -f raw` wrote them for a loop without workers; the threads of a pool are left out."""
    loading = (
        "<module> (train.py:6);_BaseDataLoaderIter.__next__ (torch/utils/data/dataloader.py:725);"
        "_SingleProcessDataLoaderIter._next_data (torch/utils/data/dataloader.py:785);"
        "_MapDatasetFetcher.fetch (torch/utils/data/_utils/fetch.py:54);Slow.__getitem__ (data.py:5) 149\n"
    )
    other = "<module> (train.py:7);step (train.py:3) 51\nThread._bootstrap (threading.py:1002);Thread.run (threading.py:982) 900\n"
    seen = look(training_profile, tmp_path, out_raw=loading + other)
    assert re.findall(r"([\d.]+)%", seen.result.text) == ["74.5", "25.5"]
    assert seen.one("profile.data_fraction") == 0.745
    assert "often in Slow.__getitem__ (data.py:5)" in seen.result.text


def test_another_database_is_no_profile(tmp_path: Path) -> None:
    import sqlite3

    base = sqlite3.connect(tmp_path / "study.sqlite")
    base.execute("create table trials (id integer)")
    base.commit()
    base.close()
    (tmp_path / "empty.sqlite").write_bytes(b"")
    (tmp_path / "train.log").write_text("step 1 loss 2\n")
    assert training_profile(Workspace([tmp_path])).outcome == "not_applicable"
