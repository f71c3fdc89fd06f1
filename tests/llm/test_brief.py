"""The first request stays within its bytes whatever the run holds, and says what it leaves out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traindoctor.agent.core.types import Hypothesis
from traindoctor.agent.llm import llm_planner
from traindoctor.agent.llm.brief import first_message
from traindoctor.agent.llm.framing import Room, cut, encoded, fitting, room, system
from traindoctor.agent.llm.model_settings import ModelSettings
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session import session
from traindoctor.agent.verdict.planner import View

MOST = 32_000


def asked(run: Path, tmp_path: Path, window: int = 131_072) -> str:
    model = ModelSettings("any", window=window)
    shown = session.first_request(Workspace([run]), "why did it fail? " * 20, model, state=tmp_path / "state")
    return json.dumps(json.loads(shown), ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("window", [131_072, 16_384, 8_192])
def test_a_run_of_long_and_odd_lines_fits(tmp_path: Path, window: int) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for rank in range(64):
        odd = f'[rank{rank}]: RuntimeError: \U0001f525\x07"\\ \u202e ' + "\u00e4\u4e2d" * 3000
        failures = [f"[rank{rank}]: {kind}: {odd}" for kind in ("ValueError", "torch.OutOfMemoryError", "KeyError")]
        (run / f"rank{rank}.log").write_text(
            "\n".join(f"step {n} loss {9 - n / 9} {odd[:200]}" for n in range(60)) + "\n" + "\n".join(failures)
        )
    (run / "config.yaml").write_text("\n".join(f"setting_{n}: '{chr(0x4E00 + n)}{n}'" for n in range(3000)))
    body = asked(run, tmp_path, window)
    assert len(body.encode()) <= (MOST if window > 24_000 else 18_500)
    assert "\x07" not in body and "\u202e" not in body
    assert "Not shown:" in body


def test_a_small_run_is_shown_whole(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "train.log").write_text("step 1 loss 2.5\nstep 2 loss nan\n")
    body = asked(run, tmp_path)
    assert "1: step 1 loss 2.5" in body and "2: step 2 loss nan" in body


def test_the_opening_holds_for_every_run() -> None:
    assert system() == system() and 1_500 < len(system()) < 4_000


@given(st.text(max_size=3000), st.integers(0, 2000))
def test_a_cut_says_what_it_leaves_out(text: str, most: int) -> None:
    shown = cut(text, most, "read on")
    if len(text) <= most:
        assert shown == text
    else:
        head = shown.rsplit("\n", 1)[0]
        assert text.startswith(head) and f"of {len(text)} characters" in shown


@given(st.lists(st.text(max_size=200), max_size=40), st.integers(0, 3000))
def test_what_fits_is_a_beginning_and_the_rest_is_counted(lines: list[str], most: int) -> None:
    kept, left = fitting(lines, most)
    assert kept == lines[: len(kept)] and len(kept) + left == len(lines)
    assert sum(encoded(line) + 2 for line in kept) <= most


@given(st.integers(0, 2_000_000))
def test_every_window_has_room_for_an_answer(window: int) -> None:
    r = room(window)
    assert r.shortened <= r.dialogue and r.first <= MOST
    if window >= 8_192:
        assert r.first / 3 < r.window


def test_the_first_message_keeps_to_what_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "train.log").write_text(
        "".join(f"step {n} loss {n}\n[rank{n}]: KeyError: '{n} \u4e2d'\n" for n in range(300))
    )
    (run / "config.yaml").write_text("\n".join(f"setting_{n}: {n}" for n in range(300)))
    seen: list[tuple[int, int]] = []

    def measured(view: View, ranked: list[Hypothesis], layout: Room, most: int) -> str:
        for window in (4_096, 16_384, 131_072):
            for bytes_left in (1_500, 2_500, 6_000, 18_000):
                text = first_message(view, ranked, room(window), bytes_left)
                seen.append((encoded(text), bytes_left))
                assert text.startswith("Question: why \u4e2d") and "characters are shown" in text
                assert "Ranking by predicates:" in text or bytes_left < 2_500
        return first_message(view, ranked, layout, most)

    monkeypatch.setattr(llm_planner, "first_message", measured)
    model = ModelSettings("any", window=8_192)
    session.first_request(Workspace([run]), "why \u4e2d? " * 20_000, model, state=tmp_path / "state")
    assert len(seen) == 12 and all(size <= most for size, most in seen)
