"""Flight-recorder dumps of real Gloo jobs, of made NCCL jobs, and of hostile hands."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.collectives.flight_recorder import flight_recorder

from tests.jobs.supervised.started import left_by
from tests.tools.captured import Seen


@pytest.fixture(scope="session")
def dumps() -> Path:
    return left_by("collectives", 4)


def seen(folder: Path) -> Seen:
    result = flight_recorder(Workspace([folder]))
    for e in result.evidence:
        assert flight_recorder.allows(e.key), e.key
    return Seen(result, folder)


def part(found: Seen, key: str) -> tuple[str, int]:
    """The process group and the number of the collective that evidence is about."""
    group, _, seq = str(found.of(key)[0].member).rpartition(" #")
    return group, int(seq)


# ---- real dumps of Gloo jobs


def test_healthy_ranks_agree(dumps: Path) -> None:
    found = seen(dumps / "healthy")
    assert found.result.outcome == "clean" and found.one("flight.agree") is True
    assert "4 dumps of 4 ranks" in found.result.text and not found.values("flight.missing_rank")


@pytest.mark.parametrize(
    ("name", "kind", "culprit", "seq"),
    [("other_op", "op", 0, 4), ("other_size", "size", 2, 4), ("other_dtype", "dtype", 3, 4), ("skipped", "op", 1, 4)],
)
def test_the_rank_that_differs(name: str, kind: str, culprit: int, seq: int, dumps: Path) -> None:
    found = seen(dumps / name)
    assert found.one("flight.mismatch") == kind and part(found, "flight.mismatch")[1] == seq
    missing = found.values("flight.missing_rank")  # Gloo ends a process that gets more bytes than it expects
    if culprit not in missing:
        assert culprit in [e.rank for e in found.of("flight.mismatch")]
    assert any("collectives.py" in frame for frame in found.values("flight.frame"))


def test_a_rank_stuck_in_its_own_code_never_enters(dumps: Path) -> None:
    found = seen(dumps / "stuck")
    assert found.values("flight.rank_behind") == [1] and part(found, "flight.rank_behind")[1] == 6
    assert "did not enter all_reduce" in found.result.summary and not found.values("flight.mismatch")


def test_a_rank_that_ends_early_is_behind(dumps: Path) -> None:
    found = seen(dumps / "uneven")
    assert found.values("flight.rank_behind") == [2] and found.one("flight.behind_by") >= 1


def test_the_group_where_it_began_not_the_one_that_waits_for_it(dumps: Path) -> None:
    found = seen(dumps / "subgroup")
    assert part(found, "flight.mismatch")[0] == "tensor_b" and found.one("flight.mismatch") == "op"
    assert {e.rank for e in found.of("flight.frame")} == {2, 3}


def test_a_rank_without_a_dump_is_named(dumps: Path) -> None:
    found = seen(dumps / "unrecorded")
    assert found.values("flight.missing_rank") == [3] and "no dump of rank 3" in found.result.summary


@pytest.mark.parametrize("rename", ["worker{}.bin2", "dump-{}", "comm_trace.{}", "{}", "rank_{}/trace.pickle"])
def test_any_name(rename: str, dumps: Path, tmp_path: Path) -> None:
    for rank in range(4):
        to = tmp_path / rename.format(rank)
        to.parent.mkdir(exist_ok=True)
        shutil.copy(dumps / "stuck" / f"nccl_trace_rank_{rank}", to)
    assert seen(tmp_path).values("flight.rank_behind") == [1]


# ---- the verdict of torchfrtrace on complete dumps


def torchs_verdict(folder: Path) -> tuple[str, int] | None:
    """(kind, sequence number) of the first problem that torchfrtrace tells."""
    from torch.distributed.flight_recorder.components.builder import build_db
    from torch.distributed.flight_recorder.components.config_manager import JobConfig
    from torch.distributed.flight_recorder.components.loader import read_dir

    args: Any = JobConfig().parse_args([str(folder), "-p", "nccl_trace_rank_"])
    with contextlib.redirect_stdout(io.StringIO()):
        details, version = read_dir(args)
        told = [c for c in build_db(details, args, version).collectives if not c.pass_check or c.missing_ranks]
    if not told:
        return None
    first = told[0]
    if first.missing_ranks:
        return "behind", first.collective_seq_id
    states = [c.type_of_mismatch.state.name for c in first.mismatch_collectives.values()]
    names = {"COLLECTIVE_TYPE_MISMATCH": "op", "SIZE_OR_SYNTAX_MISMATCH": "size", "COLLECTIVE_DTYPE_MISMATCH": "dtype",
             "COLLECTIVE_STATE_MISMATCH": "state"}  # fmt: skip
    return names[states[0]], first.collective_seq_id


def ours(folder: Path) -> tuple[str, int] | None:
    found = seen(folder)
    state = [int(seq) for seq in re.findall(r"collective (\d+) is \w+ on ranks? ", found.result.text)]
    if found.values("flight.mismatch"):
        return found.one("flight.mismatch"), part(found, "flight.mismatch")[1]
    if found.values("flight.rank_behind"):
        at = part(found, "flight.rank_behind")[1]
        return ("state", state[0]) if state and state[0] < at else ("behind", at)
    return ("state", state[0]) if state else None


def with_names(folder: Path, to: Path) -> Path:
    """Dumps of Gloo with their group named as the entries call it: torchfrtrace fails on the empty name."""
    for path in folder.glob("nccl_trace_rank_*"):
        dump = pickle.loads(path.read_bytes())
        ranks = dump["pg_config"][""]["ranks"]
        named = {e["process_group"]: ranks for e in dump["entries"]}
        named |= {g: "[0, 1]" for g in named if g[1] == "tensor"} | {g: "[2, 3]" for g in named if g[1] == "tensor_b"}
        dump["pg_config"] = {g[0]: {"name": g[0], "desc": g[1], "ranks": r} for g, r in named.items()}
        (to / path.name).write_bytes(pickle.dumps(dump, protocol=2))
    return to


@pytest.mark.parametrize("name", ["healthy", "stuck", "uneven", "other_op", "skipped"])
def test_agrees_with_torchfrtrace_on_real_dumps(name: str, dumps: Path, tmp_path: Path) -> None:
    folder = with_names(dumps / name, tmp_path)
    assert ours(folder) == torchs_verdict(folder)


def entry(number: int, op: str = "nccl:all_reduce", **more: Any) -> dict[str, Any]:
    return {
        "frames": [{"name": "step", "filename": "/job/train.py", "line": 40}], "record_id": number, "pg_id": 0,
        "process_group": ("0", "default_pg"), "thread_name": "", "thread_id": "1", "collective_seq_id": number + 1,
        "p2p_seq_id": 0, "op_id": number + 1, "profiling_name": op, "time_created_ns": 10**18 + number,
        "input_sizes": [[8]], "input_dtypes": ["Float"], "output_sizes": [[8]], "output_dtypes": ["Float"],
        "state": "completed", "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
        "retired": True, "timeout_ms": 600000, "is_p2p": False, **more,
    }  # fmt: skip


def write(folder: Path, ranks: dict[int, list[dict]], world: int, how: Callable[[Any], bytes] | None = None) -> Path:
    for rank, entries in ranks.items():
        dump = {
            "version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}},
            "comm_lib_version": "2.27.5", "pg_status": {}, "entries": entries,
        }  # fmt: skip
        data = how(dump) if how else pickle.dumps(dump, protocol=2)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(data)
    return folder


def job(world: int, odd: dict[int, list[dict]]) -> dict[int, list[dict]]:
    running = {"state": "started", "retired": False}
    usual = [*(entry(i) for i in range(6)), entry(6, **running)]
    return {r: odd.get(r, usual) for r in range(world)}


ENDED = [entry(i) for i in range(6)]
RUNNING = {"state": "started", "retired": False}
ODD: dict[str, list[dict]] = {
    "late": ENDED,
    "size": [*ENDED, entry(6, input_sizes=[[9]], output_sizes=[[9]], **RUNNING)],
    "dtype": [*ENDED, entry(6, input_dtypes=["Half"], output_dtypes=["Half"], **RUNNING)],
    "op": [*ENDED, entry(6, "nccl:broadcast", **RUNNING)],
    "state": [*ENDED, entry(6, state="scheduled", retired=False)],
    "earlier": [*ENDED[:3], entry(3, "nccl:reduce_scatter"), *ENDED[4:], entry(6, **RUNNING)],
    "none": [],
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("rank", [0, 2, 3])
def test_agrees_with_torchfrtrace_on_made_dumps(name: str, rank: int, tmp_path: Path) -> None:
    write(tmp_path, job(4, {rank: ODD[name]}), 4)
    assert ours(tmp_path) == torchs_verdict(tmp_path)


def test_who_is_told_whatever_rank_stands_first(tmp_path: Path) -> None:
    found = seen(write(tmp_path, job(5, {0: ODD["size"]}), 5))
    assert found.values("flight.culprit") == [0]  # torchfrtrace blames the other four


# ---- what NCCL's dumps tell beyond that


def test_order_skipped_extra_and_swapped(tmp_path: Path) -> None:
    usual = [entry(0), entry(1, "nccl:broadcast"), entry(2, "nccl:barrier"), entry(3, "nccl:reduce"), entry(4)]
    numbered = [{**e, "collective_seq_id": i + 1, "record_id": i} for i, e in enumerate(usual[:1] + usual[2:])]
    found = seen(write(tmp_path, {0: usual, 1: usual, 2: numbered}, 3))
    assert found.one("flight.shift") == "skipped" and found.values("flight.culprit") == [2]


def test_a_rank_that_never_entered_and_given_up_work(tmp_path: Path) -> None:
    gone = [*ENDED, entry(6, state="started", retired=True)]
    found = seen(write(tmp_path, {0: gone, 1: gone, 2: []}, 3))
    assert found.values("flight.never_entered") == [2] and found.values("flight.rank_behind") == [2]
    gave_up = seen(write(tmp_path, {0: gone, 1: gone, 2: gone}, 3))
    assert gave_up.values("flight.timed_out") == [7, 7, 7] and not gave_up.values("flight.rank_behind")


def test_all_in_the_same_collective_points_to_the_transport(tmp_path: Path) -> None:
    found = seen(write(tmp_path, job(3, {}), 3))
    assert found.one("flight.all_entered") == "all_reduce" and not found.values("flight.mismatch")


def test_gathers_and_all_to_all_may_differ_in_size(tmp_path: Path) -> None:
    def rank(r: int) -> list[dict]:
        return [entry(0, "nccl:all_to_all", input_sizes=[[r + 1]], output_sizes=[[4 - r]]),
                entry(1, "nccl:gather", output_sizes=[[8]] if r == 0 else [])]  # fmt: skip

    assert seen(write(tmp_path, {r: rank(r) for r in range(3)}, 3)).result.outcome == "clean"


def test_overwritten_starts_are_not_compared(tmp_path: Path) -> None:
    rows = [entry(i, "nccl:broadcast" if i == 3 else "nccl:all_reduce") for i in range(20)]
    found = seen(write(tmp_path, {0: rows[5:], 1: rows, 2: rows[2:]}, 3))
    assert found.result.outcome == "clean" and "overwritten" in found.result.text


def test_sends_without_a_receive(tmp_path: Path) -> None:
    def pair(op: str, number: int) -> dict:
        sizes = {"input_sizes": [[4]], "output_sizes": []} if "send" in op else {"input_sizes": [], "output_sizes": [[4]]}
        return entry(number, op, is_p2p=True, p2p_seq_id=number + 1, collective_seq_id=0, state="completed", **sizes)

    ranks = {0: [pair("nccl:send 0->1", 0), pair("nccl:send 0->1", 1)], 1: [pair("nccl:recv 1<-0", 0)]}
    found = seen(write(tmp_path, ranks, 2))
    assert found.values("flight.p2p_unpaired") == ["unreceived"] and found.of("flight.p2p_unpaired")[0].rank == 0


def test_two_faults_in_two_groups_are_both_told(tmp_path: Path) -> None:
    def rank(r: int) -> list[dict]:
        pair = (str(1 + r // 2), "tensor")
        odd = {"input_sizes": [[9]], "output_sizes": [[9]]} if r in (1, 3) else {}
        return [entry(0, process_group=pair), entry(1, process_group=pair, **odd)]

    found = seen(write(tmp_path, {r: rank(r) for r in range(4)}, 4))
    assert found.values("flight.mismatch") == ["size", "size"] and {e.rank for e in found.of("flight.mismatch")} == {1, 3}


def test_json_dumps(tmp_path: Path) -> None:
    def as_json(dump: dict) -> bytes:
        entries = [{**{k: v for k, v in e.items() if k != "frames"}, "process_group": list(e["process_group"])} for e in dump["entries"]]
        return json.dumps(dict(sorted({**dump, "entries": entries}.items()))).encode()

    found = seen(write(tmp_path, job(3, {1: ENDED}), 3, as_json))
    assert found.values("flight.rank_behind") == [1] and not found.values("flight.frame")


def test_without_dumps_it_does_not_apply(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step 1 loss 2.0\n")
    assert seen(tmp_path).result.outcome == "not_applicable"


# ---- damage and malice


class Evil:
    def __reduce__(self) -> tuple:
        return (exec, ("import pathlib; pathlib.Path('executed').touch()",))


HEAD = b"\x80\x02}(X\x07\0\0\0versionX\x04\0\0\x002.10X\x09\0\0\0pg_config"
HOSTILE: dict[str, bytes] = {
    "reduce": pickle.dumps({"version": "2.10", "pg_config": {}, "entries": [Evil()]}, protocol=2),
    "stack_global": pickle.dumps({"version": "2.10", "pg_config": Evil(), "entries": []}, protocol=4),
    "inst": HEAD + b"(X\x02\0\0\0idios\nsystem\nu.",
    "global": HEAD + b"cos\nsystem\n(X\x02\0\0\0idtRu.",
    "persistent": HEAD + b"Pabc\nu.",
    "extension": HEAD + b"\x82\x01u.",
    "memo": HEAD + b"}r\xff\xff\xff\x7fu.",
    "long_text": HEAD + b"X\xff\xff\xff\x7fabc",
    "deep": HEAD + b"(" * 200_000 + b"l" * 200_000 + b"u.",
    "deep_lists": HEAD + b"]" * 50_000 + b"a" * 49_999 + b"u.",
    "cut": pickle.dumps({"version": "2.10", "pg_config": {}, "entries": [entry(0)]}, protocol=2)[:-40],
    "no_mapping": pickle.dumps(["version", "pg_config"], protocol=2),
    "entries_no_list": pickle.dumps({"version": 1, "pg_config": [], "entries": {"a": 1}}, protocol=2),
    "odd_values": pickle.dumps({"version": "2", "pg_config": {"0": {"ranks": 5, "name": []}}, "entries": [entry(0, collective_seq_id=10**40, input_sizes="x")]}, protocol=2),
    "json_deep": b'{"pg_config": {"ranks": ' + b"[" * 100_000,
    "json_long_number": b'{"pg_config": {"ranks": ' + b"9" * 6000 + b"}}",
    "garbage": b"\x80\x02" + bytes(range(256)) * 20 + b"pg_config version",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_dumps_are_told_and_not_executed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, job(3, {}), 3)
    (tmp_path / "nccl_trace_rank_2").write_bytes(HOSTILE[name])
    found = seen(tmp_path)
    assert not (tmp_path / "executed").exists()
    assert found.result.outcome == "finding"  # never called clean
    unreadable = "not readable" in found.result.summary
    assert unreadable or "3 dumps of 3 ranks" in found.result.text
    if unreadable:
        assert found.values("flight.missing_rank") == [2]


def test_a_graph_that_grows_when_walked(tmp_path: Path) -> None:
    sizes: list = [1]
    for _ in range(80):
        sizes = [sizes, sizes]
    write(tmp_path, {r: [entry(0, input_sizes=sizes)] for r in range(2)}, 2)
    assert seen(tmp_path).result.outcome == "failed"


@pytest.mark.parametrize("step", range(0, 400, 16))
def test_bits_turned_over_never_break_it(step: int, tmp_path: Path) -> None:
    write(tmp_path, job(2, {}), 2)
    path = tmp_path / "nccl_trace_rank_1"
    data = bytearray(path.read_bytes())
    for at in range(step, len(data), 401):
        data[at] ^= 1 << (at % 8)
    path.write_bytes(data)
    assert seen(tmp_path).result.outcome in ("finding", "failed", "clean")


def test_a_twin_is_read_as_if_it_were_the_first(tmp_path: Path) -> None:
    from traindoctor.agent.reading.run.files import RunFile
    from traindoctor.agent.reading.stacks.flight_dump import Twins, parse

    def made(shift: int, **more: Any) -> bytes:
        rows = [entry(i, time_created_ns=10**18 + i * shift, **more) for i in range(5)]
        return pickle.dumps({"version": "2.10", "pg_config": {}, "entries": rows}, protocol=2)

    file = RunFile("a", tmp_path / "a", "capture", 0)
    twins = Twins()
    twins.learn(made(7), parse(file, made(7)))
    twin = twins.of(file, made(9))
    alone = parse(file, made(9))
    assert twin is not None
    for key, work in alone.work.items():
        assert twin.work[key].rows == work.rows and twin.work[key].created.tolist() == work.created.tolist()
    assert twins.of(file, made(9, input_sizes=[[9]])) is None and twins.of(file, made(9, state="started")) is None
    assert twins.of(file, made(7).replace(b"all_reduce", b"all_gather")) is None


def test_an_empty_dump_is_told(tmp_path: Path) -> None:
    write(tmp_path, job(2, {}), 3)
    (tmp_path / "nccl_trace_rank_2").write_bytes(b"")
    found = seen(tmp_path)
    assert "nccl_trace_rank_2: empty" in found.result.text and found.values("flight.missing_rank") == [2]


def test_notes_about_dumps_are_no_dumps(tmp_path: Path) -> None:
    (tmp_path / "flight_recorder.md").write_text("How to read dumps\n")
    (tmp_path / "nccl_trace_report").write_text("Collective sequence number: 4 has errors\n")
    (tmp_path / "nccl_trace_rank_0.log").write_text("")
    assert seen(tmp_path).result.outcome == "not_applicable"


def test_an_index_too_far_is_refused_before_memory_is_asked_for() -> None:
    from traindoctor.agent.core.errors import ParseError
    from traindoctor.agent.reading.run.plain_pickle import plain

    with pytest.raises(ParseError, match="memory"):
        plain(b"\x80\x02]r" + struct.pack("<I", 1 << 31) + b".")
    assert plain(pickle.dumps({"a": [1, 2.5, None, True, (1, "x"), -5, 10**12]}, protocol=2))["a"][4] == (1, "x")
    assert plain(pickle.dumps({"a": [1, 2.5, None, True, (1, "x"), -5, 10**12]}, protocol=4))["a"][1] == 2.5
    with pytest.raises(ParseError, match=re.escape("os.system")):
        plain(b"\x80\x02cos\nsystem\n.")
