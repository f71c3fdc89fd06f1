"""The repairs beside the conversation: what each changes, what is applied, and what the keys ask of the screen."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Static
from traindoctor.agent.chat.offered_repairs import Repairs
from traindoctor.agent.chat.talk import Conversation
from traindoctor.agent.core.report import ByHand, Choice, Patch, Report, ReportFix, Restart
from traindoctor.agent.core.unified import unified
from traindoctor.tui import repairs_rows
from traindoctor.tui.messages import ApplyPatches, OpenFile, Told, UndoApply
from traindoctor.tui.panels.repairs import RepairsPanel
from traindoctor.tui.repairs_rows import Drawn, RowsView, folded

from tests.repair.applying.makers import patch, report
from tests.sample import HOSTILE, sample
from tests.tui.stage import NARROW, WIDE, Picture, Stage, play, settled

OLD = "# ours\r\nlr: 1e-4\r\nfp16: true\r\nsteps: 10\r\n"
NEW = OLD.replace("fp16: true", "bf16: true")


def head(pilot: Pilot[Any]) -> str:
    """The line above the repairs."""
    return str(pilot.app.query_one("#repairs-head", Static).render())


def drawn(pilot: Pilot[Any]) -> str:
    """What is in sight of the repairs."""
    view = pilot.app.query_one(RowsView)
    return "\n".join(view.render_line(y).text.rstrip() for y in range(view.size.height))


def full() -> Report:
    """A report with repairs of every kind, and how to start again."""
    text = "{\n" + "".join(f'  "key{n}": {n},\n' for n in range(1_000)) + "}\n"
    long = Patch(id="P2", file="big.json", sha256="1" * 64, diff=unified(text, text.replace("key", "name"), "big.json"),
                 title="Rename keys", by="model", edits=["key -> name"])  # fmt: skip
    named = sample()
    fixes = [
        *named.fixes,
        ReportFix(title="Lower the learning rate", why="Its gradients grow before the first NaN, and clipping is off, "
                  "so that one bad batch is enough to end it.", risk="It learns slower.", patches=["P2"]),
        ReportFix(title="Leave the batch out", commands=["python skip.py --step 4012", "sbatch train.sh"],
                  by_hand=[ByHand(text="skip:\n  - 4012", where="data.yaml"), ByHand(text="", why="made elsewhere")]),
    ]  # fmt: skip
    again = Restart(advice="restart", from_checkpoint="ckpt/global_step4000", choices=[
        Choice(checkpoint="ckpt/global_step4000", step=4000, clean=True, lost_steps=12, lost_gpu_hours=0.4,
               resume=["torchrun train.py --resume ckpt/global_step4000"], why="the newest that is whole"),
        Choice(checkpoint="ckpt/global_step3000", step=3000, lost_steps=1012, lost_gpu_hours=31.5)])  # fmt: skip
    return named.model_copy(update={"fixes": fixes, "patches": [*named.patches, long], "restart": again})


def test_it_shows_what_can_be_done_and_asks_for_it(picture: Picture, talk: Any) -> None:
    panel = RepairsPanel()
    app = Stage(panel)

    async def story(pilot: Pilot[Any]) -> None:
        await picture(pilot, "empty")
        panel.begin(talk())
        panel.show(full())
        panel.enter()
        await settled(pilot, lambda: "Starting again" in "".join(b.rows[0].text for b in panel._blocks))
        assert "3 repairs, 2 with patches" in head(pilot)
        assert "> 1. Train in bfloat16" in drawn(pilot) and '-  "fp16": {"enabled": true}' in drawn(pilot)
        await picture(pilot, "wide")
        app.theme = "textual-light"
        app.screen.add_class("-narrow")  # the conversation is covered: what is told stands here
        await pilot.press("u")
        assert "nothing of this repair is applied" in str(panel.query_one("#repairs-told", Static).render())
        assert panel.query_one("#repairs-told").display
        app.screen.remove_class("-narrow")
        await pilot.press("c", "o", "u", "enter", "down")
        assert app.clipboard == "bf16 = true"
        assert app.of(OpenFile)[-1] == OpenFile("ds_config.json", 2) and app.of(ApplyPatches)[-1].ids == ["P1"]
        assert not app.of(UndoApply) and "nothing of this repair is applied" in app.of(Told)[-1].text
        assert "> 2. Lower the learning rate" in drawn(pilot) and "! proposed by the model" in drawn(pilot)
        await picture(pilot, "wide-light")
        await pilot.press("c", "a", "down")
        assert app.clipboard.startswith("--- a/big.json") and app.of(ApplyPatches)[-1].ids == ["P2"]
        await pilot.press("c", "a", "end", "c")
        assert any("has no patch" in told.text for told in app.of(Told))
        assert app.clipboard == "torchrun train.py --resume ckpt/global_step4000"
        await pilot.resize_terminal(*NARROW)
        await pilot.press("home")
        await picture(pilot, "narrow")
        await pilot.press("end", "up")
        view = pilot.app.query_one(RowsView)
        assert all(view.render_line(y).cell_length == view.scrollable_content_region.width for y in range(24))
        await picture(pilot, "narrow-by-hand")
        panel.show(sample(fixes=[ReportFix(title="By hand", by_hand=[ByHand(text="skip:\n  - 4012", where="data.yaml")])],
                          patches=[]))  # fmt: skip
        await pilot.press("c")
        assert app.clipboard == "skip:\n  - 4012"
        panel.show(sample(fixes=[], patches=[]))
        assert "names no repair" in head(pilot)
        panel.show(sample(patches=[]))
        assert "names a patch P1 that it does not have" in head(pilot)
        await pilot.press("enter", "u", "o", "c", "down")  # of nothing: nothing

    play(app, story, size=WIDE)


def test_what_is_applied_is_told_and_taken_back(
    picture: Picture, tmp_path: Path, talk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    run = tmp_path / "run"
    run.mkdir()
    (run / "train.yaml").write_bytes(OLD.encode())
    made = Report.model_validate(report([run], [patch("P1", "train.yaml", OLD, NEW, by="model", why=HOSTILE)]))
    made.fixes[0].title = HOSTILE
    made.fixes[0].commands = [f"echo {HOSTILE}\n# next"]
    about: Conversation = talk(run)
    panel = RepairsPanel()
    app = Stage(panel)

    async def story(pilot: Pilot[Any]) -> None:
        panel.begin(about)
        panel.show(made)
        panel.enter()
        await settled(pilot, lambda: "not made here" in head(pilot))
        assert "not applied" in drawn(pilot) and "\x1b" not in drawn(pilot) and "\\x1b[31mred" in drawn(pilot)
        await picture(pilot, "hostile-plain")
        await pilot.press("c")
        assert "\x1b" not in app.clipboard and "\n" not in app.clipboard
        repairs = Repairs(about)
        done = repairs.carry_out(repairs.prepare(made))
        panel.look_again()
        await settled(pilot, lambda: "+ applied" in drawn(pilot))
        await pilot.press("u")
        assert app.of(UndoApply)[-1].ident == done.ident
        panel.show(sample())  # another report: what was applied stands apart
        await settled(pilot, lambda: "Applied before: P1" in drawn(pilot))
        await pilot.press("end", "u")
        assert app.of(UndoApply)[-1].ident == done.ident
        repairs.undo(repairs.prepare_undo())
        panel.look_again()
        await settled(pilot, lambda: "Applied before" not in drawn(pilot))

    play(app, story, size=NARROW)


def test_lines_are_folded_and_nothing_is_lost() -> None:
    words = "a learning rate of 1e-4 is far too high for " + "x" * 60
    lines = list(folded(Drawn("words", words, 4), 30))
    assert max(map(len, lines)) <= 30 and "".join(words.split()) == "".join("".join(lines).split())
    code = f"+{'配' * 50}"
    pieces = list(folded(Drawn("in", code), 21))
    assert all(p.startswith("> ") for p in pieces[1:])
    assert "".join([pieces[0], *(p.removeprefix("> ") for p in pieces[1:])]) == code
    assert repairs_rows.tabs_seen("+\ta\tb") == "+\u2192   a\u2192  b"
    assert list(folded(Drawn("note", ""), 10)) == [""]


def test_a_folded_command_is_the_same_command_to_a_shell() -> None:
    command = "scontrol update nodename=node17 state=drain reason=\"GPU lost\" -o <hosts> && echo it\\'s 'a b'"
    for width in range(30, 90):
        lines = list(folded(Drawn("command", command, 6), width))
        assert all(len(line) <= width for line in lines) and all(line.endswith(" \\") for line in lines[:-1])
        assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(command)
    for odd in ("x" * 80, "echo a # and a comment that is too long for it", "echo 'a quote that is never closed here"):
        assert next(iter(list(folded(Drawn("command", odd), 30))[1:])).startswith("> ")
