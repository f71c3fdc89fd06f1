"""Collective timeouts over ranks: who reports, who is silent or behind, what differs, who closed the line."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.logs import nccl_lines as nl
from traindoctor.agent.tools.collectives.watchdog import watchdog

from tests.tools.captured import look


def timeout(rank: int, seq: int = 77, op: str = "ALLREDUCE", numel: int = 1000, group: str = "") -> str:
    return (
        f"[rank{rank}]:[E526 11:42:19.204448 ProcessGroupNCCL.cpp:632] [{group}Rank {rank}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, "
        f"Timeout(ms)=600000) ran for 600029 milliseconds before timing out.\n"
    )


def progress(rank: int, enqueued: int, completed: int) -> str:
    return (
        f"[rank{rank}]:[E1206 18:44:16 ProcessGroupNCCL.cpp:1709] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure "
        f"detected by watchdog at work sequence id: {completed + 1} PG status: last enqueued work: {enqueued}, last "
        f"completed work: {completed}\n"
    )


def test_the_rank_that_says_nothing(tmp_path: Path) -> None:
    log = "Starting with 8 processes\n" + "".join(timeout(r, seq=1) for r in range(8) if r != 5)
    seen = look(watchdog, tmp_path, train_log=log)
    assert seen.one("watchdog.ranks_silent") == [5] and seen.one("watchdog.one_silent") == 5
    assert "Starting with 8" in seen.lines("watchdog.ranks_silent")[0]
    assert seen.one("watchdog.first_collective") is True and seen.one("watchdog.timeout_ms") == 600000
    assert len(seen.values("watchdog.timeout")) == 7


def test_ranks_above_the_last_reporter_need_a_world_size(tmp_path: Path) -> None:
    seen = look(watchdog, tmp_path, train_log=timeout(0) + timeout(1))
    assert not seen.values("watchdog.ranks_silent")
    seen = look(watchdog, tmp_path, train_log="world_size=4\n" + timeout(0) + timeout(1))
    assert seen.one("watchdog.ranks_silent") == [2, 3]


def test_who_is_behind_by_sequence_number(tmp_path: Path) -> None:
    log = "".join(timeout(r, seq=100 if r != 2 else 98, op="ALLREDUCE" if r != 2 else "BROADCAST") for r in range(4))
    seen = look(watchdog, tmp_path, train_log=log)
    assert seen.values("watchdog.behind_rank") == [2]
    assert "98 on ranks [2]" in seen.values("watchdog.seq_differs")
    assert "BROADCAST on ranks [2]" in seen.values("watchdog.op_differs")
    assert not seen.values("watchdog.first_collective")


def test_who_is_behind_by_enqueued_work(tmp_path: Path) -> None:
    log = "".join(progress(r, 500 if r else 450, 449) for r in range(4))
    seen = look(watchdog, tmp_path, train_log=log)
    assert seen.values("watchdog.behind_rank") == [0]
    assert "enqueued=450, completed=449" in seen.result.text


def test_all_at_the_same_place_means_nobody_is_behind(tmp_path: Path) -> None:
    seen = look(watchdog, tmp_path, train_log="".join(timeout(r) + progress(r, 90, 76) for r in range(4)))
    assert not seen.values("watchdog.behind_rank") and not seen.values("watchdog.seq_differs")


def test_sizes_that_differ_at_the_same_number(tmp_path: Path) -> None:
    log = timeout(0, numel=100) + timeout(1, numel=100) + timeout(2, numel=64)
    assert "64 on ranks [2]" in look(watchdog, tmp_path, train_log=log).values("watchdog.size_differs")


def test_groups_are_not_mixed(tmp_path: Path) -> None:
    log = timeout(0, seq=5, group="PG 1 ") + timeout(1, seq=900, group="PG 2 ")
    assert not look(watchdog, tmp_path, train_log=log).values("watchdog.seq_differs")


def test_older_wording(tmp_path: Path) -> None:
    log = (
        "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLGATHER, TensorShape=[5, 7], "
        "Timeout(ms)=1800000) ran for 1808499 milliseconds before timing out.\n"
        "[PG 0 (default_pg) Rank 3] Timeout at NCCL work: 2070, last enqueued NCCL work: 2082, last completed NCCL "
        "work: 2069.\n"
    )
    seen = look(watchdog, tmp_path, train_log=log)
    assert seen.one("watchdog.timeout") == "ALLGATHER" and "ran_ms=1808499" in seen.result.text
    assert "enqueued=2082, completed=2069" in seen.result.text


DETAIL = (
    "[rank0]: RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
    "CollectiveFingerPrint(SequenceNumber=8, OpType={a}, TensorShape=[{x}], TensorDtypes=Float, TensorDeviceTypes=x), "
    "but Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=8, OpType={b}, TensorShape=[{y}], "
    "TensorDtypes=Float, TensorDeviceTypes=x).\n"
)


def test_detail_fingerprints(tmp_path: Path) -> None:
    seen = look(watchdog, tmp_path, train_log=DETAIL.format(a="ALLREDUCE", b="ALLREDUCE", x=10, y=20))
    assert seen.values("watchdog.mismatch") == ["size"] and "rank 0: 10" in seen.one("watchdog.size_differs")
    seen = look(watchdog, tmp_path, train_log=DETAIL.format(a="ALLREDUCE", b="BROADCAST", x=10, y=10))
    assert seen.values("watchdog.mismatch") == ["op"]


def test_a_closed_connection_names_the_peer_and_its_last_line(tmp_path: Path) -> None:
    (tmp_path / "node7.log").write_text("step 1 loss 3\nstep 2 loss 2\n\n")
    log = "step 2 loss 2\nsocketProgress: Connection closed by remote peer node7.local<32926>\n"
    seen = look(watchdog, tmp_path, node9_log=log)
    assert seen.one("watchdog.remote_closed") == "node7.local"
    (last,) = seen.of("watchdog.peer_last_line")
    assert (last.file, last.line, last.value) == ("node7.log", 2, "step 2 loss 2")


def test_barriers_gloo_and_missing_clients(tmp_path: Path) -> None:
    log = (
        "[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 30000 ms\n"
        "RuntimeError: [../third_party/gloo] Timed out waiting 1800000ms for recv operation to complete\n"
        "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined.\n"
        "[rank2]: - [2] finished collective #1, but didn't join collective #2 (count from 1)\n"
    )
    seen = look(watchdog, tmp_path, train_log=log)
    assert set(seen.values("watchdog.behind_rank")) == {1, 2, 3}
    assert seen.one("watchdog.gloo_timeout") == "recv 1800000 ms"
    assert seen.one("watchdog.clients_missing") == "1 of 2 joined"


def test_a_healthy_log_is_clean(tmp_path: Path) -> None:
    log = "world_size=8\n" + "".join(f"step {i} loss {1 / (i + 1):.4f}\n" for i in range(50))
    assert look(watchdog, tmp_path, train_log=log).result.outcome == "clean"


def test_a_thousand_ranks(tmp_path: Path) -> None:
    log = "".join(timeout(r) + progress(r, 90, 76) for r in range(1024) if r != 900)
    seen = look(watchdog, tmp_path, train_log=log)
    assert seen.one("watchdog.ranks_silent") == [900] and len(seen.evidence) < 100


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200), st.sampled_from(["", "WorkNCCL(", "Rank 0 is running collective: CollectiveFingerPrint(",
                                               "last enqueued work: ", "NCCL version ", "Connection closed by peer "]))  # fmt: skip
def test_readers_take_any_text(text: str, head: str) -> None:
    line = head + text
    for read in (nl.work_of, nl.progress_of, nl.mismatch_of, nl.version_of, nl.world_size, nl.closed_peer):
        read(line)


def test_a_rank_that_reports_several_stuck_collectives_counts_with_its_first(tmp_path: Path) -> None:
    log = timeout(0, seq=96120) + timeout(0, seq=96117) + timeout(1, seq=96117) + timeout(2, seq=96117)
    seen = look(watchdog, tmp_path, train_log=log)
    assert not seen.values("watchdog.seq_differs") and not seen.values("watchdog.behind_rank")


def test_queue_state_in_the_wording_of_an_exception(tmp_path: Path) -> None:
    log = (
        "[rank0]:[E624 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 0] Exception (either an error or timeout) "
        "detected by watchdog at work: 54, last enqueued NCCL work: 84, last completed NCCL work: 53.\n"
    )
    result = look(watchdog, tmp_path, train_log=log).result
    assert result.outcome == "finding" and "enqueued=84, completed=53" in result.text


def test_a_silent_rank_that_still_works_is_late_and_not_dead(tmp_path: Path) -> None:
    waiting = "".join(timeout(r, seq=9) for r in (1, 2, 3))
    busy = "2026-05-26 11:33:00 rank 0: writing shard 3 of 9\n2026-05-26 11:42:10 rank 0: writing shard 8 of 9\n"
    seen = look(watchdog, tmp_path, train_log="world_size=4\n" + busy + waiting)
    assert seen.values("watchdog.silent_rank_works") == [0]
    assert "shard 8" in seen.lines("watchdog.silent_rank_works")[0]
    gone = "2026-05-26 11:31:00 rank 0: writing shard 1 of 9\n"
    assert not look(watchdog, tmp_path, train_log="world_size=4\n" + gone + waiting).values(
        "watchdog.silent_rank_works"
    )


def test_a_silent_rank_with_a_log_of_its_own_and_another_time_zone(tmp_path: Path) -> None:
    waiting = "world_size=3\n" + timeout(1, seq=9) + timeout(2, seq=9)
    busy = "2026-05-26 13:42:05 INFO step 4 merging\n2026-05-26 13:42:12 INFO step 5 merging\n"
    seen = look(watchdog, tmp_path, train_log=waiting, rank0_log=busy)
    assert seen.values("watchdog.silent_rank_works") == [0]


def test_a_first_rank_missing_from_a_barrier_works_alone(tmp_path: Path) -> None:
    waiting = "world_size=4\n" + "".join(timeout(r, seq=9, op="BARRIER") for r in (1, 2, 3))
    seen = look(watchdog, tmp_path, train_log=waiting)
    assert seen.values("watchdog.main_rank_alone") == [0] and not seen.values("watchdog.one_silent")
    for other in (waiting + "Connection closed by peer [10.0.0.4]:312\n", waiting.replace("BARRIER", "ALLREDUCE")):
        seen = look(watchdog, tmp_path, train_log=other)
        assert seen.values("watchdog.one_silent") == [0] and not seen.values("watchdog.main_rank_alone")
