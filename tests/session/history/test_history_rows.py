"""Rows of the history: what counts as the same job, the same failure, an earlier one; nodes that come again."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traindoctor.agent.session.history import diagnoses, team
from traindoctor.agent.session.history.diagnoses import Entry, Wanted, as_before, earlier, found, put, stable, stamp
from traindoctor.agent.session.history.history_database import MIGRATIONS
from traindoctor.agent.session.history.team import EACH, STRONGEST, Correction, Kind, shifts

NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
def base() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        made.row_factory = sqlite3.Row
        for script in MIGRATIONS:
            made.executescript(script)
        yield made


def entry(session: str, **changes: object) -> Entry:
    fields: dict[str, object] = {
        "session": session, "time": "2026-03-04T10:00:00Z", "user": "ada", "host": "login1", "folder": "/runs/a",
        "root": "/runs/a", "cause": "hw.gsp_timeout", "status": "likely", "failure": session,
    }  # fmt: skip
    return Entry(**{**fields, **changes})  # pyright: ignore[reportArgumentType]


def test_earlier_failures_share_the_cause_and_a_job_or_a_node(base: sqlite3.Connection) -> None:
    now = entry("now", nodes=["n12"], job="llama")
    for e in (
        entry("same-folder", time="2026-01-01T00:00:00Z"),
        entry("same-name", folder="/else", job="llama", time="2026-01-02T00:00:00Z"),
        entry("same-node", folder="/other", nodes=["n12", "n13"], time="2026-01-03T00:00:00Z"),
        entry("name-of-another-user", folder="/else2", job="llama", user="bob"),
        entry("another-cause", cause="dist.ib_link"),
        entry("another-job", folder="/no"),
        entry("diagnosed-again", failure="now"),
        now,
    ):
        put(base, e)
    before = [as_before(e, now) for e in earlier(base, now)]
    assert [(b.session, b.same) for b in before] == [
        ("same-node", ["cause", "node"]), ("same-name", ["cause", "job"]), ("same-folder", ["cause", "job"])
    ]  # fmt: skip


def test_one_failure_diagnosed_three_times_is_one(base: sqlite3.Connection) -> None:
    for i in range(3):
        put(base, entry(f"s{i}", failure="f", nodes=["n1"], time=f"2026-01-0{i + 1}T00:00:00Z"))
    assert [e.session for e in earlier(base, entry("now"))] == ["s2"]
    assert team.recurring_nodes(base) == [] and team.recurring_causes(base) == []


def test_nodes_that_come_again_are_counted_over_the_latest_hardware_failures(base: sqlite3.Connection) -> None:
    for number, node in enumerate(["n12", "n3", "n12", "n12", "n4", "n9", "n9"]):
        put(base, entry(f"s{number}", nodes=[node], time=f"2026-01-{number + 1:02}T00:00:00Z"))
    put(base, entry("loss", cause="loss.bad_batch", nodes=["n4"], time="2026-02-01T00:00:00Z"))
    assert [(r.name, r.times, r.of) for r in team.recurring_nodes(base)] == [("n9", 2, 5), ("n12", 2, 5)]
    (cause,) = team.recurring_causes(base)
    assert (cause.name, cause.times, cause.of) == ("hw.gsp_timeout", 7, 8)


def test_what_is_looked_for(base: sqlite3.Connection) -> None:
    old, new = stamp(datetime.now(UTC) - timedelta(days=40)), stamp(datetime.now(UTC))
    ahead = stamp(datetime.now(UTC) + timedelta(days=3))  # a host whose clock is wrong
    put(base, entry("old", time=old, job="llama-8b", job_id="4711"))
    put(base, entry("new", time=new, nodes=["n1"], folder="/runs/50%_off"))
    put(base, entry("ahead", time=ahead, cause="dist.ib_link"))

    def sessions(**wanted: object) -> list[str]:
        return [e.session for e in found(base, Wanted(**wanted))]  # pyright: ignore[reportArgumentType]

    assert sessions() == ["ahead", "new", "old"]
    assert sessions(limit=1) == ["ahead"]
    assert sessions(since=timedelta(days=30)) == ["ahead", "new"]
    assert sessions(node="n1") == ["new"] and sessions(node="n") == []
    assert sessions(job="llama") == ["old"] and sessions(job="4711") == ["old"] and sessions(job="%_") == ["new"]
    assert sessions(cause="dist.ib_link") == ["ahead"]
    assert sessions(job="'; DROP TABLE diagnoses; --") == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("/runs/exp_2026-01-02_10-00-00", "/runs/exp_2026-03-01_23-59-59"),
        ("/runs/exp42/attempt_1/logs", "/runs/exp42/attempt_7/logs"),
        ("/runs/exp42-restart2", "/runs/exp42-restart3"),
        ("/runs/llama-20260102T101500", "/runs/llama-20260405T101500"),
        ("/runs/llama.4711123", "/runs/llama.4711999"),
    ],
)
def test_attempts_of_a_job_have_one_folder(first: str, second: str) -> None:
    assert stable(first) == stable(second)


@pytest.mark.parametrize(
    "names",
    [
        ("exp42", "exp43"),
        ("lr_1e-4", "lr_3e-4"),
        ("seed_1", "seed_2"),
        ("8b", "70b"),
        ("2026-01-02/10-00-00", "2026-01-03/10-00-00"),
    ],
)
def test_jobs_that_differ_in_a_number_differ(names: tuple[str, str]) -> None:
    assert stable(f"/runs/{names[0]}") != stable(f"/runs/{names[1]}")


@given(st.text(alphabet="abc019-_./T:2026", max_size=60))
def test_a_stable_name_stays_as_it_is(path: str) -> None:
    assert stable(stable(path)).count("/") == stable(path).count("/")
    assert len(stable(path)) <= len(path) + path.count("/") + 1


def correction(number: int, said: str = "data.schema", truth: str = "loss.label_bug", **changes: object) -> Correction:
    fields: dict[str, object] = {
        "session": f"s{number}", "time": stamp(NOW - timedelta(days=number)), "user": "ada", "said": said,
        "truth": truth, "framework": "hf", "error": "KeyError: #",
    }  # fmt: skip
    return Correction(**{**fields, **changes})  # pyright: ignore[reportArgumentType]


def test_two_corrections_of_a_kind_lean_towards_the_truth() -> None:
    alike = Kind("hf", "KeyError: #")
    assert shifts([correction(0)], "data.schema", alike, NOW) == []
    (shift,) = shifts([correction(0), correction(0, session="b")], "data.schema", alike, NOW)
    assert (shift.cause, shift.odds) == ("loss.label_bug", 0.5)
    assert shift.told == "this team corrected data.schema to loss.label_bug twice: loss.label_bug +0.5"
    assert shifts([correction(0), correction(1)], "data.encoding", alike, NOW) == [], "another verdict is not moved"
    assert shifts([correction(0), correction(1)], "data.schema", Kind("megatron", "other"), NOW) == []


def test_verdicts_that_were_right_count_against_it_and_time_fades_it() -> None:
    alike = Kind("hf", "KeyError: #")
    wrong = [correction(i, session=f"w{i}", time=stamp(NOW)) for i in range(3)]
    right = [correction(i, session=f"r{i}", truth="data.schema", time=stamp(NOW)) for i in range(3)]
    (full,) = shifts(wrong, "data.schema", alike, NOW)
    (less,) = shifts([*wrong, right[0]], "data.schema", alike, NOW)
    assert full.odds == 3 * EACH and less.odds == 2 * EACH and shifts([*wrong, *right], "data.schema", alike, NOW) == []
    (later,) = shifts(wrong, "data.schema", alike, NOW + timedelta(days=180))
    assert later.odds == pytest.approx(full.odds / 2, abs=0.011)
    (skewed,) = shifts(wrong, "data.schema", alike, NOW - timedelta(days=900))
    assert skewed.odds == full.odds, "a correction from a clock ahead is as good as one of today"


_causes = st.sampled_from(["data.schema", "loss.label_bug", "none.insufficient_evidence", "hw.gsp_timeout"])
_corrections = st.builds(
    Correction, st.text(max_size=3), st.sampled_from(["", "2026-01-01T00:00:00Z", "2031-01-01", "x", "2020-01-01T00:00:00"]),
    st.just("u"), _causes, _causes, st.sampled_from(["", "hf"]), st.sampled_from(["", "KeyError: #"]),
)  # fmt: skip


@given(st.lists(_corrections, max_size=30), _causes, st.sampled_from(["", "hf"]), st.sampled_from(["", "KeyError: #"]))
def test_no_history_outweighs_a_sign(made: list[Correction], verdict: str, framework: str, error: str) -> None:
    found = shifts(made, verdict, Kind(framework, error), NOW)
    assert all(0 < s.odds <= STRONGEST < 1.2 and s.cause != verdict for s in found)
    assert all(sum(c.said == verdict and c.truth == s.cause for c in made) >= 2 for s in found)
    assert found == shifts(list(reversed(made)), verdict, Kind(framework, error), NOW)
    assert len({s.cause for s in found}) == len(found)


def test_a_row_reads_back_as_it_was_written(base: sqlite3.Connection) -> None:
    full = entry(
        "s", job="j", job_id="1", confidence=0.5, framework="hf", error="e", gpus=["GPU-1"], nodes=["a", "b"], step=3,
        attempt=2,
    )  # fmt: skip
    put(base, full)
    assert diagnoses.by_session(base, "s") == full
