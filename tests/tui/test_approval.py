"""The approval dialog: what it shows, which key says what, and which keys do not count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.app import App
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Input, Static
from traindoctor.agent.chat.consent import Asked, Decision, scope_of
from traindoctor.agent.core.types import Call
from traindoctor.agent.tools.rehearsal import Line, Rehearsed
from traindoctor.agent.tools.tool import all_tools
from traindoctor.tui.dialogs import approval
from traindoctor.tui.dialogs.approval import ApprovalDialog, Choices, ask_one_by_one, withdraw

from tests.sample import HOSTILE
from tests.tui.stage import NARROW, Picture, Stage, play, settled

PY_SPY = ("py-spy", "dump", "--nonblocking", "--subprocesses", "--pid")
TOUCHES = ("this machine (n7)", *(f"process {4240 + r} (rank {r}): python train.py --config a.yaml" for r in range(2)))


class Clock:
    """A time that only the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def asked(call: Call, rehearsed: Rehearsed) -> Asked:
    """A call as consent asks about it."""
    tool = all_tools()[call.tool]
    return Asked(call, tool.title, tool.risk, scope_of(call), rehearsed)


def dump(why: str = "the files settle nothing, and you named processes: where they stand may tell") -> Asked:
    """Two ranks that would be looked at."""
    lines = tuple(Line((*PY_SPY, str(4240 + r)), seconds=20) for r in range(2))
    return asked(Call("dump_stacks", why=why), Rehearsed(lines, "Each is run twice, 1 s apart.", TOUCHES))


def evaluation() -> Asked:
    """Words of a run everywhere they can stand."""
    code = f"open('{{answer}}', 'w').write(repr(eval({HOSTILE!r})))"
    env = (("MODE", HOSTILE),)
    line = Line(("probing", "-t", "4240", "eval", code, "\u202e", "x" * 30_000), env, f"/runs/{HOSTILE}", 15)
    call = Call("live_eval", {"expression": HOSTILE}, why=HOSTILE)
    return asked(call, Rehearsed((line,), HOSTILE, (f"process 1: {HOSTILE}",)))


def measured() -> Asked:
    """A long command with a variable."""
    python, script = (
        "/opt/venv/bin/python",
        "/opt/venv/lib/python3.11/site-packages/traindoctor/agent/jobs/probes/all_reduce.py",
    )
    argv = (python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=8", script, "67108864", "60", "0")
    line = Line(argv, (("OMP_NUM_THREADS", "1"),), seconds=80)
    note = "all_reduce_perf is not installed here."
    return asked(Call("nccl_test", {"seconds": 60.0}), Rehearsed((line,), note, ("this machine (n7)",)))


class Screen(Stage):
    """A prompt, and the dialogs above it."""

    def __init__(self, theme: str = "textual-dark") -> None:
        super().__init__(Static("1 4012 loss=nan"), Input(), theme=theme)
        self.said: list[Any] = []


async def shown(pilot: Pilot[Any], what: Asked, clock: Callable[[], float] = Clock()) -> ApprovalDialog:  # noqa: B008
    """The dialog on the screen, closed to keys."""
    dialog = ApprovalDialog(what, now=clock)
    pilot.app.push_screen(dialog, pilot.app.said.append)
    await settled(pilot, lambda: dialog.is_current and dialog.query(Choices))
    return dialog


async def opened(pilot: Pilot[Any], what: Asked) -> ApprovalDialog:
    """The same, open to keys."""
    clock = Clock()
    dialog = await shown(pilot, what, clock)
    clock.now += 0.6
    await settled(pilot, lambda: dialog.query_one(Choices).opened)
    return dialog


def text(app: App[Any]) -> str:
    """What stands on the screen."""
    return "\n".join("".join(s.text for s in row) for row in app.screen._compositor.render_strips())


def test_keys_and_what_they_say() -> None:
    app = Screen()
    said = {
        ("n",): Decision.NO, ("y",): Decision.ONCE, ("s",): Decision.SESSION, ("v",): Decision.NEVER,
        ("enter",): Decision.NO, ("right", "escape"): Decision.NO, ("tab", "enter"): Decision.ONCE,
        ("left", "enter"): Decision.NEVER, ("x", "f5", "escape"): Decision.NO,
    }  # fmt: skip

    async def story(pilot: Pilot[Any]) -> None:
        for keys, decision in said.items():
            app.said.clear()
            dialog = await opened(pilot, dump())
            await pilot.press(*keys)
            await settled(pilot, lambda: app.said)
            assert app.said == [decision] and dialog not in app.screen_stack, keys
        assert app.query_one(Input).value == ""

    play(app, story)


def test_what_is_typed_ahead_or_held_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval, "HELD", 2.0)  # on a starved machine even keys of one burst come slowly
    app, clock = Screen(), Clock()

    async def story(pilot: Pilot[Any]) -> None:
        app.query_one(Input).focus()
        await pilot.press("h", "i")
        dialog = await shown(pilot, dump(), clock)
        choices = dialog.query_one(Choices)
        for _ in range(3):  # keys every 0.4 s: the keyboard is never quiet for long enough
            await pilot.press("y", "enter")
            clock.now += 0.4
            await pilot.pause(0.06)
            assert not choices.opened and app.said == []
        assert "No key counts yet" in text(app)
        clock.now += 0.2
        await settled(pilot, lambda: choices.opened)
        for _ in range(3):  # one key that is held down
            app.post_message(Key("y", "y"))
        await settled(pilot, lambda: not choices.opened)
        await pilot.pause(2.2)
        assert not choices.opened and app.said == []
        clock.now += 0.6
        await settled(pilot, lambda: choices.opened)
        await pilot.press("y")
        await settled(pilot, lambda: app.said)
        assert app.said == [Decision.ONCE] and app.query_one(Input).value == "hi"

    play(app, story)


def test_several_one_by_one_until_a_lasting_answer() -> None:
    app = Screen()
    three = [dump(), measured(), asked(Call("dump_stacks", {"seconds": 5.0}), Rehearsed())]
    done: list[dict[str, Decision]] = []

    async def story(pilot: Pilot[Any]) -> None:
        ask_one_by_one(app, three, done.append)
        await settled(pilot, lambda: isinstance(app.screen, ApprovalDialog) and app.screen.query(Choices))
        assert "1 of 3" in text(app)
        await settled(pilot, lambda: app.screen.query_one(Choices).opened)
        await pilot.press("s")
        await settled(pilot, lambda: "2 of 3" in text(app))
        await settled(pilot, lambda: app.screen.query_one(Choices).opened)
        await pilot.press("n")
        await settled(pilot, lambda: done)  # the third is the check that was allowed for the session
        assert done == [{
            "dump_stacks()": Decision.SESSION, "nccl_test(seconds=60.0)": Decision.NO,
            "dump_stacks(seconds=5.0)": Decision.SESSION,
        }]  # fmt: skip
        ask_one_by_one(app, [dump()], done.append)
        await settled(pilot, lambda: isinstance(app.screen, ApprovalDialog))
        withdraw(app)
        await settled(pilot, lambda: not isinstance(app.screen, ApprovalDialog))
        assert len(done) == 1  # nobody answered
        ask_one_by_one(app, [dump()], done.append)
        await settled(pilot, lambda: isinstance(app.screen, ApprovalDialog) and app.screen.query(Choices))
        await pilot.press("ctrl+q")  # one may always leave
        assert app._exit and len(done) == 1

    play(app, story)


def test_pictures(picture: Picture) -> None:
    app = Screen()

    async def story(pilot: Pilot[Any]) -> None:
        await shown(pilot, dump())
        await picture(pilot, "closed to keys")
        app.pop_screen()
        await opened(pilot, dump())
        await picture(pilot, "two processes")
        app.theme = "textual-light"
        await pilot.press("right")
        await pilot.pause()
        await picture(pilot, "light, once is marked")
        app.theme = "textual-dark"
        await pilot.resize_terminal(*NARROW)
        await pilot.pause()
        await picture(pilot, "narrow")
        app.pop_screen()
        await opened(pilot, measured())
        await picture(pilot, "narrow measurement")
        app.pop_screen()
        await opened(pilot, asked(Call("nccl_test"), Rehearsed(note="As things are now nothing would be run: x.")))
        await picture(pilot, "nothing to run")

    play(app, story)


def test_hostile_words_and_long_commands_are_inert_and_not_cut_unsaid(
    picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = Screen()

    async def story(pilot: Pilot[Any]) -> None:
        dialog = await opened(pilot, evaluation())
        seen = text(app)
        assert "\x1b" not in seen and "\u202e" not in seen and "[bold]markup[/bold]" in seen
        assert "exactly this call" in seen and "lines below" in seen and "> [n] no" in seen
        await picture(pilot, "hostile")
        await pilot.press("end")
        await settled(pilot, lambda: "lines above" in text(app))
        assert "characters)" in text(app)
        await pilot.press("home")
        await settled(pilot, lambda: "lines above" not in text(app))
        assert app.said == [] and dialog.is_current
        app.pop_screen()
        lines = tuple(Line((*PY_SPY, str(pid)), seconds=20) for pid in range(5000, 5070))
        await opened(pilot, asked(Call("dump_stacks"), Rehearsed(lines)))
        await pilot.press("end")
        await settled(pilot, lambda: "lines above" in text(app))
        assert "and 6 more commands" in text(app) and "5063" in text(app) and "[n] no" in text(app)

    play(app, story, size=NARROW)
