"""The chat with a model behind real HTTP: its words, its calls, what it asks for, what it costs, and how it fails."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.widgets import Markdown, Static
from traindoctor.agent.llm.model_settings import ModelSettings
from traindoctor.agent.llm.wire import Wire
from traindoctor.evals import endpoint
from traindoctor.evals.endpoint import Fault, Say, ScriptedEndpoint
from traindoctor.evals.faults import FAULTS
from traindoctor.tui.chat.card import Card
from traindoctor.tui.chat.writing import Writing
from traindoctor.tui.dialogs.approval import ApprovalDialog, Choices
from traindoctor.tui.dialogs.change import ChangeDialog
from traindoctor.tui.dialogs.help import HelpScreen
from traindoctor.tui.viewer.screen import FileViewer

from tests.sample import HOSTILE
from tests.tui.house import answered, chat_app, opened, screen_of, shows, typed, words
from tests.tui.stage import NARROW, WIDE, Picture, Stage, play, settled

LOG = "step 1 loss 2.1\n[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
VERDICT = {"cause": "memory.batch_too_large", "sentences": [{"text": "Memory ran out.", "cites": ["train.log:2"]}]}
QUESTION = "why did it die?"
WORDS = f"""I look at **all** of it: größte `batch` is \U0001f916 64.

```python
if a < b and b > c: print("<x>")
```

| key | value |
|-----|-------|
| lr  | 1e-3  |

![img](http://x.invalid/y.png) <script>alert(1)</script> [click](http://z.invalid) &#x202e;

{HOSTILE}
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that ran out of memory."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.log").write_text(LOG)
    (folder / "train.py").write_text("import torch\nbatch = 64\n")
    return folder


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wire that waits hundredths of a second between attempts."""
    made = Wire.__init__

    def quick(self: Wire, *args: Any) -> None:
        made(self, *args)
        self.backoff = 0.01

    monkeypatch.setattr(Wire, "__init__", quick)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set, the server goes on; it sends a piece of an answer only then."""
    go, real = threading.Event(), endpoint.deltas

    def waits(message: Any, piece: int) -> Iterator[Any]:
        for number, delta in enumerate(real(message, piece)):
            yield delta
            if number == HELD:
                go.wait(20)

    monkeypatch.setattr(endpoint, "deltas", waits)
    return go


HELD = 200  # pieces that come before the gate


def asks(server: ScriptedEndpoint, **more: Any) -> ModelSettings:
    """A model on that server."""
    given = {"base_url": server.url, "api_key": "k", "window": 100_000, "timeout": 5.0, **more}
    return ModelSettings("scripted", **given)


def concludes(**changes: Any) -> Say:
    return Say(calls=[("diagnosis", {**VERDICT, **changes})])


async def asked(pilot: Pilot[Any], check: str) -> None:
    """Wait for the question about a check, until it is open to keys."""
    await settled(pilot, lambda: isinstance(pilot.app.screen, ApprovalDialog) and check in words(pilot))
    await settled(pilot, lambda: pilot.app.screen.query_one(Choices).opened)


def sent(server: ScriptedEndpoint, number: int = -1) -> str:
    return json.dumps(server.requests[number].body["messages"], ensure_ascii=False)


def test_words_come_as_they_are_written_and_steer_nothing(run: Path, gate: threading.Event) -> None:
    look = Say(WORDS, calls=[("read_lines", {"file": "train.log", "start": 1, "count": 2})], piece=1)
    edit = {"file": "train.py", "find": "batch = 64", "replace": "batch = 32", "why": "train.py:2 sets the batch."}
    with ScriptedEndpoint([look, concludes(edits=[edit])]) as server:

        async def story(pilot: Pilot[Any]) -> None:
            await opened(pilot)
            await typed(pilot, QUESTION)
            await shows(pilot, 'if a < b and b > c: print("<x>")')  # it goes on, and is seen
            await pilot.press("h", "i")
            assert screen_of(pilot).prompt.text == "hi"
            screen_of(pilot).prompt.load("")
            gate.set()
            await answered(pilot, reports=1)
            assert "2 of 16 requests" in words(pilot).splitlines()[0] and "cost" in words(pilot).splitlines()[0]
            await shows(pilot, "proposed by the model")
            await typed(pilot, "/apply P1")
            await settled(pilot, lambda: isinstance(pilot.app.screen, ChangeDialog))
            await shows(pilot, "+batch = 32")
            assert "proposed by the model" in words(pilot)
            await settled(pilot, lambda: isinstance(s := pilot.app.screen, ChangeDialog) and not s.deaf)
            await pilot.press("y")
            await settled(pilot, lambda: (run / "train.py").read_text() == "import torch\nbatch = 32\n")
            await pilot.resize_terminal(*NARROW)
            await settled(pilot, lambda: "2/16 req" in words(pilot).splitlines()[0])
            assert "cost" in words(pilot).splitlines()[0]

        play(chat_app(run, model=asks(server, price_in=1.0, price_out=2.0)), story, WIDE, hook=False)


def test_questions_come_over_whatever_is_open_and_each_call_has_its_own(run: Path, gate: threading.Event) -> None:
    first = Say("x" * 400, calls=[("dump_stacks", {})], piece=1)
    look = Say(calls=[("dump_stacks", {"seconds": 2.0}), ("nccl_test", {}), ("grep_logs", {"pattern": "nan"})])
    again = Say(calls=[("dump_stacks", {"seconds": 3.0}), ("nccl_test", {"seconds": 2.0})])
    with ScriptedEndpoint([first, look, again, concludes()]) as server:

        async def story(pilot: Pilot[Any]) -> None:
            screen = await opened(pilot)
            await typed(pilot, QUESTION)
            await shows(pilot, "xxxxx")
            screen.actions.open_file(("train.log", 2))
            await settled(pilot, lambda: isinstance(pilot.app.screen, FileViewer))
            screen.app.show_help()
            await settled(pilot, lambda: isinstance(pilot.app.screen, HelpScreen))
            gate.set()
            await settled(pilot, lambda: isinstance(pilot.app.screen, ApprovalDialog))
            assert "waiting for your answer" in str(screen.activity.render())
            await pilot.press("escape", "escape", "y")  # meant for the help and the viewer
            await asked(pilot, "dump_stacks")
            await pilot.press("y")
            await asked(pilot, "1 of 2: dump_stacks")
            await pilot.press("f2", "ctrl+p", "f1", "ctrl+b", "q")  # keys of the chat do nothing here
            await asked(pilot, "1 of 2: dump_stacks")
            await pilot.press("s")
            await asked(pilot, "2 of 2: nccl_test")
            await pilot.press("v")
            await settled(pilot, lambda: isinstance(pilot.app.screen, HelpScreen))
            await pilot.press("escape")
            await settled(pilot, lambda: isinstance(pilot.app.screen, FileViewer))
            await pilot.press("escape")
            await answered(pilot, reports=1)
            assert "you said no" not in sent(server, 1) and "refused: you said no" in sent(server, 2)
            assert "above the allowed risk" not in sent(server)
            assert len(server.requests) == 4, "a lasting answer is not asked for again"
            card = next(c for c in screen.query(Card) if c.made.call.tool == "nccl_test")
            assert card.made.result and card.made.result.summary == "refused: you said no"
            assert not screen.has_class("-no-side")

        play(chat_app(run, model=asks(server)), story, WIDE, hook=False)


def test_a_session_that_was_left_at_the_question_asks_again(run: Path) -> None:
    look = Say("I look.", calls=[("dump_stacks", {})])
    with ScriptedEndpoint([look, concludes()]) as server:

        async def leaves(pilot: Pilot[Any]) -> None:
            await opened(pilot)
            await typed(pilot, QUESTION)
            await asked(pilot, "dump_stacks")
            await pilot.press("ctrl+q")

        app = chat_app(run, model=asks(server))
        play(app, leaves, WIDE, hook=False)
        (name,) = {p.stem for p in (app.state).rglob("*2026*") if "-" in p.stem} or {""}

        async def goes_on(pilot: Pilot[Any]) -> None:
            await asked(pilot, "dump_stacks")
            await pilot.press("y")
            screen = await answered(pilot, reports=1)
            assert screen.talk and screen.talk.reports[0].question == QUESTION
            assert len(server.requests) == 2 and "you said no" not in sent(server)

        play(chat_app(session=name, model=asks(server)), goes_on, WIDE, hook=False)


def test_models_are_named_fail_hang_and_are_let_go_and_then_nothing_is_sent(run: Path) -> None:
    kinds = ("unauthorized", "cut")
    scripts = {**{k: [Fault(k)] for k in kinds}, "slow": [Fault("hang"), Fault("hang-within"), concludes()]}
    servers = {name: ScriptedEndpoint(script) for name, script in scripts.items()}

    async def story(pilot: Pilot[Any]) -> None:
        screen = await opened(pilot)
        for number, kind in enumerate(kinds):
            await fails(pilot, kind, number)
        await typed(pilot, "/model slow")
        slow = servers["slow"]
        for number in (1, 2):
            await typed(pilot, f"{QUESTION} once more {number}")
            await settled(pilot, lambda n=number: len(slow.requests) == n)
            await pilot.press("escape")
            await settled(pilot, lambda: screen.asking.now is None)
            await settled(pilot, lambda: screen.talk and not screen.talk.running())
        assert "Stopped." in words(pilot)
        await answered(pilot, QUESTION)
        assert screen.talk and screen.talk.reports[-1].meta.planner == "llm"
        await typed(pilot, "/model off")
        await shows(pilot, "nothing is sent")
        await answered(pilot, f"{QUESTION} at last")
        assert len(slow.requests) == 3 and screen.talk.reports[-1].meta.planner == "offline"

    with ExitStack() as stack:
        models = {n: asks(stack.enter_context(s), window=32_000, timeout=60.0) for n, s in servers.items()}
        play(chat_app(run, model={"": None, **models}), story, WIDE, hook=False)


def test_long_writing_stays_bounded_and_whole(picture: Picture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Writing.__module__ + ".MOST", 4_800)
    writing = Writing()
    app = Stage(VerticalScroll(writing))
    block = "A paragraph of **some** words.\n\n```python\nif a < b: pass\n\nx = 1\n```\n\n"

    async def story(pilot: Pilot[Any]) -> None:
        for character in WORDS:
            writing.add(character)
        await settled(pilot, lambda: "<script>" in words(pilot))
        await picture(pilot, "written")
        app.theme = "textual-light"
        await pilot.resize_terminal(*NARROW)
        await pilot.pause()
        await picture(pilot, "narrow and light")
        for _ in range(70):
            writing.add(block)
        writing.end()
        await settled(pilot, lambda: any("in all" in str(s.render()) for s in writing.query(Static)))
        assert len(writing.query(Markdown)) == 2, "what is far above costs no layout"
        source = "".join(str(s.render()) for s in writing.query(".source"))
        assert source.count("A paragraph of") > 10 and "\x1b" not in source
        assert source.count("```python") == source.count("x = 1") + 1, "no part begins within code"

    play(app, story, (100, 30))


async def fails(pilot: Pilot[Any], kind: str, number: int) -> None:
    """Ask a model that fails so: an answer of the evidence, a word about the model, the prompt as before."""
    await typed(pilot, f"/model {kind}")
    screen = await answered(pilot, f"{QUESTION} {number}")
    report = screen.talk.reports[-1] if screen.talk else None
    assert report and report.meta.planner == "offline", kind
    assert any(d.startswith("model scripted: ") for d in report.meta.degraded), (kind, report.meta.degraded)
    assert screen.prompt.has_focus_within and screen.prompt.text == "" and "bug in doctor" not in words(pilot)


@pytest.mark.soak
@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_through_the_chat(kind: str, run: Path) -> None:
    async def story(pilot: Pilot[Any]) -> None:
        await opened(pilot)
        await fails(pilot, kind, 0)

    seconds = 1.0 if FAULTS[kind].play in ("drip", "drip-head") else 60.0
    with ScriptedEndpoint([Fault(kind)]) as server:
        named = asks(server, timeout=0.3, window=32_000, max_seconds=seconds)
        play(chat_app(run, model={"": None, kind: named}), story, WIDE, hook=False)
