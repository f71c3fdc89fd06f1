"""Plots: axes keep the order of values, thinning keeps extremes, everything drawn stands within its box."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.curves.curves import curves
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.telling.page.figures import Mark
from traindoctor.agent.telling.page.plot import (
    HEIGHT,
    LEFT,
    MOST,
    TOP,
    WIDTH,
    Curve,
    Figure,
    Points,
    View,
    axis_of,
    band,
    draw,
    gaps,
    path,
    said,
    segments,
    steps_axis,
    strips,
    thinned,
    view,
)

from tests.telling.page.parsed import points as corners

ANY = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 10) | st.just(float("nan"))


@given(st.lists(ANY, min_size=1, max_size=40))
def test_an_axis_holds_its_values_in_order(values: list[float]) -> None:
    given_values = np.array(values)
    axis = axis_of(given_values, 174.0, 34.0)
    known = np.sort(given_values[np.isfinite(given_values)])
    at = axis.at(known)
    assert np.isfinite(at).all()
    assert ((at >= 34 - 1e-6) & (at <= 174 + 1e-6)).all()
    assert (np.diff(at) <= 1e-9).all()  # greater values stand higher
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 7 and ticks == sorted(ticks) and all(axis.low <= t <= axis.high for t in ticks)


@given(st.lists(st.floats(0.1, 1e9), min_size=2, max_size=9))
def test_the_axis_is_logarithmic_where_the_span_demands_it(values: list[float]) -> None:
    assert axis_of(np.array(values), 0, 1).log == (max(values) / min(values) >= 999.9999)


def test_places_tell_values_apart() -> None:
    axis = steps_axis(0, 1000, 50, 450)
    assert [axis.place(v) for v in (0, 500, 1000, 5000)] == [50, 250, 450, 450]
    assert axis_of(np.array([1.0, 10.0, 1000.0]), 0, 300).place(10) < 120  # a third of the way, with room


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (12_345.0, "12,345"), (3e-4, "3e-4"), (2.985e-4, "2.985e-4"), (168_296.0, "1.683e5"), (2.2885, "2.288"),
     (float("nan"), "NaN"), (-math.inf, "-inf"), (1e300, "1e300"), (0.5, "0.5")],
)  # fmt: skip
def test_values_read_as_people_write_them(value: float, text: str) -> None:
    assert said(value) == text


def test_memory_is_told_in_gibibytes() -> None:
    assert said(80 * 2.0**30, is_bytes=True) == "80 GiB"


@settings(max_examples=40)
@given(st.integers(1, 5000), st.integers(0, 2**32 - 1), st.sampled_from(["up", "restarts", "one place", "back"]))
def test_thinning_keeps_extremes_and_the_ends(count: int, seed: int, kind: str) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(size=count) * 10.0 ** random.integers(-3, 3)
    values[random.random(count) < 0.1] = np.nan
    ordinals = np.arange(count, dtype=float)
    steps = {"up": ordinals, "restarts": ordinals % 137, "one place": ordinals * 0, "back": -ordinals}[kind]
    full = Points(steps, values)
    few = thinned(full)
    assert len(few) <= MOST or len(few) == count
    if full.finite.any():
        assert np.nanmin(few.values) == np.nanmin(values) and np.nanmax(few.values) == np.nanmax(values)
    assert (few.steps[0], few.steps[-1]) == (steps[0], steps[-1])
    assert set(few.steps.tolist()) <= set(steps.tolist())


@given(st.lists(st.tuples(st.floats(0, 100), ANY), max_size=60))
def test_lines_break_at_gaps_and_restarts(pairs: list[tuple[float, float]]) -> None:
    full = Points(np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs]))
    parts = segments(full)
    drawn = [i for part in parts for i in range(part.start, part.stop)]
    assert drawn == [i for i in range(len(full)) if math.isfinite(full.values[i])]
    for part in parts:
        assert (np.diff(full.steps[part]) >= 0).all()


@given(st.lists(st.tuples(st.floats(0, 100), ANY), max_size=60))
def test_every_value_that_is_not_finite_lies_in_a_gap(pairs: list[tuple[float, float]]) -> None:
    pairs = sorted(pairs, key=lambda p: p[0])
    full = Points(np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs]))
    covered = gaps(full)
    bad = [step for step, value in pairs if not math.isfinite(value)]
    assert all(any(low <= step <= high for low, high in covered) for step in bad) and len(covered) <= len(bad)


def test_neighbouring_gaps_are_one_strip() -> None:
    assert strips(np.array([[10.0, 20.0], [21.0, 30.0], [50.0, 50.0], [12.0, 14.0]])) == [(10, 30), (50, 50)]
    assert strips(np.empty((0, 2))) == []


@settings(max_examples=25)
@given(st.integers(7, 12), st.integers(0, 2**32 - 1))
def test_a_band_covers_its_lines(count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    lines = [Points(np.arange(300.0), random.normal(size=300).cumsum()) for _ in range(count)]
    found = band(lines, 0, 299)
    assert found.least.min() == min(line.values.min() for line in lines)
    assert found.greatest.max() == max(line.values.max() for line in lines)
    assert ((found.least <= found.median) & (found.median <= found.greatest)).all()


CURVE = st.lists(st.tuples(st.integers(0, 400), ANY), min_size=1, max_size=30)


@settings(max_examples=60)
@given(st.lists(CURVE, min_size=1, max_size=9), st.floats(0, 400), st.booleans())
def test_everything_drawn_stands_within_its_box(found: list[list[tuple[int, float]]], at: float, part: bool) -> None:
    curves = [
        Curve(f"rank <{n}> & \"x\"", Points(np.array([float(s) for s, _ in c]), np.array([v for _, v in c])), good=n == 8)
        for n, c in enumerate(found)
    ]  # fmt: skip
    view = View(0.0, 400.0, 100.0, 300.0) if part else View(0.0, 400.0, 0.0, 400.0)
    figure = Figure("plot1", "grad_norm", curves, view, {"first failure": at}, text="what <it> says")
    root = ET.fromstring(draw(figure).text)
    _, _, width, height = (float(v) for v in (root.get("viewBox") or "").split())
    assert width == WIDTH and root.get("role") == "img"
    labels = (root.get("aria-labelledby") or "").split()
    assert [e.get("id") for e in root][:2] == labels and root[1].text == "what <it> says"
    for element in root.iter():
        name = element.tag.rpartition("}")[2]
        if name == "path":
            for x, y in corners(element.get("d") or ""):
                assert LEFT - 0.01 <= x <= WIDTH and TOP - 0.01 <= y <= height
        for key in ("x", "x1", "x2"):
            assert 0 <= float(element.get(key, "0")) <= WIDTH
        for key in ("y", "y1", "y2"):
            assert 0 <= float(element.get(key, "0")) <= height
        if name == "rect":
            assert float(element.get("x", "")) + float(element.get("width", "")) <= WIDTH + 0.01


def test_a_point_alone_is_a_dot_and_a_line_is_one_stroke() -> None:
    x, y = steps_axis(0, 4, 0, 40), axis_of(np.array([0.0, 1.0]), 10, 0)
    line = Points(np.arange(5.0), np.array([0.0, np.nan, 1.0, 1.0, np.inf]))
    assert path(line, x, y).count("M") == 2
    assert path(line, x, y).startswith("M0 ") and "h0M20 " in path(line, x, y)


def test_seven_curves_become_a_band_and_the_culprit_stands_out() -> None:
    steps = np.arange(50.0)
    curves = [Curve(f"rank {n}", Points(steps, steps * n), apart=n == 3) for n in range(8)]
    root = ET.fromstring(draw(Figure("p", "loss", curves, View(0, 49, 0, 49))).text)
    kinds = [e.get("class") for e in root.iter() if e.tag.endswith("}path")]
    assert kinds == ["band", "curve median", "curve s0"]
    said_of = ["".join(e.itertext()) for e in root.iter() if (e.get("class") or "").startswith("label")]
    assert sorted(said_of) == ["8 curves", "rank 3"]


def test_labels_stand_apart() -> None:
    steps = np.arange(5.0)
    curves = [Curve(f"variant {n} with a long name", Points(steps, steps + n / 1e3)) for n in range(6)]
    root = ET.fromstring(draw(Figure("p", "loss", curves, View(0, 4, 0, 4))).text)
    found = [e for e in root.iter() if (e.get("class") or "").startswith("label")]
    heights = sorted(float(e.get("y", "")) for e in found)
    assert (np.diff(heights) >= 12.9).all()
    assert all(e[0].text == f"variant {n} with a long name" for n, e in enumerate(reversed(found)))
    assert heights[0] >= TOP and heights[-1] <= TOP + HEIGHT + 5


def test_marks_fall_where_step_place_and_clock_say(tmp_path: Path) -> None:
    lines = [f"2026-03-04 02:00:{n:02} step {10 * n} loss {3 - n / 50}" for n in range(50)]
    (tmp_path / "train.log").write_text("\n".join([*lines[:30], "RuntimeError: it broke", *lines[30:]]))
    [series] = [s for s in curves(Workspace([tmp_path], live=False)).of("loss") if len(s) == 50]
    place = sum(len(line) + 1 for line in lines[:30])
    assert Mark("m", step=123.0, file="train.log", offset=place).on(series) == 123
    assert Mark("m", file="train.log", offset=place).on(series) == 290
    assert Mark("m", file="train.log", offset=0).on(series) == 0
    assert Mark("m", file="other.log", offset=place).on(series) is None
    assert Mark("m", time="2026-03-04 02:00:17.500").on(series) == 170
    assert Mark("m", time="Mar  4 02:00:17 2026").on(series) == 170
    assert Mark("m", time="2026-03-04 03:00:00").on(series) == 490
    assert Mark("m", time="2026-03-04 01:00:00").on(series) is None  # before all of it
    assert Mark("m", time="[12345.678901]").on(series) is None  # a clock that says nothing of this one


@pytest.mark.parametrize(("at", "shown"), [(2_400.0, (1_950, 2_600)), (None, (0, 2_990)), (40_000.0, (0, 2_990))])
def test_the_view_is_around_the_event(tmp_path: Path, at: float | None, shown: tuple[int, int]) -> None:
    (tmp_path / "train.log").write_text("\n".join(f"step {n} loss 2.5" for n in range(0, 3_000, 10)))
    found, near = view(
        curves(Workspace([tmp_path], live=False)).of("loss"), {} if at is None else {"first failure": at}
    )
    assert (found.low, found.high) == shown and (found.first, found.last) == (0, 2_990)
    assert found.whole == (shown == (0, 2_990)) and bool(near) == (at == 2_400)
