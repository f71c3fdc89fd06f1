"""Results: calibration, precision, first failures, a page, a comparison with an earlier evaluation."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.core.report import CitedEvidence, Differential, FirstFailure, Report, RootCause
from traindoctor.evals import compare, reliability, results_page, table
from traindoctor.evals.case import Mark, load
from traindoctor.evals.score import Score, score, unanswered

DEMO = Path(__file__).parents[2] / "evals" / "demo"
CASE = load(DEMO)
Doctor = Callable[..., subprocess.CompletedProcess[str]]


def scored(name: str, said: str, confidence: float, exact: bool, **more: object) -> Score:
    fields = {"said": said, "confidence": confidence, "exact": exact, "lenient": exact, "top3": exact, **more}
    return replace(unanswered(CASE, ""), id=name, missed_marks=[], **fields)  # pyright: ignore


SCORES = [
    scored("a", "dist.rank_died", 0.95, True),
    scored("b", "dist.rank_died", 0.85, False, expected=("env.segfault",)),
    scored("c", "none.healthy", 0.15, False, expected=("loss.bad_init",), status="<b>healthy</b>"),
]


def test_calibration_by_hand() -> None:
    found = reliability.bins(SCORES)
    assert [(b.low, b.n, b.right) for b in found] == [(0.1, 1, 0.0), (0.8, 1, 0.0), (0.9, 1, 1.0)]
    assert reliability.ece(found) == pytest.approx((0.05 + 0.85 + 0.15) / 3, abs=1e-4)
    assert reliability.brier(SCORES) == pytest.approx((0.05**2 + 0.85**2 + 0.15**2) / 3, abs=1e-4)
    assert reliability.ece([]) is None
    assert reliability.bins([scored("x", "y", 1.0, True)])[0].high == 1.0
    assert "0.9-1.0" in "\n".join(reliability.as_lines(SCORES))
    assert table.summary(SCORES)["ece"] == reliability.as_data(SCORES)["ece"]


def test_precision_counts_lines_of_the_verdict_near_a_mark(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "train.log").write_text("".join(f"line {n}\n" for n in range(1, 41)))
    case = replace(CASE, folder=tmp_path, marks=(Mark("train.log", "line 20"),), rank=3, step=7)
    evidence = [
        CitedEvidence(id=f"E{n}", key="k", kind="line", file="train.log", line=n, text=f"line {n}")
        for n in (15, 26, 30, 20)
    ]
    weighed = [Differential(id="x", confidence=0.5, supported_by=["E15", "E26", "E20"])]
    root = RootCause(id="x", confidence=0.5, first_failure=FirstFailure(rank=3, step=8))
    found = score(case, Report(status="likely", root_cause=root, differential=weighed, evidence=evidence))
    assert (found.support, found.support_near) == (3, 2)  # E30 is not what the verdict stands on, E26 too far
    assert (found.rank_right, found.step_right) == (True, False)
    assert score(replace(case, marks=(), rank=None), Report(status="likely", root_cause=root)).rank_right is None


def test_the_page_stands_alone_and_shows_every_miss() -> None:
    html = results_page.page(SCORES, "An <evaluation>", compare.changes({}, {}))
    assert not re.search(r"<script|<link|<img|\bsrc=|\bhref=|https?://|url\(", html)
    assert "<b>healthy</b>" not in html and "&lt;b&gt;healthy" in html and "An &lt;evaluation&gt;" in html
    assert html.count("<circle") == 3 and "default-src 'none'" in html
    for miss in ("<b>b</b>", "<b>c</b>", "expected env.segfault", "Confusion by family"):
        assert miss in html
    assert "<b>a</b>" not in html
    assert "None." in results_page.page(SCORES[:1])


def test_a_baseline_tells_better_from_worse(tmp_path: Path) -> None:
    compare.write(tmp_path / "short.json", SCORES)
    (tmp_path / "long.json").write_text(json.dumps(table.as_data(SCORES)))
    assert compare.read(tmp_path / "short.json") == compare.read(tmp_path / "long.json") == compare.kept(SCORES)
    now = [
        replace(SCORES[0], exact=False, lenient=True, said="dist.ib_link"),
        replace(SCORES[1], exact=True),
        replace(SCORES[2], said="none.x"),
    ]
    found = compare.changes(compare.kept(SCORES), compare.kept([*now, scored("d", "x", 0.5, True)]))
    assert (len(found.better), len(found.worse), len(found.other), found.unknown) == (1, 1, 1, ["d"])
    assert found.before == found.after and not found.dropped
    assert compare.changes(compare.kept(SCORES), compare.kept(now[:1])).dropped
    cited = replace(SCORES[0], invented=["E1"])
    assert compare.changes(compare.kept(SCORES), compare.kept([cited, *SCORES[1:]])).dropped
    assert "better (1):" in compare.as_lines(found)
    for text in ("", "[]", '{"incidents": 3}', '{"incidents": {"a": [1]}}'):
        (tmp_path / "none.json").write_text(text)
        with pytest.raises(UsageError, match="no evaluation"):
            compare.read(tmp_path / "none.json")
    with pytest.raises(UsageError, match="No such file"):
        compare.read(tmp_path / "nothing.json")


@pytest.mark.real
def test_the_command_writes_compares_and_fails_on_a_drop(doctor: Doctor, here: None, tmp_path: Path) -> None:
    good, page = tmp_path / "good.json", tmp_path / "page.html"
    done = doctor("eval", DEMO, "--write-baseline", good, "--html", page, "--hay", "5x")
    assert done.returncode == 0, done.stderr
    assert "hay 5x: 1 incidents" in done.stdout and "<svg" in page.read_text()
    same = doctor("eval", DEMO, "--baseline", good, "--fail-on-drop", "--json")
    assert same.returncode == 0 and json.loads(same.stdout)["baseline"]["dropped"] is False
    hard = DEMO.parent / "incidents" / "data-loss-zero-34b"
    assert doctor("eval", hard, "--write-baseline", good).returncode == 0
    worse = doctor("eval", hard, "--solver", "grep", "--baseline", good, "--fail-on-drop")
    assert worse.returncode == 1 and "worse (1):" in worse.stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--fail-on-drop"], "--fail-on-drop needs --baseline"),
        (["--solver", "luck"], "no such solver: luck"),
        (["--solver", "paste"], "needs a model"),
        (["--hay", "huge"], "no such size: huge"),
    ],
)
def test_wrong_usage_is_told(doctor: Doctor, arguments: list[str], why: str) -> None:
    done = doctor("eval", DEMO, *arguments)
    assert done.returncode == 2 and why in done.stderr
