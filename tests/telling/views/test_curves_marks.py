"""What is marked on curves: where it broke, on all of them the same, whatever the verdict says."""

from __future__ import annotations

import math
from pathlib import Path

from traindoctor.agent.core.report import CitedEvidence, Differential, FirstFailure, Report, RootCause
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.telling.views.curve_views import drawings
from traindoctor.agent.telling.views.timeline import timeline

LINE = "2026-03-04 10:{m:02d}:{s:02d} step {n} | loss {loss} | grad_norm {norm} | memory allocated {gib:.1f} GiB\n"


def log(path: Path, broken_from: float = math.inf, norm_from: float = math.inf) -> None:
    rows = []
    for n in range(60):
        loss, norm = "nan" if n >= broken_from else f"{2 + 1 / (n + 1):.3f}", "nan" if n >= norm_from else "0.5"
        rows.append(LINE.format(m=n // 60, s=n % 60, n=n, loss=loss, norm=norm, gib=30 + n / 2))
    path.write_text("".join(rows))


def verdict(status: str, rank: int | None = None) -> Report:
    first = CitedEvidence(
        id="E1", key="loss.first_nan_step", value=42, step=42, kind="line", rank=0, file="rank0.log", line=43,
        text="nan",
    )  # fmt: skip
    before = CitedEvidence(
        id="E2", key="loss.nan_flat_before", value=True, step=12, kind="line", rank=0, file="rank0.log", line=13,
        text="x",
    )  # fmt: skip
    return Report.model_validate({
        "status": status,
        "root_cause": RootCause(id="loss.bad_batch", confidence=0.6, first_failure=FirstFailure(rank=rank, step=42)),
        "differential": [Differential(id="loss.bad_batch", confidence=0.6, supported_by=["E1", "E2"])],
        "evidence": [first, before],
    })  # fmt: skip


def test_a_gap_is_marked_on_all_curves_and_the_rank_that_has_it_stands_out(tmp_path: Path) -> None:
    log(tmp_path / "rank0.log", 42, 44)
    log(tmp_path / "rank1.log", 40, 44)
    log(tmp_path / "rank2.log", 42, 44)
    found = {d.figure.metric: d for d in drawings(Workspace([tmp_path], live=False), verdict("confirmed", rank=0))}
    assert {found[m].figure.marks["first anomaly"] for m in ("loss", "grad_norm")} == {40.0}
    assert [c.label for c in found["loss"].figure.curves if c.apart] == ["rank 1"]
    assert found["loss"].apart == "first not finite", "the report names the first that it cites"
    assert "GiB" in found["memory"].figure.text and "e10" not in found["memory"].figure.text


def test_what_is_not_finite_is_marked_though_the_verdict_sees_nothing_wrong(tmp_path: Path) -> None:
    log(tmp_path / "train.log", 30)
    (loss,) = (d for d in drawings(Workspace([tmp_path], live=False), verdict("healthy")) if d.figure.metric == "loss")
    assert loss.figure.marks["first anomaly"] == 30


def test_a_loss_of_one_number_and_then_nan_is_looked_at_first(tmp_path: Path) -> None:
    log(tmp_path / "train.log", 1)
    found = drawings(Workspace([tmp_path], live=False), verdict("confirmed"))
    assert found[0].figure.metric == "loss" and found[0].figure.marks["first anomaly"] == 1


def test_stamps_of_one_moment_are_no_axis(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text("2026-03-04 10:00:00 config read\n{'loss': 2.5}\n{'loss': 2.4}\n")
    line = timeline(Workspace([tmp_path], live=False))
    assert line.axis.basis == "none" and "all stamps are of one moment" in line.axis.why
