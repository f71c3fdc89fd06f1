"""The timeline of ranks on a screen."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import OptionList, Static
from traindoctor.agent.core.events import ToolFinished
from traindoctor.agent.core.report import FirstFailure, RootCause
from traindoctor.agent.core.types import Call, ToolResult
from traindoctor.tui.messages import OpenFile
from traindoctor.tui.panels.ranks import RanksPanel

from tests.sample import sample
from tests.tui.stage import NARROW, Stage, play, settled


def drawn(app: Any) -> list[str]:
    """The rows of the screen as text."""
    return ["".join(s.text for s in strip) for strip in app.screen._compositor.render_strips()]


def text(app: Any) -> str:
    return "\n".join(drawn(app))


def opened(app: Any) -> list[OpenFile]:
    """What was asked to be opened, each message once however many widgets it passed."""
    return list({id(m): m for m in app.of(OpenFile)}.values())


def failed_first(rank: int, time: str = "") -> RootCause:
    return RootCause(id="hw.gpu_fell_off_bus", first_failure=FirstFailure(rank=rank, time=time or None))


def many(root: Path, ranks: int = 48) -> Path:
    """A job in which one rank stops early, one never writes, and the others complain."""
    for r in range(ranks):
        rows = [f"2026-03-04 02:40:00.{r:03d} [INFO] rank {r} of {ranks}"]
        rows += [f"2026-03-04 02:4{k}:00.{r:03d} [INFO] step {4008 + k} loss 2.3" for k in range(1 if r == 7 else 4)]
        if r != 7:
            rows.append(f"[rank{r}]:[E304 02:53:50.{r:03d}000 ProcessGroupNCCL.cpp:629] [Rank {r}] Watchdog caught "
                        "collective operation timeout: WorkNCCL(SeqNum=99, OpType=ALLREDUCE, Timeout(ms)=600000)")  # fmt: skip
        if r != 30:
            (root / f"rank{r}.log").write_text("\n".join(rows) + "\n")
    return root


def test_who_failed_first_is_seen_opened_and_sorted(picture: Any, talk: Any) -> None:
    panel = RanksPanel()

    async def story(pilot: Any) -> None:
        app = pilot.app
        await picture(pilot, "nothing open")
        panel.begin(talk())
        await settled(pilot, lambda: "rank 5" in text(app))
        assert "no report yet" in text(app)
        panel.show(sample(root_cause=failed_first(5, "Mar  4 02:43:49 2026")))
        await settled(pilot, lambda: "failed first" in text(app))
        panel.enter()
        await picture(pilot, "column of a wide screen")
        await pilot.press("enter", "down", "t", "enter")
        assert [(m.name, m.line) for m in opened(app)] == [
            ("logs/rank5.log", 5), ("logs/rank7.log", 6), ("logs/rank7.log", 12)
        ]  # fmt: skip
        await pilot.press("a")
        assert "order: rank" in text(app)
        rows = [row.split()[1:3] for row in drawn(app)[2:10]]
        assert [" ".join(row) for row in rows if row[0] == "rank"] == [f"rank {r}" for r in range(8)]
        app.theme = "textual-light"
        await pilot.resize_terminal(*NARROW)
        await settled(pilot, lambda: max(map(len, drawn(app))) == 80)
        await picture(pilot, "light at 80x24")
        await pilot.resize_terminal(40, 24)
        await settled(pilot, lambda: max(map(len, drawn(app))) == 40)
        await picture(pilot, "forty cells")
        assert "X" in text(app)

    play(Stage(panel), story, size=(64, 40))


def test_alike_ranks_are_one_row_until_they_are_unfolded(picture: Any, talk: Any, tmp_path: Path) -> None:
    panel = RanksPanel()

    async def story(pilot: Any) -> None:
        app = pilot.app
        panel.begin(talk(many(tmp_path)))
        await settled(pilot, lambda: "ranks 0-6" in text(app))
        panel.enter()
        rows = panel.query_one(OptionList)
        assert rows.option_count == 3
        await pilot.press("down", "enter")
        assert app.of(OpenFile) == []  # no file of a rank that never wrote
        await pilot.press("end")
        assert "46 alike: all complained" in text(app)
        await picture(pilot, "folded")
        await pilot.press("enter")
        assert rows.option_count == 49
        await picture(pilot, "unfolded")
        await pilot.press("down", "enter")
        assert [m.name for m in opened(app)] == ["rank0.log"]
        await pilot.press("up", "enter")
        assert rows.option_count == 3

    play(Stage(panel), story, size=(80, 30))


def test_without_colour_and_with_hostile_names(
    picture: Any, talk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    root = tmp_path / "run"
    root.mkdir()
    (root / "\x1b[31mred[bold]\u202ex.log").write_text("2026-03-04 02:40:00 step 1 \x1b]0;title\x07 [bold]x[/bold]\n")
    other = many(tmp_path / "other") if (tmp_path / "other").mkdir() is None else root
    panel = RanksPanel()

    async def story(pilot: Any) -> None:
        app = pilot.app
        panel.begin(talk(root))
        await settled(pilot, lambda: "red" in text(app))
        assert "\x1b" not in text(app)
        assert "\u202e" not in text(app)
        assert "[bold]" in text(app)
        await picture(pilot, "hostile without colour")
        # A run that is gone before it was read, then another: what was read of the first is dropped
        gone = talk(root)
        shutil.rmtree(root)
        panel.begin(gone)
        panel.begin(talk(other))
        await settled(pilot, lambda: "ranks 0-6" in text(app))
        assert "red" not in text(app)
        panel.begin(gone)
        await settled(pilot, lambda: "No log" in text(app))

    play(Stage(panel), story, size=(64, 24))


def test_nothing_is_read_while_nobody_looks(talk: Any) -> None:
    panel = RanksPanel()
    panel.display = False

    async def story(pilot: Any) -> None:
        panel.begin(talk())
        panel.see(ToolFinished(Call("rank_roster"), ToolResult("clean", ""), 0.1))
        await pilot.pause()
        assert not panel.workers
        panel.display = True
        await settled(pilot, lambda: "rank 5" in text(pilot.app))
        assert "rank 5" in str(panel.query_one("#ranks-about", Static).render())

    play(Stage(panel), story, size=(64, 24))
