"""The evidence beside the conversation: order, words for kinds, filter, copying, ten thousand rows, hostile text."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot
from traindoctor.agent.core.events import Ranked, SessionStarted, ToolFinished
from traindoctor.agent.core.report import CitedEvidence, Report
from traindoctor.agent.core.types import Call, Evidence, ToolResult
from traindoctor.tui.messages import OpenEvidence, OpenFile
from traindoctor.tui.panels.evidence import EvidencePanel
from traindoctor.tui.panels.evidence_list import EvidenceList

from tests.sample import HOSTILE, sample
from tests.tui.stage import NARROW, WIDE, Picture, Stage, play, settled, talk_about


def _mixed() -> Report:
    """Every kind of evidence, cited and not, with hostile text in all fields that a run can fill."""
    e = CitedEvidence
    kinds = [
        e(id="E5", key="gpu.xid", value=79, kind="command", argv=["nvidia-smi", "-q", HOSTILE], text="Xid 79"),
        e(id="E6", key="checkpoint.tensor", value={"max": "inf"}, kind="binary", file=f"ckpt/{HOSTILE}.pt", member="w"),
        e(id="E7", key="question.step", value=4012, kind="asked", text="step 4012"),
        e(id="E8", key="document.passage", kind="document", file="nccl.md", member="Timeouts", text="A rank is late."),
        e(id="E9", key="log.line", kind="line", file=HOSTILE, line=3, text="\x00\x9b31m\u202e" + HOSTILE, host=HOSTILE),
    ]
    return sample(evidence=[*kinds, *sample().evidence])


def _ids(pilot: Pilot[Any]) -> list[str]:
    return [entry.fact.id for entry in pilot.app.query_one(EvidenceList).rows]


def _screen(pilot: Pilot[Any]) -> str:
    return "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())


def test_it_fills_while_a_diagnosis_runs_and_is_put_in_order_by_the_report(picture: Picture) -> None:
    panel, app = EvidencePanel(), None

    async def story(pilot: Pilot[Any]) -> None:
        panel.begin(talk_about())
        await pilot.pause()
        await picture(pilot, "empty-dark")
        found = [Evidence(key="log.line", file="a.log", line=n, text=f"line {n}") for n in (1, 2)]
        panel.see(SessionStarted("s"))
        panel.see(ToolFinished(Call("scan_logs"), ToolResult("finding", "", found), 0.1))
        await settled(pilot, lambda: len(_ids(pilot)) == 2)
        panel.enter()
        await pilot.press("enter")
        panel.see(Ranked((), (found[1].with_(id="E2"),)))
        await settled(pilot, lambda: _ids(pilot) == ["", "E2"])
        await settled(pilot, lambda: "1 cited" in _screen(pilot) and "goes on" in _screen(pilot))
        panel.show(_mixed())
        await pilot.pause()
        assert _ids(pilot)[:4] == ["E1", "E2", "E3", "E4"], "what is cited stands first, in the order of the story"
        await picture(pilot, "report-dark")
        await pilot.press("end")
        await pilot.pause()
        assert _ids(pilot)[-1] == "E9"
        await picture(pilot, "hostile-dark")
        assert not {c for c in _screen(pilot) if (ord(c) < 32 and c != "\n") or c in "\x7f\x9b\u202e"}
        for word in ("command", "record", "question", "document", "not there"):
            assert word in _screen(pilot)

    app = Stage(panel)
    play(app, story, WIDE)
    assert (app.of(OpenFile)[0].name, app.of(OpenFile)[0].line) == ("a.log", 1)


def test_it_is_filtered_by_typing_opened_and_copied(picture: Picture) -> None:
    panel = EvidencePanel()
    app = Stage(panel, theme="textual-light")

    async def story(pilot: Pilot[Any]) -> None:
        panel.begin(talk_about())
        panel.show(_mixed())
        panel.enter()
        await pilot.press("slash", *"RANK3 red")
        await settled(pilot, lambda: _ids(pilot) == ["E2"])
        await picture(pilot, "filter-light-narrow")
        await pilot.press("enter", "enter")
        await settled(pilot, lambda: app.of(OpenEvidence))
        await pilot.press("c")
        await pilot.pause()
        assert app.clipboard.startswith("E2 logs/rank3.log:813\n\\x1b[31mred")
        await pilot.press("slash", *"nothing at all")
        await settled(pilot, lambda: not _ids(pilot))
        await pilot.press("enter", "enter", "c", "down", "end")  # on no row
        await pilot.press("escape")
        await settled(pilot, lambda: len(_ids(pilot)) == 9)
        assert pilot.app.focused is panel.query_one(EvidenceList)
        panel.begin(talk_about())
        await settled(pilot, lambda: not _ids(pilot))

    play(app, story, NARROW)
    assert {m.ident for m in app.of(OpenEvidence)} == {"E2"}


def test_without_colours_the_marks_tell_the_same(picture: Picture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    panel = EvidencePanel()

    async def story(pilot: Pilot[Any]) -> None:
        panel.show(_mixed())
        panel.enter()
        await pilot.press("down", "down")
        await pilot.pause()
        await picture(pilot, "report-no-color")
        assert "\n>* E3" in _screen(pilot)

    play(Stage(panel), story, NARROW)


def test_ten_thousand_rows_are_drawn_a_screen_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    panel, drawn = EvidencePanel(), []
    whole = EvidenceList.render_line
    monkeypatch.setattr(EvidenceList, "render_line", lambda self, y: (drawn.append(y), whole(self, y))[1])
    lines = [
        CitedEvidence(
            id=f"E{n}", key="log.line", kind="line", file=f"logs/rank{n % 64}.log", line=n, text=f"nan at {n}"
        )
        for n in range(1, 10_001)
    ]

    async def story(pilot: Pilot[Any]) -> None:
        panel.show(sample(evidence=lines))
        panel.enter()
        await pilot.pause()
        assert len(drawn) < 300
        drawn.clear()
        await pilot.press("down", "down", "down")
        assert len(drawn) < 60, "moving the cursor draws two rows"
        await pilot.press("end", "pageup", "home", "pagedown")
        assert panel.query_one(EvidenceList).cursor > 10
        await pilot.press("slash", *"rank63")
        await settled(pilot, lambda: len(_ids(pilot)) == 156)
        for width in range(30, 120, 30):  # a storm of resizes
            await pilot.resize_terminal(width, 12 + width % 20)
        assert len(drawn) < 3_000

    play(Stage(panel), story, WIDE)


def test_beside_the_conversation_a_row_says_what_happened_not_when() -> None:
    panel = EvidencePanel()
    line = "2026-03-04 03:12:01,123 - [rank3] - ERROR - loss is nan at step 4012 and has been so for a while"
    e = CitedEvidence(id="E1", key="log.line", kind="line", file="logs/node-17/worker.log", line=813, rank=3, text=line)

    async def story(pilot: Pilot[Any]) -> None:
        panel.show(sample(evidence=[e]))
        panel.enter()
        await pilot.pause()
        row = next(r for r in _screen(pilot).splitlines() if "E1" in r)
        assert "loss is nan" in row and "03:12" not in row
        assert row.rstrip().endswith("..") and not row.rstrip().endswith("...")
        assert "2026-03-04 03:12:01,123" in _screen(pilot), "the piece in full has it"
        await pilot.resize_terminal(160, 40)
        await settled(
            pilot, lambda: "03:12:01,123 - [rank3]" in next(r for r in _screen(pilot).splitlines() if " E1 " in r)
        )

    play(Stage(panel), story, (70, 24))
