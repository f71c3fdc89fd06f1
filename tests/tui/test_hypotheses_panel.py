"""The causes as they rise and fall, on a screen."""

from __future__ import annotations

from typing import Any

import pytest
from textual.widgets import OptionList, Static
from traindoctor.agent.core.events import Ranked, ReportReady, SessionStarted
from traindoctor.agent.core.report import Meta
from traindoctor.agent.core.report import Ranked as Alone
from traindoctor.agent.core.types import Evidence, Hypothesis
from traindoctor.tui.messages import Ask, OpenEvidence
from traindoctor.tui.panels.hypotheses import HypothesesPanel
from traindoctor.tui.panels.hypotheses_course import Course, percent, sparkline

from tests.sample import HOSTILE, sample
from tests.tui.stage import NARROW, Stage, play, settled

EVIDENCE = (
    Evidence(key="log.line", id="E1", file="logs/rank3.log", line=812, text="Current loss scale already at minimum"),
    Evidence(key="loss.first_nan_step", id="E7", value=4012, file="metrics.jsonl", line=4012),
)


def cause(name: str, probability: float, **more: Any) -> Hypothesis:
    return Hypothesis(
        cause=name, playbook=name.replace(".", "/"), title=f"Title of {name}", probability=probability, **more
    )


FIRST = Ranked(
    (cause("loss.lr_too_high", 0.41, supported_by=["E7"]), cause("data.empty_samples", 0.2)), EVIDENCE
)  # fmt: skip
SECOND = Ranked(
    (
        cause("loss.fp16_overflow", 0.55, supported_by=["E1", "E7"], missing=["settings.bf16 is false"]),
        cause("loss.lr_too_high", 0.3, supported_by=["E7"], explained_by="loss.fp16_overflow"),
        *(cause(f"env.mismatch_{i}", 0.0005) for i in range(14)),
    ),
    EVIDENCE,
)


def text(app: Any) -> str:
    return "\n".join("".join(s.text for s in strip) for strip in app.screen._compositor.render_strips())


def row(app: Any, name: str) -> str:
    """The row of a cause as it is drawn, spaces made one."""
    return next(" ".join(line.split()) for line in text(app).splitlines() if name in line and "\u00b7" in line)


def posted(app: Any, kind: type) -> list[Any]:
    """Messages of a kind, each once however many widgets it passed."""
    return list({id(m): m for m in app.of(kind)}.values())


def test_causes_rise_and_fall_and_the_report_has_the_last_word(picture: Any, talk: Any) -> None:
    panel = HypothesesPanel()
    report = sample()

    async def story(pilot: Any) -> None:
        app = pilot.app
        panel.begin(talk())
        await pilot.pause()
        await picture(pilot, "nothing weighed yet")
        panel.see(SessionStarted("s"))
        panel.see(FIRST)
        panel.see(SECOND)
        panel.enter()
        await pilot.pause()
        assert row(app, "loss.fp16_overflow").startswith("55% ██████···· new")
        assert "30% ███······· -11" in row(app, "loss.lr_too_high")
        assert "fell out" in row(app, "data.empty_samples")
        assert "14% █········· -25" in row(app, "none of these")
        assert "and 14 below 1%" in text(app)
        assert "logs/rank3.log:812" in text(app)
        await picture(pilot, "weighing")
        panel.see(ReportReady(report))
        panel.show(report)
        panel.show(report)
        await pilot.pause()
        assert "confirmed: all it requires holds" in text(app)
        assert row(app, "loss.fp16_overflow").startswith("> 87% █████████· +32")
        assert "found too" in row(app, "speed.data_starvation")
        await pilot.press("p", "enter", "enter")
        assert [m.question for m in posted(app, Ask)] == ["why?"]
        assert [m.ident for m in posted(app, OpenEvidence)] == ["E1"]
        panel.enter()
        await pilot.press("down", "p")
        assert posted(app, Ask)[-1].question == "why not loss.lr_too_high?"
        assert "course, step by step: 41% 30% 8%" in text(app)
        assert "a gradient norm that grows" in text(app)
        await picture(pilot, "a rival of the verdict")
        await pilot.press("end", "enter")
        assert "env.mismatch_13" in {s.cause for s in panel._rows if s is not None}

    play(Stage(panel), story, size=(64, 40))


def test_a_follow_up_leaves_the_diagnosis_in_place(picture: Any, talk: Any) -> None:
    panel = HypothesesPanel()
    alone = Alone(id="loss.lr_too_high", confidence=0.4, status="hypothesis")
    meta = Meta(planner="llm", model="m", ranking=alone, history=["loss.fp16_overflow was right here before: +0.4"])
    report = sample(meta=meta, status="likely")

    async def story(pilot: Any) -> None:
        app = pilot.app
        app.theme = "textual-light"
        panel.begin(talk())
        panel.show(report)  # of a session that is gone on with: there are no steps
        await pilot.pause()
        assert "! the model disagrees with the evidence alone, which says loss.lr_too_high" in text(app)
        panel.see(SECOND)
        await pilot.pause()
        assert "weighing" in text(app)
        panel.see(ReportReady(sample(status="answer")))
        await pilot.pause()
        assert "likely: the evidence points to it" in text(app)
        await picture(pilot, "light at 80x24")
        panel.see(SECOND)  # a question that is stopped: the report is shown again
        panel.show(report)
        await pilot.pause()
        assert "likely:" in text(app)
        await pilot.resize_terminal(40, 24)
        await settled(pilot, lambda: len(text(app).splitlines()[0]) == 40)
        assert "> 87% ████· loss.fp16_overflow" in row(app, "loss.fp16_overflow")
        await picture(pilot, "forty cells")

    play(Stage(panel), story, size=NARROW)


def test_without_colour_and_with_hostile_text(picture: Any, talk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    panel = HypothesesPanel()
    hostile = sample(
        differential=[
            {"id": HOSTILE, "title": HOSTILE, "confidence": 0.5, "supported_by": ["E2", HOSTILE], "missing": [HOSTILE]},
            {"id": "none.insufficient_evidence", "confidence": 0.4},
        ],
        status="insufficient_evidence",
        meta={"history": [HOSTILE], "ranking": {"id": HOSTILE, "confidence": 1, "status": "likely"}},
    )

    async def story(pilot: Any) -> None:
        panel.begin(talk())
        panel.show(hostile)
        panel.enter()
        await pilot.pause()
        shown = text(pilot.app)
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "[bold]" in shown
        assert "50% █████····· none of these" in row(pilot.app, "none of these")
        assert "insufficient_evidence" not in shown
        await picture(pilot, "hostile without colour")
        assert panel.query_one("#hypotheses-grounds", OptionList).option_count
        assert "\x1b" not in str(panel.query_one("#hypotheses-what", Static).render())

    play(Stage(panel), story, size=(64, 30))


def test_a_course_counts_by_steps() -> None:
    course = Course()
    for step in (FIRST, SECOND):
        course.step(step)
    assert course.standings["loss.fp16_overflow"].explains == ["loss.lr_too_high"]
    course.step(FIRST)
    moved = {s.cause: s.moved for s in course.ranked()}
    assert moved["data.empty_samples"] == "back"
    assert moved["loss.lr_too_high"] == "+11"
    assert moved["loss.fp16_overflow"] == "fell out"
    assert [s.cause for s in course.ranked()][:2] == ["loss.lr_too_high", "data.empty_samples"]
    assert [percent(x) for x in (0.0, 0.001, 0.5, 0.999)] == ["0%", "<1%", "50%", ">99%"]
    assert sparkline([0.1, None, 1.0, 0.5], 3) == " █▅"
