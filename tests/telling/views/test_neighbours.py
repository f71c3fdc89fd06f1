"""The same moment in another rank's log."""

from __future__ import annotations

from pathlib import Path

from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.telling.views.excerpt import Excerpt, Row, Watch
from traindoctor.agent.telling.views.other_ranks import UNPLACED, Peer, moment, own, peers, same_file, same_moment

from tests.tui.stage import DEMO


def _opened(ws: Workspace, name: str) -> Excerpt:
    return Excerpt(next(f for f in ws.files if f.name == name)).opened()


def _row(page: Excerpt, holds: str) -> Row:
    return next(r for r in page.after(0, 1, 10**6) if holds in r.text)


def _other(tmp_path: Path, one: str, other: str, holds: str) -> tuple[str, str]:
    """The line of `other` at the moment of the line of `one` that holds a text, and how it was found."""
    (tmp_path / "rank0.log").write_text(one)
    (tmp_path / "rank1.log").write_text(other)
    ws = Workspace([tmp_path], live=False)
    page, there = _opened(ws, "rank0.log"), _opened(ws, "rank1.log")
    place = same_moment(there, moment(page, _row(page, holds)), Watch())
    row = there.row(place.offset, None) if place.offset is not None else None
    return row.text if row else "", place.how


def test_the_demo_shows_when_the_silent_rank_wrote_last() -> None:
    ws = Workspace([DEMO], live=False)
    page = _opened(ws, "logs/rank4.log")
    found = peers(ws, page.file)
    assert [p.name for p in found] == list(range(8)) and own(found, page.file, "") == 4
    when = moment(page, _row(page, "Watchdog caught"))
    silent, alive = _opened(ws, "logs/rank5.log"), _opened(ws, "logs/rank6.log")
    last = same_moment(silent, when, Watch())
    assert last.offset == silent.ending(1)[0].offset and last.how == "at step 4,120, 10 min 47 s before"
    there = same_moment(alive, when, Watch())
    row = alive.row(there.offset or 0, None)
    assert row is not None and "02:53:5" in row.text and "before" not in there.how


def test_stamps_lead_through_a_long_log_by_halves(tmp_path: Path) -> None:
    def log(shift: int) -> str:
        return "".join(
            f"2026-03-04 {n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}.{shift:03} step {n} loss 1.0\n  detail without a time\n"
            for n in range(20_000)
        )

    text, how = _other(tmp_path, log(0), log(250), "step 15000 ")
    assert "step 15000 " in text and how == "at step 15,000"
    text, how = _other(tmp_path, "2026-03-04 02:00:00 no step at all\n", log(250), "no step")
    assert "step 7199 " in text and how == "at 2026-03-04 01:59:59.250"
    text, how = _other(tmp_path, "2026-03-04 09:00:00 late\n", log(0), "late")
    assert "step 19999 " in text and how.endswith("3 h 26 min before")


def test_without_comparable_clocks_the_step_leads_and_else_the_end_is_shown(tmp_path: Path) -> None:
    steps = "".join(f"step {n} | loss 2.0\n" for n in range(500))
    assert _other(tmp_path, "step 412 | loss nan\n", steps, "nan") == ("step 412 | loss 2.0", "at step 412")
    assert _other(tmp_path, "nothing tells when\n", steps, "nothing") == ("", UNPLACED)
    assert _other(tmp_path, "[  812.123456] uptime of a kernel\n", "2026-03-04 02:00:00 x\n", "uptime") == (
        "",
        UNPLACED,
    )


def test_ranks_that_share_a_log_are_found_by_their_labels(tmp_path: Path) -> None:
    lines = [f"[rank{n % 4}]: step {n // 4} done" for n in range(400)]
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    ws = Workspace([tmp_path], live=False)
    page = _opened(ws, "train.log")
    found = peers(ws, page.file)
    assert [(p.name, p.shared) for p in found] == [(n, True) for n in range(4)]
    row = _row(page, "[rank2]: step 50 ")
    assert own(found, page.file, row.text) == 2
    place = same_file(page, row, 3, Watch())
    assert page.row(place.offset or 0, None).text == "[rank3]: step 50 done"  # type: ignore[union-attr]
    assert place.how == "at step 50"
    first = same_file(page, _row(page, "[rank0]: step 0 "), 1, Watch())
    assert page.row(first.offset or 0, None).text == "[rank1]: step 0 done"  # type: ignore[union-attr]
    assert same_file(page, row, 77, Watch()).offset is None


def test_of_a_rank_with_several_logs_the_same_attempt_is_meant(tmp_path: Path) -> None:
    for attempt in (0, 1):
        for rank in (0, 1):
            folder = tmp_path / f"attempt_{attempt}"
            folder.mkdir(exist_ok=True)
            (folder / f"rank{rank}.log").write_text("step 1\n")
    ws = Workspace([tmp_path], live=False)
    file = next(f for f in ws.files if f.name == "attempt_1/rank0.log")
    assert [p.file.name for p in peers(ws, file)] == ["attempt_1/rank0.log", "attempt_1/rank1.log"]
    assert Peer(3, file).title == "rank 3"
