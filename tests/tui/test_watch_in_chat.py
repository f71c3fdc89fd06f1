"""A running job in the conversation, with real files that grow: what is told, when it is diagnosed, what goes on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from traindoctor.agent.chat import chat_following
from traindoctor.agent.chat.talk import Wanted
from traindoctor.tui.chat.transcript import Line
from traindoctor.tui.live import arrival

from tests.tui.house import answered, chat_app, opened, screen_of, shows, typed, words
from tests.tui.stage import NARROW, WIDE, play, settled


def steps(first: int, last: int, loss: str = "2.5", rank: int | None = None) -> str:
    label = "" if rank is None else f"[rank{rank}] "
    return "".join(
        f"2026-03-04 10:00:{s % 60:02d} {label}step {s}/60 | loss {loss} | lr 1e-4\n" for s in range(first, last)
    )


def add(log: Path, text: str) -> None:
    with log.open("a") as stream:
        stream.write(text)


def told(pilot: Pilot[Any]) -> list[str]:
    """The lines of the transcript, in order; those in trouble with their mark."""
    return [str(line.render()) for line in screen_of(pilot).transcript.query(Line)]


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other fast, and silence is judged soon."""
    monkeypatch.setattr(chat_following.Following.__init__, "__defaults__", _defaults(poll=0.05, shows=0.3))
    monkeypatch.setattr(arrival, "POLL", 0.05)
    monkeypatch.setattr(chat_following, "_FRESH", 0.2)
    monkeypatch.setattr(chat_following, "SHARE", 1.0)
    monkeypatch.setattr(chat_following, "_QUIET", 0.4)


def _defaults(**changed: float) -> tuple[Any, ...]:
    import inspect

    found = inspect.signature(chat_following.Following).parameters
    return tuple(changed.get(n, p.default) for n, p in found.items() if p.default is not p.empty)


def test_a_run_is_awaited_then_followed_through_nan_to_a_diagnosis_of_the_new_lines(tmp_path: Path) -> None:
    run, log = tmp_path / "exp43", tmp_path / "exp43" / "train.log"
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "train.log").write_text(steps(0, 3))
    app = chat_app(tmp_path / "before")

    async def story(pilot: Pilot[Any]) -> None:
        screen = await opened(pilot)
        screen.live.await_run(Wanted(paths=(str(run),)))
        await shows(pilot, "- waiting")
        run.mkdir()
        await typed(pilot, "/watch off")
        await settled(pilot, lambda: not screen.live.strip.has_class("-following"))
        screen.live.await_run(Wanted(paths=(str(run),)))
        log.write_text(steps(0, 30))
        await settled(pilot, lambda: screen.talk is not None and screen.talk.workspace.roots == [run])
        await shows(pilot, "> running   step 29   loss 2.5")
        assert not [t for t in told(pilot) if t.startswith("!")], "nothing alarms in a healthy run"
        screen.prompt.focus()
        await pilot.press(*"half")
        add(log, steps(30, 34, "nan"))
        await shows(pilot, "! loss NaN")
        await settled(pilot, lambda: screen.talk and screen.talk.reports and screen.asking.now is None)
        talk = screen.talk
        assert talk and talk.diagnosis and "the loss is not finite at step 30" in talk.reports[-1].question
        (report,) = talk.reports
        assert any(e.key == "loss.first_nan_step" and e.step == 30 for e in report.evidence), "of the new lines"
        assert screen.prompt.text == "half", "what was being typed stays"
        alarms = [t for t in told(pilot) if t.startswith("!")]
        assert alarms == ["! the loss is not finite at step 30"]
        screen.prompt.load("")
        before = talk.session
        await answered(pilot, "why?")
        assert talk.reports[-1].status == "answer" and talk.session == before, "a follow-up stays in its session"
        count = len(talk.reports)
        for step in range(34, 40):  # its usual pace again: an end is judged by that
            add(log, steps(step, step + 1, "nan"))
            await shows(pilot, f"step {step}")
        add(log, 'Traceback (most recent call last):\n  File "t.py", line 3, in f\n    x()\nRuntimeError: boom\n')
        await settled(pilot, lambda: len(talk.reports) > count and screen.asking.now is None)
        assert talk.session != before and any("boom" in e.text for e in talk.reports[-1].evidence)
        assert told(pilot).count("! the job died") == 1 and len(talk.reports) == count + 1
        shutil.rmtree(run)
        await shows(pilot, "! gone")
        await typed(pilot, "/watch off")
        await settled(pilot, lambda: not screen.live.strip.has_class("-following"))

    play(app, story, WIDE, hook=False)


def test_a_job_that_ends_well_says_so_and_asks_for_nothing(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(steps(0, 30, rank=0))

    async def story(pilot: Pilot[Any]) -> None:
        screen = await opened(pilot)
        await pilot.press("f5")
        await settled(pilot, lambda: "29" in words(pilot) and "rank 0" in words(pilot))
        add(log, steps(30, 50, rank=1))
        await settled(pilot, lambda: "rank 1" in words(pilot))
        add(log, "2026-03-04 10:01:59 [rank0] Training completed.\n")
        await shows(pilot, "- finished")
        await pilot.press("escape")
        await shows(pilot, "the job came to its end")
        assert screen.talk and not screen.talk.reports and screen.asking.now is None
        assert not [t for t in told(pilot) if t.startswith("!")]

    play(chat_app(tmp_path, watch=True), story, NARROW, hook=False)


def test_a_failure_that_was_caught_is_no_end_and_a_restart_is_told(tmp_path: Path) -> None:
    """The rest of what is told of a job is in tests/chat/test_following.py."""
    log = tmp_path / "train.log"
    caught = 'Traceback (most recent call last):\n  File "d.py", line 3, in get\n    x()\nConnectionError: timed out\n'
    log.write_text(steps(0, 20) + caught + steps(20, 30))
    now = log.stat().st_mtime
    following_it = chat_following.Following([tmp_path], now=lambda: now)
    following_it.look()
    now += 60
    assert following_it.look().pulse.state == "running"
    now += 1
    add(log, steps(3, 9))
    look = following_it.look()
    assert look.told == ("the steps go on from 3 after 29: started or counted again",) and not look.troubles
    assert look.pulse.step == 8
