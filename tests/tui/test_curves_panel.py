"""The curves of a run on the screen: what is drawn, marked and said, and what the keys do with it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Static
from traindoctor.agent.chat.talk import Conversation
from traindoctor.agent.core.report import CitedEvidence, FirstFailure, Report, RootCause, Sentence
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.tui.messages import OpenEvidence
from traindoctor.tui.panels.curves import CurvesPanel

from tests.sample import HOSTILE
from tests.tui.stage import NARROW, Stage, play, settled

RANKS, STEPS, BREAKS = 9, 2000, 1500


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Nine ranks; the loss of rank 3 blows up at 1470 and is no number from 1500 on."""
    folder = tmp_path / "run"
    folder.mkdir()
    for rank in range(RANKS):
        rows = []
        for step in range(0, STEPS, 10):
            loss = 2 + 8 * math.exp(-step / 300) + 0.05 * math.sin(step + rank)
            loss *= 1 + (step - 1450) / 10 if rank == 3 and step > 1450 else 1
            told = "nan" if rank == 3 and step >= BREAKS else f"{loss:.4f}"
            rows.append(f"step {step} | loss {told} | grad_norm {10 ** (4 - step / 300):.6f} | lr 3.0e-04\n")
        (folder / f"rank{rank}.log").write_text("".join(rows))
    return folder


def diagnosis() -> Report:
    """The loss was no number first on rank 3, by a line of its log."""
    line = CitedEvidence(id="E7", key="loss.first_nan_step", value=BREAKS, step=BREAKS, kind="line", rank=3,
                         file="rank3.log", line=151, text="step 1500 | loss nan")  # fmt: skip
    failed = RootCause(id="loss.lr_too_high", confidence=0.8, first_failure=FirstFailure(rank=3, step=1520))
    said = [Sentence(text="The loss became NaN.", cites=["E7"])]
    return Report(status="confirmed", root_cause=failed, summary=said, evidence=[line])


def shown(pilot: Pilot, name: str) -> str:
    """The words of one of the lines around the plot."""
    return str(pilot.app.query_one(CurvesPanel).query_one(f"#{name}", Static).render())


def drawn(panel: CurvesPanel) -> str:
    """The plot as it stands on the screen."""
    return "\n".join(
        str(s.text) for s in panel.query_one("Plot").render_lines(panel.query_one("Plot").region.reset_offset)
    )


async def opened(pilot: Pilot, panel: CurvesPanel, talk: Conversation, report: Report | None = None) -> None:
    panel.begin(talk)
    if report:
        panel.show(report)
    panel.focus()
    await settled(pilot, lambda: panel.query("Plot") and "least" in shown(pilot, "sentence") and shown(pilot, "key"))


def test_the_event_is_marked_and_told_and_keys_move_through_it(picture, talk, run):
    panel = CurvesPanel()

    async def story(pilot: Pilot) -> None:
        await opened(pilot, panel, talk(run), diagnosis())
        assert shown(pilot, "metrics").startswith("[loss]")
        assert "around the event" in shown(pilot, "part")
        assert "! first anomaly at step 1,500" in shown(pilot, "key")
        assert "# first failure at step 1,520" in shown(pilot, "key")
        assert "rank 3 (failed first)" in shown(pilot, "key")
        assert "not finite" in shown(pilot, "sentence") and "1,500" in shown(pilot, "sentence")
        assert {"!", "#", "NaN", "-"} <= {w for w in ("!", "#", "NaN", "-") if w in drawn(panel)}
        await picture(pilot, "wide")
        await pilot.press("comma")
        assert "step 1,500   rank 3 NaN" in shown(pilot, "under")
        await pilot.press("comma")
        assert "| step 1,490" in shown(pilot, "under") and "NaN" not in shown(pilot, "under")
        assert drawn(panel).count("|") > 5
        await pilot.press("e")
        assert {m.ident for m in pilot.app.of(OpenEvidence)} == {"E7"}
        before = shown(pilot, "part")
        await pilot.press("a")
        await settled(pilot, lambda: shown(pilot, "part").startswith("all steps 0 to 1,990"))
        await pilot.press("plus", "right")
        assert "of 0 to 1,990" in shown(pilot, "part") and shown(pilot, "part") != before
        await pilot.press("down")
        assert "| step 1,490   rank 3" in shown(pilot, "under"), "the marker stands on the same step"
        await pilot.press("a")
        await settled(pilot, lambda: "log scale" in shown(pilot, "part"))
        assert "[grad norm]" in shown(pilot, "metrics")
        await pilot.press("l")
        await settled(pilot, lambda: "log scale" not in shown(pilot, "part"))
        await pilot.press("up")
        pilot.app.theme = "textual-light"
        await pilot.resize_terminal(*NARROW)
        await settled(pilot, lambda: len(drawn(panel).split("\n")[0]) <= 80 and "1,800" not in drawn(panel))
        await picture(pilot, "narrow")

    play(Stage(panel), story)


def test_without_colours_curves_are_told_apart_and_nothing_of_a_run_steers_the_screen(
    picture, talk, tmp_path, monkeypatch
):
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "some").mkdir()
    names = [f"{HOSTILE.replace('/', '_')}.log", "[red]other[@click=app.quit].log", "third.log"]
    for number, name in enumerate(names):
        rows = (f"step {s} | loss {3 + number - s / 400:.3f} | lr 1e-4\n" for s in range(0, 400, 4))
        (tmp_path / "some" / name).write_text("".join(rows))
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "train.log").write_text("starting\nloading the model\n")
    panel = CurvesPanel()

    async def story(pilot: Pilot) -> None:
        assert "No run is open" in shown(pilot, "sentence")
        await picture(pilot, "no_run")
        panel.begin(talk(tmp_path / "none"))
        await settled(pilot, lambda: "Nothing to draw" in shown(pilot, "sentence"))
        await pilot.press("down", "a", "l", "plus", "left", "comma", "e")  # nothing to act on
        panel.begin(talk(tmp_path / "none"))
        await opened(pilot, panel, talk(tmp_path / "some"))
        words = " ".join(shown(pilot, n) for n in ("key", "sentence"))
        assert "\x1b" not in words and "\u202e" not in words
        assert "[red]other" in words and "\\x1b[31mred" in words
        assert all(sign in drawn(panel) for sign in "o+")
        await picture(pilot, "no_color_hostile")
        await pilot.press("e")
        assert "no line of evidence" in shown(pilot, "under") and not pilot.app.of(OpenEvidence)

    play(Stage(panel), story, size=(100, 30))


def test_what_is_read_anew_keeps_the_view_and_a_run_that_went_away_is_told(talk, run, tmp_path):
    """Two panels at once: neither shows anything of the other's; results of a run that was left are dropped."""
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "train.log").write_text("".join(f"step {s} loss 7.0 reward 0.5\n" for s in range(50)))
    panel, other = CurvesPanel(), CurvesPanel()

    async def story(pilot: Pilot) -> None:
        panel.begin(talk(run))
        await opened(pilot, panel, talk(tmp_path / "flat"))  # before the first was read
        other.begin(talk(run))
        await settled(pilot, lambda: other.query("Plot") and "NaN" in drawn(other))
        assert "NaN" not in drawn(panel) and "!" not in drawn(panel)
        assert "train.log: 50 points" in shown(pilot, "sentence")
        once = drawn(other)
        await pilot.press("down", "plus", "full_stop")
        assert "[reward]" in shown(pilot, "metrics") and "| step 25" in shown(pilot, "under")
        part = shown(pilot, "part")
        with (tmp_path / "flat" / "train.log").open("a") as log:
            log.write("".join(f"step {s} loss 7.0 reward 0.5\n" for s in range(50, 80)))
        panel.renew(Workspace([tmp_path / "flat"], live=False))
        await settled(pilot, lambda: "80 points" in shown(pilot, "sentence"))
        assert "[reward]" in shown(pilot, "metrics") and "| step 25" in shown(pilot, "under")
        assert shown(pilot, "part").split(" of ")[0] == part.split(" of ")[0]
        assert drawn(other) == once
        gone = Workspace([tmp_path / "flat"], live=False)
        (tmp_path / "flat" / "train.log").unlink()
        panel.renew(gone)
        await settled(
            pilot, lambda: "Nothing to draw" in shown(pilot, "sentence") or "could not" in shown(pilot, "sentence")
        )

    play(Stage(panel, other), story, size=(120, 60))
