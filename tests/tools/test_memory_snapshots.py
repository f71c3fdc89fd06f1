"""Memory snapshots in torch's structure: totals as torch counts them, leaks, fragments, failed requests, bad files."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import re
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.errors import ParseError
from traindoctor.agent.reading.memory.memory_snapshot import of_mapping
from traindoctor.agent.reading.run.files import RunFile
from traindoctor.agent.tools.memory.memory_snapshots import _gib, memory_snapshot

from tests.tools.captured import Seen, look

MIB = 1 << 20
SEGMENT = 20 * MIB
FILE = RunFile("s.pickle", Path("s.pickle"), "other", 1)


def frames(place: str, function: str = "forward") -> list[dict[str, Any]]:
    """Python frames of an allocation, innermost first, below the native ones."""
    path, line = place.split(":")
    return [
        {"name": "c10::alloc", "filename": "CUDACachingAllocator.cpp", "line": 12},
        {"name": "linear", "filename": "/opt/lib/python3.11/site-packages/torch/nn/functional.py", "line": 9},
        {"name": function, "filename": f"/proj/{path}", "line": int(line)},
        {"name": "main", "filename": "/proj/train.py", "line": 99},
    ]


class Allocator:
    """A first-fit allocator that writes snapshots with the fields of torch 2.13."""

    def __init__(self) -> None:
        self.segments: dict[int, list[dict[str, Any]]] = {}
        self.trace: list[dict[str, Any]] = []

    def note(self, action: str, place: str, **more: Any) -> None:
        self.trace.append({"action": action, "stream": 0, "time_us": len(self.trace), "compile_context": "N/A",
                           "user_metadata": "", "frames": frames(place), **more})  # fmt: skip

    def take(self, size: int, place: str) -> int:
        rounded = -(-size // 512) * 512
        for blocks in self.segments.values():
            for i, block in enumerate(blocks):
                if block["state"] == "inactive" and block["size"] >= rounded:
                    rest = block["size"] - rounded
                    blocks[i : i + 1] = [self.block(block["address"], rounded, "active_allocated", size, place)]
                    if rest:
                        blocks.insert(i + 1, self.block(block["address"] + rounded, rest, "inactive", 0, place))
                    self.note("alloc", place, addr=block["address"], size=rounded)
                    return block["address"]
        base = 0x7F0000000000 + len(self.segments) * (1 << 32)
        total = max(SEGMENT, rounded)
        self.segments[base] = [self.block(base, total, "inactive", 0, place)]
        self.note("segment_alloc", place, addr=base, size=total)
        return self.take(size, place)

    @staticmethod
    def block(address: int, size: int, state: str, requested: int, place: str) -> dict[str, Any]:
        return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames(place)}

    def give(self, address: int, place: str = "train.py:50") -> None:
        for blocks in self.segments.values():
            for i, block in enumerate(blocks):
                if block["address"] == address:
                    self.note("free_requested", place, addr=address, size=block["size"])
                    self.note("free_completed", place, addr=address, size=block["size"])
                    block.update(state="inactive", requested_size=0)
                    if i + 1 < len(blocks) and blocks[i + 1]["state"] == "inactive":
                        block["size"] += blocks.pop(i + 1)["size"]
                    if i and blocks[i - 1]["state"] == "inactive":
                        blocks[i - 1]["size"] += blocks.pop(i)["size"]
                    return

    def fail(self, size: int, place: str) -> None:
        self.note("oom", place, size=size, device_free=3 * MIB)

    def snapshot(self) -> dict[str, Any]:
        made = []
        for base, blocks in self.segments.items():
            active = sum(b["size"] for b in blocks if b["state"] == "active_allocated")
            made.append({"device": 0, "address": base, "total_size": sum(b["size"] for b in blocks), "stream": 0,
                         "allocated_size": active, "active_size": active, "requested_size": active,
                         "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
                         "frames": [], "blocks": blocks})  # fmt: skip
        return {"segments": made, "device_traces": [self.trace, []], "external_annotations": [],
                "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False}}  # fmt: skip


def training(steps: int, leak: int = 0) -> Allocator:
    """Weights, then steps of forward and backward; `leak` bytes stay after each."""
    made = Allocator()
    for _ in range(4):
        made.take(3 * MIB, "model.py:10")
    for _ in range(steps):
        held = [made.take(2 * MIB, f"model.py:{20 + i % 3}") for i in range(8)]
        if leak:
            made.take(leak, "metrics.py:7")
        for address in reversed(held):
            made.give(address)
    return made


def asked(folder: Path, held: object, name: str = "snapshot_rank0.pickle", protocol: int = 4) -> Seen:
    (folder / name).write_bytes(pickle.dumps(held, protocol=protocol))
    return look(memory_snapshot, folder)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_totals_are_those_of_torch(protocol: int, tmp_path: Path) -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    made = training(3, leak=MIB)
    made.take(700_001, "model.py:31")
    shown = viz.segsum(made.snapshot())
    device = of_mapping(made.snapshot(), FILE).devices[0]
    told = dict(re.findall(r"(total_reserved|total_allocated): (\S+)", shown))
    assert told == {
        "total_reserved": viz._format_size(device.reserved),
        "total_allocated": viz._format_size(device.requested),
    }
    lost = device.reserved - device.requested
    assert f"total_free: {viz._format_size(lost)} (" in shown
    seen = asked(tmp_path, made.snapshot(), protocol=protocol)
    assert device.allocated == sum(s["allocated_size"] for s in made.snapshot()["segments"])
    assert f"reserved {_gib(device.reserved)}, allocated {_gib(device.allocated)} " in seen.result.text


def test_the_trace_ends_where_torch_says(tmp_path: Path) -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    made = training(4)
    with redirect_stdout(io.StringIO()):
        shown = viz.trace(made.snapshot())
    trace = of_mapping(made.snapshot(), FILE).devices[0].trace
    assert trace is not None and trace.entries == int(re.search(r"(\d+) entries", shown)[1])  # pyright: ignore
    assert trace.allocations == len(re.findall(r" = \S+\[", shown))
    assert trace.live == 12 * MIB and trace.peak == 28 * MIB


def test_a_real_profile_as_torch_makes_a_snapshot_of_it(tmp_path: Path) -> None:
    torch, viz = pytest.importorskip("torch"), pytest.importorskip("torch.cuda._memory_viz")
    layer = torch.nn.Linear(256, 256)
    with torch.profiler.profile(profile_memory=True, with_stack=True, record_shapes=True) as profile:
        for _ in range(3):
            layer(torch.randn(64, 256)).sum().backward()
    held = viz._profile_to_snapshot(profile)
    devices = of_mapping(held, FILE).devices
    assert sum(d.reserved for d in devices) == sum(s["total_size"] for s in held["segments"])
    traces = [d.trace for d in devices if d.trace]
    assert traces and sum(t.entries for t in traces) == sum(len(t) for t in held["device_traces"])


def test_memory_that_survives_each_step_is_told_by_its_line(tmp_path: Path) -> None:
    seen = asked(tmp_path, training(12, leak=2 * MIB).snapshot())
    assert seen.result.outcome == "finding"
    assert [e.text.partition(": ")[0] for e in seen.of("memory.growth_by_frame")] == ["proj/metrics.py:7 in forward"]
    assert "2.0 MiB  more stay after each step" in seen.result.text
    assert seen.one("memory.growth_by_frame") == 2 * MIB * 9  # between the second low point and the last
    assert "metrics.py:7" in seen.result.summary


@pytest.mark.parametrize("steps", [1, 2, 3, 20])
def test_steps_without_a_leak_grow_nowhere(steps: int, tmp_path: Path) -> None:
    seen = asked(tmp_path, training(steps).snapshot())
    assert not seen.values("memory.growth_by_frame") and seen.result.outcome == "clean"
    assert bool(seen.values("memory.steady")) == (steps > 4)
    assert "most live memory comes from proj/model.py:10 in forward" in seen.result.summary


def test_loading_a_model_is_no_leak(tmp_path: Path) -> None:
    made = Allocator()
    for i in range(200):
        made.take(MIB, "load.py:5")
        if i % 3 == 0:
            made.give(made.take(MIB // 2, "load.py:6"))
    assert not asked(tmp_path, made.snapshot()).values("memory.growth_by_frame")


def test_a_failed_request_and_fragments(tmp_path: Path) -> None:
    made = Allocator()
    held = [made.take(4 * MIB, "model.py:40") for _ in range(50)]
    for address in held[::2]:
        made.give(address)
    made.fail(10 * MIB, "loss.py:3")
    made.trace[-1]["frames"].insert(
        1, {"name": "cross_entropy", "filename": "/opt/lib/python3.11/site-packages/torch/nn/functional.py", "line": 1}
    )
    seen = asked(tmp_path, made.snapshot(), "oom.pickle")
    assert seen.one("memory.oom") == "cuda" and seen.one("memory.asked_bytes") == 10 * MIB
    assert seen.one("memory.free_bytes") == 3 * MIB and seen.one("memory.fragmented") is True
    assert seen.one("memory.phase") == "logits" and seen.one("memory.fragmentation") > 0.9
    assert seen.one("memory.reserved_unallocated_bytes") == 100 * MIB


def test_packed_snapshots_and_those_of_many_ranks(tmp_path: Path) -> None:
    data = pickle.dumps(training(6, leak=MIB).snapshot())
    for rank in range(3):
        (tmp_path / f"mem_rank{rank}.pickle.gz").write_bytes(gzip.compress(data))
    seen = look(memory_snapshot, tmp_path)
    assert seen.result.text.count("more stay after each step") == 3
    assert {e.rank for e in seen.of("memory.growth_by_frame")} == {0, 1, 2}


class Runs:
    """Would touch a file if it were unpickled with code."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return os.system, (f"touch {self.path}",)


def test_code_in_a_snapshot_is_not_run(tmp_path: Path) -> None:
    made = training(2).snapshot()
    made["segments"][0]["blocks"][0]["frames"] = Runs(tmp_path / "ran")
    seen = asked(tmp_path, made)
    assert seen.result.outcome == "failed" and "not loaded" in seen.result.summary
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "held",
    [
        {"segments": [{"total_size": 1}]}, {"segments": "x"}, {"segments": [3]}, {"segments": [], "device_traces": [[{}]]},
        {"segments": [{"total_size": -1, "blocks": []}]}, {"segments": [{"total_size": 1 << 80, "blocks": []}]},
        {"segments": [], "device_traces": [[{"action": "alloc", "addr": {}, "size": 1}]]},
    ],
)  # fmt: skip
def test_wrong_fields_are_told(held: Any, tmp_path: Path) -> None:
    assert asked(tmp_path, held).result.outcome == "failed"


def test_cut_and_flipped_files_are_told_or_read(tmp_path: Path) -> None:
    data = pickle.dumps(training(2).snapshot())
    for at in range(40, len(data), max(1, len(data) // 40)):
        (tmp_path / "s.pickle").write_bytes(data[:at])
        assert look(memory_snapshot, tmp_path).result.outcome == "failed"
        flipped = bytearray(data)
        flipped[at] ^= 0x41
        (tmp_path / "s.pickle").write_bytes(bytes(flipped))
        assert look(memory_snapshot, tmp_path).result.outcome in ("failed", "clean", "finding")


def test_other_pickles_are_no_snapshots(tmp_path: Path) -> None:
    (tmp_path / "data.pkl").write_bytes(pickle.dumps({"a": "segments"}))
    (tmp_path / "tokens.pickle").write_bytes(pickle.dumps([1, 2, 3]))
    assert look(memory_snapshot, tmp_path).result.outcome == "not_applicable"


SUMMARY = """step 3 loss 2.0
|===========================================================================|
|                  PyTorch CUDA memory summary, device ID 0                 |
|---------------------------------------------------------------------------|
|            CUDA OOMs: 1            |        cudaMalloc retries: 14        |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      |  61402 MiB |  70012 MiB |   1243 GiB |   1183 GiB |
|       from large pool |  61300 MiB |  69900 MiB |   1240 GiB |   1180 GiB |
|---------------------------------------------------------------------------|
| GPU reserved memory   |  78210 MiB |  78210 MiB |  78210 MiB |      0 B   |
|---------------------------------------------------------------------------|
| Non-releasable memory |   9100 MiB |  10200 MiB |    900 GiB |    890 GiB |
|===========================================================================|
step 4 loss 1.9
"""


def test_printed_tables_are_read(tmp_path: Path) -> None:
    seen = look(memory_snapshot, tmp_path, train_log=SUMMARY)
    assert seen.told("stats_allocated_bytes") == [str(61402 * MIB)]
    assert seen.told("stats_peak_bytes") == [str(70012 * MIB)]
    assert seen.told("stats_reserved_bytes") == [str(78210 * MIB)]
    assert seen.told("inactive_split_bytes") == [str(9100 * MIB)]
    assert seen.one("memory.alloc_retries") == 14 and seen.told("ooms_counted") == ["1"]


def test_the_last_table_counts(tmp_path: Path) -> None:
    seen = look(memory_snapshot, tmp_path, train_log=SUMMARY + SUMMARY.replace("61402", "62000"))
    assert seen.told("stats_allocated_bytes") == [str(62000 * MIB)]


def test_printed_statistics_are_read(tmp_path: Path) -> None:
    line = "OrderedDict([('allocated_bytes.all.current', 5368709120), ('num_alloc_retries', 3)])\n"
    assert look(memory_snapshot, tmp_path, train_log=line).told("stats_allocated_bytes") == [str(5 << 30)]
    line = "{'allocated_bytes.all.current': 5368709120, 'num_alloc_retries': 3, 'num_ooms': 0}\n"
    seen = look(memory_snapshot, tmp_path, train_log=line)
    assert seen.told("stats_allocated_bytes") == [str(5 << 30)] and seen.one("memory.alloc_retries") == 3


@settings(max_examples=60, deadline=None)
@given(st.recursive(st.one_of(st.integers(), st.text(max_size=8), st.none()),
                    lambda x: st.lists(x, max_size=4) | st.dictionaries(st.sampled_from(
                        ["segments", "device_traces", "blocks", "total_size", "size", "state", "frames", "action", "addr"]),
                        x, max_size=4), max_leaves=20))  # fmt: skip
def test_any_plain_value_is_a_snapshot_or_told(held: Any) -> None:
    with suppress(ParseError):
        of_mapping(held, FILE)
