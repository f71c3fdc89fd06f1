"""Following a running job from the screen: the line under the header, and what the thread brings."""

from __future__ import annotations

import math
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from traindoctor.agent.chat.chat_following import Following, Pulse
from traindoctor.agent.reading.curves.curves import curves
from traindoctor.tui.live.follow import Follow
from traindoctor.tui.live.strip import LiveStrip, line

from tests.tui.stage import NARROW, Stage, play, settled


def steps(first: int, last: int, loss: str = "2.5") -> str:
    return "".join(f"step {s} | loss {loss} | lr 1e-4\n" for s in range(first, last))


class Heard:
    """What came over the four callbacks."""

    def __init__(self, strip: LiveStrip) -> None:
        self.strip = strip
        self.pulses: list[Pulse] = []
        self.told: list[str] = []
        self.workspaces: list[Any] = []
        self.why: list[str] = []
        self.troubles: list[str] = []

    def tell(self, text: str, trouble: bool) -> None:
        self.told.append(text)
        self.troubles += [text] if trouble else []

    def pulse(self, pulse: Pulse) -> None:
        self.pulses.append(pulse)
        self.strip.show_pulse(pulse)

    def follow(self, root: Path, following: Following | None = None) -> Follow:
        return Follow([root], on_pulse=self.pulse, on_told=self.tell, on_workspace=self.workspaces.append,
                      on_wants_diagnosis=self.why.append, following=following or Following([root], poll=0.05, shows=0.0))  # fmt: skip


def test_a_job_is_followed_from_before_its_folder_is_there_until_it_is_gone(tmp_path: Path) -> None:
    strip = LiveStrip()
    heard = Heard(strip)
    run = tmp_path / "run"
    log = run / "train.log"

    async def story(pilot: Pilot) -> None:
        assert not strip.display or not strip.has_class("-following")
        follow = heard.follow(run)
        follow.start(pilot.app)
        follow.start(pilot.app)
        await settled(pilot, lambda: heard.told)
        assert "waiting" in str(strip.render()) and "not there yet" in heard.told[0]
        run.mkdir()
        log.write_text(steps(1, 41))
        await settled(pilot, lambda: heard.workspaces)
        assert str(strip.render()).startswith("> running   step 40   loss 2.5")
        assert [s.metric for s in curves(heard.workspaces[0]).series]
        with log.open("a") as more:
            more.write(steps(41, 44, "nan"))
        await settled(pilot, lambda: heard.why)
        assert heard.why == ["the loss is not finite at step 41"] and heard.why[0] in heard.told
        assert "! loss NaN" in str(strip.render()) and "! not finite first at step 41" in str(strip.render())
        shutil.rmtree(run)
        await settled(pilot, lambda: heard.pulses[-1].state == "gone")
        assert str(strip.render()).startswith("! gone")
        follow.stop()
        count = len(heard.pulses)
        await settled(pilot, lambda: not any(t.name == "following" for t in threading.enumerate()))
        assert len(heard.pulses) == count, "nothing comes after the end"

    play(Stage(strip), story)


def test_a_fault_of_ours_is_told_and_a_look_that_hangs_stops_nothing(tmp_path: Path) -> None:
    strip = LiveStrip()
    heard = Heard(strip)

    asked, never = threading.Event(), threading.Event()

    class Hangs(Following):
        def look(self) -> Any:
            asked.set()
            never.wait(60)
            return super().look()

    class Broken(Following):
        def look(self) -> Any:
            raise ZeroDivisionError("nothing to divide")

    async def story(pilot: Pilot) -> None:
        follow = heard.follow(tmp_path, Broken([tmp_path]))
        follow.start(pilot.app)
        await settled(pilot, lambda: heard.told)
        assert heard.told == ["bug in doctor: the job is followed no more: ZeroDivisionError: nothing to divide"]

        hangs = heard.follow(tmp_path, Hangs([tmp_path]))
        hangs.start(pilot.app)
        await settled(pilot, asked.is_set)
        hangs.stop()

    play(Stage(strip), story)
    never.set()
    assert not heard.pulses


def test_the_line_says_the_most_telling_first_in_whatever_room_there_is(picture, monkeypatch) -> None:
    now = time.time()
    well = Pulse("running", now, step=4012, loss=2.3141, pace=2.1, grown=now - 3, files=9)
    bad = Pulse("died", now, step=4012, loss=math.nan, pace=0.2, grown=now - 240, files=9, not_finite=4000)
    assert str(line(well, 0, 100)) == "> running   step 4,012   loss 2.314   last line 3 s ago   2.1 s a step"
    assert str(line(well, 4, 40)) == "> running   step 4,012   loss 2.314"
    assert str(line(bad, 0, 160)) == (
        "! died   step 4,012   ! loss NaN   last line 4 min ago   5 steps/s   ! not finite first at step 4,000"
    )
    assert str(line(well, 60, 100)).startswith("! running   not looked at for 60 s   step")
    strips = [LiveStrip(id="well"), LiveStrip(id="bad"), LiveStrip(id="silent"), LiveStrip(id="none")]
    silent = Pulse("silent", now, step=7, loss=1.0, grown=now - 600, spike=(5, 81.5))

    async def story(pilot: Pilot) -> None:
        for strip, pulse in zip(strips, (replace(well, grown=now - 180), bad, silent), strict=False):
            strip.show_pulse(pulse)
        await pilot.pause()
        await picture(pilot, "dark")
        pilot.app.theme = "textual-light"
        await pilot.resize_terminal(*NARROW)
        await settled(pilot, lambda: strips[0].size.width < 80)
        await picture(pilot, "light_narrow")

    play(Stage(*strips), story, size=(120, 8))
    monkeypatch.setenv("NO_COLOR", "1")

    async def grey(pilot: Pilot) -> None:
        strips[1].show_pulse(bad)
        await pilot.pause()
        await picture(pilot, "no_color")

    strips[1] = LiveStrip()
    play(Stage(strips[1]), grey, size=(120, 8))
