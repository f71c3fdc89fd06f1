"""The question before a file is changed: all of it is seen, what was typed before does not count, no is the default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Static
from traindoctor.agent.chat.offered_repairs import PreparedApply, Repairs, Row
from traindoctor.agent.chat.talk import Conversation
from traindoctor.agent.core.report import Report
from traindoctor.agent.core.unified import unified
from traindoctor.agent.repair.applying.journal import BEGUN, Journal
from traindoctor.agent.repair.patch_rows import BY_MODEL, FOREIGN, diff
from traindoctor.tui.dialogs import change as change_dialog
from traindoctor.tui.dialogs.change import ChangeDialog
from traindoctor.tui.messages import Told
from traindoctor.tui.panels.repairs_flow import apply_patches, begin_apply, begin_undo
from traindoctor.tui.repairs_rows import RowsView

from tests.repair.applying.makers import patch, report, tree
from tests.sample import HOSTILE
from tests.tui.stage import NARROW, Picture, Stage, play, settled, talk_about

OLD = "# ours\r\nlr: 1e-4\r\nfp16: true\r\nsteps: 10\r\n"
NEW = OLD.replace("fp16: true", "bf16: true")


def change(rows: list[Row], **more: Any) -> PreparedApply:
    """A change that is shown and never written."""
    fields: dict[str, Any] = {"ids": ("P1",), "question": "Write this change to 1 file?", "marks": (), "warnings": (),
                              "where": ("to be written: /runs/exp42/ds_config.json (+1 -1 lines)",), "already": (),
                              "ready": None, "source": "s", "cause": "c"}  # fmt: skip
    return PreparedApply(rows=tuple(rows), **(fields | more))


def said(pilot: Pilot[Any], name: str) -> str:
    """What a line of the dialog says."""
    return str(pilot.app.screen.query_one(f"#{name}", Static).render())


async def heard(pilot: Pilot[Any]) -> None:
    """Wait until a key counts."""
    await settled(pilot, lambda: isinstance(pilot.app.screen, ChangeDialog) and not pilot.app.screen.deaf)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys count sooner where that is not what is looked at."""
    monkeypatch.setattr(change_dialog, "DEAF", 0.05)


@pytest.fixture
def case(tmp_path: Path) -> tuple[Path, Report, Conversation]:
    """A run of one file with the line ends of another system, a report from elsewhere, a conversation about it."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "train.yaml").write_bytes(OLD.encode())
    made = Report.model_validate(report([run], [patch("P1", "train.yaml", OLD, NEW, by="model", verify="look again")]))
    return run, made, talk_about(run)


def test_it_is_written_and_put_back_after_a_yes_that_counts(
    case: tuple[Path, Report, Conversation], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, made, talk = case
    before = tree(run)
    app = Stage()

    def told() -> str:
        return "\n".join(m.text for m in app.of(Told))

    async def asked(pilot: Pilot[Any]) -> ChangeDialog:
        await settled(pilot, lambda: isinstance(app.screen, ChangeDialog))
        assert isinstance(app.screen, ChangeDialog)
        return app.screen

    async def story(pilot: Pilot[Any]) -> None:
        screen = app.screen
        begin_apply(screen, talk, made, ["P1"])
        dialog = await asked(pilot)
        assert f"! {FOREIGN}" in said(pilot, "change-warnings") and f"! {BY_MODEL}" in said(pilot, "change-warnings")
        await pilot.press("y", "enter", "n")  # typed before it was there
        assert app.screen is dialog and dialog.deaf and tree(run) == before
        assert "too soon" in said(pilot, "change-below")
        begin_apply(screen, talk, made, ["P1"])  # a second wish does not cover the question
        await settled(pilot, lambda: "another change" in told())
        await settled(pilot, lambda: "ends here" in said(pilot, "change-below"))
        assert isinstance(app.focused, Button) and app.focused.id == "change-no"
        await pilot.press("enter")
        await settled(pilot, lambda: "nothing was written" in told())
        assert app.screen is screen and tree(run) == before
        monkeypatch.setattr(change_dialog, "DEAF", 0.05)
        begin_apply(screen, talk, made, ["P1"])
        await asked(pilot)
        await heard(pilot)
        await pilot.press("y")
        await settled(pilot, lambda: "doctor undo" in told())
        assert (run / "train.yaml").read_bytes() == NEW.encode() and "look again" in told()
        begin_apply(screen, talk, made, ["P1"])
        await settled(pilot, lambda: "already applied: P1" in told())
        begin_undo(screen, talk)
        await asked(pilot)
        await heard(pilot)
        assert "Put 1 file back?" in said(pilot, "change-question")
        await pilot.press("right", "enter")
        await settled(pilot, lambda: "undone: " in told())
        assert tree(run) == before
        begin_apply(screen, talk, made, ["P1"])
        await asked(pilot)
        (run / "train.yaml").write_text("lr: mine\n")
        await heard(pilot)
        await pilot.press("y")
        await settled(pilot, lambda: "changed meanwhile" in told())
        assert (run / "train.yaml").read_text() == "lr: mine\n"
        await apply_patches(screen, talk, made, ["P9"])
        await settled(pilot, lambda: "no patch P9" in told())
        assert any(m.trouble for m in app.of(Told)) and "bug in doctor" not in told()

    play(app, story)


@pytest.mark.usefixtures("quick")
def test_what_was_cut_short_is_put_back_first(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("a.yaml", "b.yaml"):
        (run / name).write_bytes(OLD.encode())
    made = Report.model_validate(report([run], [patch("P1", "a.yaml", OLD, NEW), patch("P2", "b.yaml", OLD, NEW)]))
    talk = talk_about(run)
    before = tree(run)
    repairs = Repairs(talk)
    repairs.carry_out(repairs.prepare(made))
    journal = Journal(talk.state)
    journal.mark(journal.entries()[0], BEGUN)  # as a kill between two files leaves it
    (run / "b.yaml").write_bytes(OLD.encode())
    app = Stage()

    async def story(pilot: Pilot[Any]) -> None:
        for key, then in (("n", "put back first"), ("y", "undone: ")):
            begin_apply(app.screen, talk, made, [])
            await settled(pilot, lambda: isinstance(app.screen, ChangeDialog))
            await heard(pilot)
            assert "an apply was interrupted" in said(pilot, "change-warnings")
            assert "Put 1 file back?" in said(pilot, "change-question")
            await pilot.press(key)
            await settled(pilot, lambda then=then: any(then in m.text for m in app.of(Told)))
        await settled(pilot, lambda: isinstance(app.screen, ChangeDialog))  # and then what was wished for
        assert "Write these changes to 2 files?" in said(pilot, "change-question") and tree(run) == before
        await heard(pilot)
        await pilot.press("escape")
        assert tree(run) == before

    play(app, story)


@pytest.mark.usefixtures("quick")
def test_a_long_change_is_read_to_its_end_first(picture: Picture) -> None:
    old = "".join(f"line {n}\n" for n in range(1_000))
    rows = list(diff(unified(old, old.replace("line", "row"), "long.txt")))
    assert len(rows) > 2_000
    app = Stage()
    answers: list[bool | None] = []

    async def story(pilot: Pilot[Any]) -> None:
        await app.push_screen(ChangeDialog(change(rows)), answers.append)
        await heard(pilot)
        await picture(pilot, "long-narrow")
        await pilot.press("y")
        assert not answers and "go to the end first" in said(pilot, "change-below")
        await pilot.press("right", "enter")  # the button is no way around it
        assert not answers
        await pilot.press("end")
        await settled(pilot, lambda: "ends here" in said(pilot, "change-below"))
        await pilot.press("home", "y")
        await settled(pilot, lambda: answers)
        assert answers == [True]
        many = tuple(f"file{n}.yaml has local changes under git" for n in range(12))
        await app.push_screen(ChangeDialog(change(rows[:4], warnings=many)))
        await heard(pilot)
        assert "! 12 warnings stand whole before the change below" in said(pilot, "change-warnings")
        assert "! file0.yaml has" in app.screen.query_one(RowsView).render_line(0).text
        assert app.screen.query_one("#change-yes").region.bottom < NARROW[1]
        await pilot.resize_terminal(60, 8)  # nothing of the change is in sight: nobody can have read it
        await pilot.press("end", "y")
        assert isinstance(app.screen, ChangeDialog) and "make the window larger" in said(pilot, "change-below")
        await pilot.resize_terminal(*NARROW)
        await settled(pilot, lambda: "larger" not in said(pilot, "change-below"))
        await pilot.press("end")
        await settled(pilot, lambda: "ends here" in said(pilot, "change-below"))
        await pilot.press("y")
        assert not isinstance(app.screen, ChangeDialog)

    play(app, story, size=NARROW)


@pytest.mark.usefixtures("quick")
def test_hostile_text_steers_nothing(picture: Picture, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{HOSTILE}\n.yaml"
    text = unified("a = 1\n\tb = 2\n", f"a = {HOSTILE}\n        b = 2\n{'x' * 300}\n", name)
    shown = change(
        [Row("title", f"P1  {HOSTILE}"), *diff(text)], where=(f"to be written: /runs/{HOSTILE}/f (+2 -1 lines)",),
        marks=(FOREIGN, BY_MODEL), warnings=(f"{HOSTILE} has local changes under git",),
    )  # fmt: skip
    for theme, size, plain in (
        ("textual-dark", (160, 50), ""),
        ("textual-light", NARROW, ""),
        ("textual-dark", NARROW, "1"),
    ):
        if plain:
            monkeypatch.setenv("NO_COLOR", plain)
        app = Stage(theme=theme)

        async def story(pilot: Pilot[Any], label: str = f"hostile-{theme}-{size[0]}{'-plain' * bool(plain)}") -> None:
            await pilot.app.push_screen(ChangeDialog(shown))
            await heard(pilot)
            lines = [pilot.app.screen.query_one(RowsView).render_line(y).text for y in range(30)]
            drawn = "\n".join(lines)
            assert "\x1b" not in drawn and "\u202e" not in drawn and "\\x1b[31mred" in drawn and "[bold]" in drawn
            assert "-\u2192   b = 2" in drawn and "+        b = 2" in drawn  # a tab is told from blanks
            await picture(pilot, label)

        play(app, story, size=size)
