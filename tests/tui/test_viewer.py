"""The file behind the evidence: its line, all of the file, other ranks, and everything that can be wrong with it."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from traindoctor.agent.chat.talk import Conversation
from traindoctor.agent.core.report import CitedEvidence, Report
from traindoctor.tui.viewer.screen import FileViewer

from tests.sample import HOSTILE, sample
from tests.tui.stage import DEMO, NARROW, WIDE, Picture, Stage, play, settled, talk_about


def _cite(
    ident: str, root: Path, name: str, number: int, rank: int | None = None, kind: str = "plain"
) -> CitedEvidence:
    data = (root / name).read_bytes()
    lines = (gzip.decompress(data) if kind == "gz" else data).split(b"\n")
    offset = sum(len(line) + 1 for line in lines[: number - 1])
    text = lines[number - 1][:4096].decode(errors="replace")
    return CitedEvidence(
        id=ident, key="log.line", kind="line", file=name, line=number, offset=offset, text=text, rank=rank
    )


async def _view(pilot: Pilot[Any], talk: Conversation, report: Report, place: str | tuple[str, int]) -> FileViewer:
    viewer = FileViewer(talk, report, place)
    await pilot.app.push_screen(viewer)
    await _done(pilot, viewer)
    return viewer


async def _done(pilot: Pilot[Any], viewer: FileViewer) -> None:
    await settled(pilot, lambda: viewer._job is None)


async def _type(pilot: Pilot[Any], viewer: FileViewer, key: str, words: str) -> None:
    await pilot.press(key)
    viewer.query_one("Input").value = words  # type: ignore[attr-defined]
    await pilot.press("enter")
    await _done(pilot, viewer)


def _screen(pilot: Pilot[Any]) -> str:
    return "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())


def _at(viewer: FileViewer) -> int | None:
    row = viewer._pane.current
    return row.number if row else None


def _log(path: Path, lines: int, rank: int = 0) -> None:
    path.write_text(
        "".join(
            f"2026-03-04 {n // 3600:02}:{n // 60 % 60:02}:{n % 60:02} [rank{rank}] step {n}\n" for n in range(lines)
        )
    )


def test_the_demo_from_a_cited_line_to_the_rank_that_fell_silent(picture: Picture) -> None:
    talk = talk_about()
    name = "logs/rank4.log"
    report = sample(
        evidence=[_cite("E1", DEMO, name, 6, 4), _cite("E2", DEMO, name, 10, 4), _cite("E3", DEMO, name, 6, 4)]
    )

    async def story(pilot: Pilot[Any]) -> None:
        viewer = await _view(pilot, talk, report, "E1")
        assert _at(viewer) == 6
        assert "E1,E3 >    6 [rank4]" in _screen(pilot) and "   E2     10 [rank4]" in _screen(pilot)
        await picture(pilot, "demo-dark")
        await pilot.press("n")
        await _done(pilot, viewer)
        assert _at(viewer) == 10 and "E2  logs/rank4.log:10" in _screen(pilot)
        await pilot.press("n")
        assert "no cited line below" in _screen(pilot)
        await pilot.press("right_square_bracket")
        await _done(pilot, viewer)
        assert "rank 4 -> rank 5 at step 4,120, 10 min 47 s before" in _screen(pilot)
        pilot.app.theme = "textual-light"
        await pilot.resize_terminal(*NARROW)
        await pilot.press("w")
        await pilot.pause()
        await picture(pilot, "neighbour-light-narrow")
        await pilot.press(
            "left_square_bracket",
        )
        await _done(pilot, viewer)
        assert "rank 5 -> rank 4" in _screen(pilot) and _at(viewer) == 10, "back to the very moment, not to a later one"
        await pilot.press("r")
        await settled(pilot, lambda: pilot.app.screen is not viewer)
        await picture(pilot, "ranks-light-narrow")
        await pilot.press("end", "enter")
        await settled(pilot, lambda: pilot.app.screen is viewer)
        await _done(pilot, viewer)
        assert "logs/rank7.log" in _screen(pilot)
        await pilot.press("right_square_bracket")
        await _done(pilot, viewer)
        assert "rank 7 is the last" in _screen(pilot)
        await pilot.press("c", "q")
        await settled(pilot, lambda: pilot.app.screen is not viewer)
        assert pilot.app.clipboard.startswith("logs/rank7.log:")

    play(Stage(), story, WIDE)


def test_the_whole_of_a_packed_file_is_reached_with_its_numbers(tmp_path: Path) -> None:
    _log(tmp_path / "rank0.log", 60_000)
    (tmp_path / "rank0.log.gz").write_bytes(gzip.compress((tmp_path / "rank0.log").read_bytes(), 1))
    (tmp_path / "rank0.log").unlink()
    talk = talk_about(tmp_path)
    report = sample(evidence=[_cite("E1", tmp_path, "rank0.log.gz", 30_000, kind="gz")])

    async def story(pilot: Pilot[Any]) -> None:
        viewer = await _view(pilot, talk, report, "E1")
        assert _at(viewer) == 30_000 and "step 29999" in _screen(pilot)

        def paged() -> bool:
            for _ in range(5):
                viewer._pane.action_page(1)
            return (_at(viewer) or 0) > 30_700

        await settled(pilot, paged)
        assert len(viewer._pane.rows) <= 4_000
        await pilot.press("end")
        await settled(pilot, lambda: _at(viewer) == 60_000)
        assert "step 59999" in _screen(pilot) and "line 60,000" in _screen(pilot)
        await pilot.press("pageup")
        assert (_at(viewer) or 0) < 59_990
        await pilot.press("home")
        await _done(pilot, viewer)
        assert _at(viewer) == 1
        await _type(pilot, viewer, "g", "45,678")
        assert _at(viewer) == 45_678
        await _type(pilot, viewer, "slash", "step 50000")
        assert _at(viewer) == 50_001
        await _type(pilot, viewer, "slash", "STEP 60000")
        assert "not found below" in _screen(pilot)
        await _type(pilot, viewer, "g", "many")
        assert "a line is a number" in _screen(pilot)
        await pilot.press("slash", "escape", "escape")
        await settled(pilot, lambda: pilot.app.screen is not viewer)

    play(Stage(), story, NARROW)


def test_hostile_bytes_and_a_line_of_megabytes_are_harmless(tmp_path: Path, picture: Picture) -> None:
    bad = (
        b"\x1b]0;title\x07\x1b[2J \x9b31m \x00 \xff\xfe\xc3( " + HOSTILE.encode() + b"\ttab \xe4\xb8\xad\xe6\x96\x87\r"
    )
    evil = f"{HOSTILE.replace('/', '')}.log"
    (tmp_path / evil).write_bytes(bad + b"\n" + b"m" * (10 << 20) + b"\nafter " + bad * 30 + b"\n")
    talk = talk_about(tmp_path)
    report = sample(evidence=[_cite("E1", tmp_path, evil, 1), _cite("[b]\x1bE2", tmp_path, evil, 2)])

    async def story(pilot: Pilot[Any]) -> None:
        viewer = await _view(pilot, talk, report, "E1")
        assert "10,485,760 bytes" not in _screen(pilot)
        await picture(pilot, "hostile-dark-narrow")
        for _ in range(2):
            assert not {c for c in _screen(pilot) if (ord(c) < 32 and c != "\n") or c in "\x7f\x9b\u202e"}
            await pilot.press("w")
            await pilot.pause()
        await pilot.press("w", "down")
        assert "mmmm" in _screen(pilot)
        await pilot.press("pagedown", "pagedown")
        assert "10,485,760 bytes" in _screen(pilot)
        await pilot.press("down", "up", "w", "right")
        for width in (20, 7, 60):
            await pilot.resize_terminal(width, 10)
        await _type(pilot, viewer, "g", "3")
        assert _at(viewer) == 3

    play(Stage(), story, NARROW)


def test_what_happened_to_the_file_is_a_message(
    tmp_path: Path, picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("traindoctor.tui.viewer.frame._LOOK", 0.2)
    run = tmp_path / "run"
    run.mkdir()
    for rank in range(2):
        _log(run / f"rank{rank}.log", 5_000, rank)
    (run / "notes.txt").write_text("loss is nan\n")
    talk = talk_about(run)
    report = sample(evidence=[_cite("E1", run, "rank0.log", 4_000), _cite("E2", run, "rank1.log", 4_000)])

    async def story(pilot: Pilot[Any]) -> None:
        viewer = await _view(pilot, talk, report, "E1")
        (run / "rank0.log").write_text("it was cut\n")
        await pilot.press("home")
        await _done(pilot, viewer)
        await pilot.press("n")
        await _done(pilot, viewer)
        assert " 1 it was cut" in _screen(pilot), "not the number of the line that was cited"
        await pilot.press("q")
        viewer = await _view(pilot, talk, report, "E1")
        assert "become shorter" in _screen(pilot) and "no longer says" in _screen(pilot)
        await picture(pilot, "shorter-no-color")
        await pilot.press("q")
        viewer = await _view(pilot, talk, report, "E2")
        shutil.rmtree(run)
        await settled(pilot, lambda: "the file is gone" in _screen(pilot))
        await pilot.press("end")
        await _done(pilot, viewer)
        assert "step 4999" in _screen(pilot), "what was opened can still be read"
        await pilot.press("left_square_bracket")
        await _done(pilot, viewer)
        assert "cannot open" in _screen(pilot)
        await pilot.press("q")
        await _view(pilot, talk, report, "E2")
        assert "! opening: cannot open" in _screen(pilot)
        await pilot.press("n", "home", "end", "w", "q")
        await _view(pilot, talk, report, ("never/was.log", 3))
        assert "not among the files" in _screen(pilot)
        await pilot.press("q")

    play(Stage(), story, NARROW)


def test_evidence_that_is_no_line_shows_what_it_is(picture: Picture) -> None:
    e = CitedEvidence
    report = sample(evidence=[
        e(id="E1", key="gpu.xid", value=79, kind="command", argv=["nvidia-smi", "-q", HOSTILE], text="Xid 79\nsecond"),
        e(id="E2", key="settings.asked.clip", value=0.5, kind="absent", searched=["ds_config.json", HOSTILE]),
        e(id="E3", key="ckpt.bad", value={"nan": 3}, kind="binary", file="w.pt", member="layer.0", text="3 values are NaN"),
        e(id="E4", key="document.passage", kind="document", file="nccl.md", member="Timeouts", text="A rank is late."),
        e(id="E5", key="question.step", value=4012, kind="asked", text="step 4012"),
        e(id="E6", key="log.line", kind="line", file="gone.log", line=9, text=HOSTILE),
    ])  # fmt: skip
    told = {"E1": ["$ nvidia-smi -q \\x1b", "second", "gpu.xid = 79"], "E2": ["not there", "ds_config.json", "0.5"],
            "E3": ["w.pt layer.0", "3 values are NaN"], "E4": ["nccl.md > Timeouts", "A rank is late."],
            "E5": ["proves nothing"], "E6": ["not among the files", "[bold]markup"], "E99": ["no evidence E99"]}  # fmt: skip

    async def story(pilot: Pilot[Any]) -> None:
        talk = talk_about()
        for ident, words in told.items():
            viewer = await _view(pilot, talk, report, ident)
            for word in words:
                assert word in _screen(pilot), ident
            if ident in ("E1", "E2"):
                await picture(pilot, f"fact-{ident}-dark-narrow")
            if ident == "E1":
                await pilot.press("n", "r", "slash", "end", "home")
            await pilot.press("q")
            await settled(pilot, lambda v=viewer: pilot.app.screen is not v)

    play(Stage(), story, NARROW)


def test_gigabytes_are_opened_at_once_and_what_takes_long_is_told_and_stopped(tmp_path: Path) -> None:
    path = tmp_path / "rank0.log"
    _log(path, 2_000)
    with path.open("r+b") as big:  # a hole: the file has 3 GB and the disk nothing
        big.seek(3 << 30)
        big.write(b"\n" + b"the last words\n" * 500)
    talk = talk_about(tmp_path)
    report = sample(evidence=[_cite_plain("E1", path, 1_000)])

    async def story(pilot: Pilot[Any]) -> None:
        viewer = await _view(pilot, talk, report, "E1")
        press = pilot.app.simulate_key  # does not wait until the machine is idle, as a pilot's does
        viewer.action_type("search")
        viewer.query_one("Input").value = "nowhere"  # type: ignore[attr-defined]
        press("enter")
        await settled(pilot, lambda: "searching" in _screen(pilot) and "% of 3.2 GB, esc stops" in _screen(pilot))
        press("down")
        await settled(pilot, lambda: _at(viewer) == 1_001)
        assert viewer._job is not None, "the keyboard is free while it searches"
        press("escape")
        await settled(pilot, lambda: "stopped: searching" in _screen(pilot))
        press("end")
        await settled(pilot, lambda: "the last words" in _screen(pilot))
        press("escape")
        await _done(pilot, viewer)
        await pilot.press("q")
        await settled(pilot, lambda: pilot.app.screen is not viewer)

    play(Stage(), story, NARROW)


def _cite_plain(ident: str, path: Path, number: int) -> CitedEvidence:
    with path.open("rb") as log:
        lines = [log.readline() for _ in range(number)]
    offset, text = sum(map(len, lines[:-1])), lines[-1].decode().rstrip("\n")
    return CitedEvidence(id=ident, key="log.line", kind="line", file=path.name, line=number, offset=offset, text=text)
