"""Over a narrow and slow line: what is waited for is seen first, nothing jumps, and what is cut says so."""

from __future__ import annotations

import re
from typing import Any

import pytest
from textual.pilot import Pilot
from traindoctor.agent.core.report import Sentence
from traindoctor.agent.core.types import Call, ToolResult
from traindoctor.tui.chat.activity import Activity
from traindoctor.tui.chat.transcript import Transcript
from traindoctor.tui.viewer.screen import FileViewer

from tests.sample import HOSTILE, sample
from tests.tui.house import answered, chat_app, shows, typed, words
from tests.tui.stage import NARROW, Picture, Stage, play, settled

VERDICT = "hw.gpu_fell_off_bus  (confirmed"


def rows(pilot: Pilot[Any]) -> list[str]:
    """The rows of the screen."""
    return words(pilot).splitlines()


def told(*, cites: int = 1) -> Any:
    """A report of which each sentence cites so many lines."""
    sentences = [Sentence(text=f"Sentence {n} is here.", cites=[f"E{k}" for k in range(1, cites + 1)]) for n in (1, 2)]
    return sample(summary=sentences)


def test_the_verdict_is_on_top_and_stays_there_until_somebody_scrolls() -> None:
    async def story(pilot: Pilot[Any]) -> None:
        screen = await answered(pilot, "why did it die?")
        await settled(pilot, lambda: VERDICT in rows(pilot)[1])
        assert "more lines below" in words(pilot), "the report is longer than the screen"
        for size in ((40, 12), (20, 5), (160, 50), (60, 20), NARROW):
            await pilot.resize_terminal(*size)
        await settled(pilot, lambda: VERDICT in rows(pilot)[1])
        y, cited = next((n, m) for n, row in enumerate(rows(pilot)) if (m := re.search(r"\[(E\d+), ", row)))
        await pilot.click(offset=(cited.start(1) + 1, y))
        await settled(pilot, lambda: isinstance(pilot.app.screen, FileViewer))
        await shows(pilot, "dmesg_node17.txt:4")
        await pilot.press("escape")
        await settled(pilot, lambda: pilot.app.screen is screen)
        screen.transcript.note("the job wrote something")
        await pilot.pause()
        assert VERDICT in rows(pilot)[1], "what nobody asked for moves nothing"
        await pilot.press("f2")
        await settled(pilot, lambda: "[evidence f2]" in words(pilot))
        assert "more lines below" not in words(pilot), "another view is shown"
        await pilot.press("escape")
        await shows(pilot, "more lines below")
        await typed(pilot, "/export nowhere/at/all.md")
        await settled(pilot, lambda: "! " in rows(pilot)[-5] + rows(pilot)[-4])
        assert "more line" not in words(pilot), "what a command came to is seen"
        await answered(pilot, "why?")
        await settled(pilot, lambda: "The GPU has fallen off the bus (confirmed" in rows(pilot)[1])
        assert "an answer" not in words(pilot)

    play(chat_app(), story, NARROW, hook=False)


def test_who_reads_older_text_is_not_moved() -> None:
    async def story(pilot: Pilot[Any]) -> None:
        screen = await answered(pilot, "why did it die?")
        transcript = screen.transcript
        await settled(pilot, lambda: transcript.below)
        transcript.page(1)
        await pilot.pause()
        assert VERDICT not in words(pilot)
        transcript.focus()
        await pilot.press("g")
        await settled(pilot, lambda: transcript.scroll_y == 0)
        below = transcript.below
        screen.put("are you sure?")
        await answered(pilot, reports=2)
        await settled(pilot, lambda: transcript.below > below + 5)
        assert transcript.scroll_y == 0, "the second answer is below, and says so"
        assert f"{transcript.below} more lines below" in words(pilot)
        assert "no check yet" not in words(pilot)
        await pilot.press("G")
        await settled(pilot, lambda: not transcript.below)
        assert "more line" not in words(pilot)

    play(chat_app(), story, NARROW, hook=False)


@pytest.mark.parametrize(
    ("look", "size"),
    [("doctor-dark", NARROW), ("doctor-light", (60, 20)), ("plain", NARROW), ("doctor-dark", (40, 12))],
    ids=["dark", "light-60", "plain", "dark-40"],
)
def test_an_answer_looks_the_same_everywhere(
    look: str, size: tuple[int, int], picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if look == "plain":
        monkeypatch.setenv("NO_COLOR", "1")
    transcript = Transcript()
    stage = Stage(transcript, Activity(), theme="textual-light" if "light" in look else "textual-dark")

    async def story(pilot: Pilot[Any]) -> None:
        if size == NARROW:  # each state once without colours and where it is narrow, all of them in the dark
            await picture(pilot, "empty")
        transcript.ask(f"why {HOSTILE}")
        assert transcript.checks
        for tool, summary in (("scan_logs", "\u65e5\u672c\u8a9e \U0001f525 " * 40), ("watchdog", HOSTILE)):
            call = Call(tool=tool, args={"file": HOSTILE, "start": 2}, why="asked")
            transcript.checks.begin(call)
            transcript.checks.finish(call, ToolResult(outcome="finding", summary=summary, text=HOSTILE), 0.4)
        await pilot.pause()
        if look != "plain" and size != (40, 12):
            await picture(pilot, "checks")
        transcript.answer(sample())
        await settled(pilot, lambda: "loss.fp16_overflow" in rows(pilot)[0])
        await picture(pilot, "answer")
        transcript.answer(told(cites=4))
        transcript.focus()
        await pilot.press("G")
        await settled(pilot, lambda: not transcript.below)
        if look == "doctor-dark":
            await picture(pilot, "focus")

    play(stage, story, size)


def test_long_marks_stand_behind_their_text_and_remarks_on_their_own_lines() -> None:
    transcript = Transcript()
    answer = told(cites=4).model_copy(update={"status": "answer"})

    async def story(pilot: Pilot[Any]) -> None:
        transcript.answer(answer)
        await settled(pilot, lambda: "Sentence 1 is here. [E1, E2, E3, E4]" in words(pilot))
        transcript.answer(sample())
        await settled(pilot, lambda: "/report shows all of it here" in words(pilot))
        shown = [row.strip(" \u258c\u258e") for row in rows(pilot)]
        assert any(r.startswith("risk: Other numbers") for r in shown)
        assert any(r.startswith("by hand: ") for r in shown) and any(r.startswith("then check: ") for r in shown)
        assert any("/evidence E1 opens one" in r for r in shown)

    play(Stage(transcript), story, (80, 40))
