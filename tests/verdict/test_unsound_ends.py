"""An end that was reached is no proof of health while a fault stands; where the first failure lies."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.core.playbook import KNOWLEDGE, read_folder
from traindoctor.agent.core.report import FirstFailure, Report
from traindoctor.agent.core.types import Evidence
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.session import diagnose
from traindoctor.agent.verdict.planner import HEALTHY, INSUFFICIENT, verdict
from traindoctor.agent.verdict.predicates import Facts
from traindoctor.agent.verdict.ranking import rank

NAN = float("nan")
STEPS = 60
PLAIN = "2026-11-22 01:{minute:02d}:{second:02d} INFO step {step} loss {loss:.4f} lr 1e-4"
HF = "{{'loss': {loss:.4f}, 'grad_norm': {norm:.4f}, 'learning_rate': 5e-05, 'epoch': {epoch:.3f}}}"
MEGATRON = (
    " [2026-11-22 01:{minute:02d}:{second:02d}] iteration {step:8d}/      60 | consumed samples: {step:12d} | elapsed time"
    " per iteration (ms): 812.3 | learning rate: 1.000000E-04 | global batch size:    64 | lm loss: {loss:.6E} |"
    " grad norm: {norm:.3f} | number of skipped iterations:   0 |"
)
DONE = "2026-11-22 01:12:00 INFO Training completed."


def curve(spoilt=(), value=NAN, first=1):
    return [(i, value if i in spoilt else 3 - 0.03 * i) for i in range(first, STEPS + 1)]


def log(form, points, end=DONE, hour=0):
    def line(step, loss):
        norm = 1.0 + step % 3 / 10 if loss == loss else NAN
        return form.format(
            step=step, loss=loss, norm=norm, epoch=step / 20, minute=10 + hour * 20 + step // 60, second=step % 60
        )

    return "\n".join([*(line(step, loss) for step, loss in points), end]) + "\n"


def asked(folder: Path, question: str, **files: str) -> Report:
    run = folder / "run"
    run.mkdir(parents=True)
    for name, text in files.items():
        (run / f"{name}.log").write_text(text)
    *_, last = diagnose(Workspace([run], live=False), question, state=folder / "state")
    assert isinstance(last, ReportReady)
    return last.report


@pytest.mark.parametrize(
    ("form", "question"),
    [
        (PLAIN, "is it fine?"),
        (PLAIN, "everything looks fine, can it go on overnight?"),
        (HF, "is it fine?"),
        (MEGATRON, "what went wrong?"),
    ],
    ids=range(4),
)
def test_a_run_that_ends_on_nan_is_not_healthy(tmp_path, form, question):
    report = asked(tmp_path, question, train=log(form, curve(range(30, STEPS + 1))))
    assert report.root_cause.id == INSUFFICIENT or report.root_cause.id.startswith("loss."), (question, report)
    assert report.status != "healthy"
    assert any(e.key == "loss.first_nan_step" and e.line == 30 for e in report.evidence)


def test_a_last_loss_that_is_infinite_is_not_healthy(tmp_path):
    report = asked(tmp_path, "is it fine?", train=log(PLAIN, curve([58, 60], float("inf"))))
    assert report.status != "healthy"


def test_a_step_skipped_early_and_a_restart_that_worked_are_healthy(tmp_path):
    skipped = asked(tmp_path / "a", "is it fine?", train=log(PLAIN, curve([2], float("inf"))))
    assert (skipped.root_cause.id, skipped.status) == (HEALTHY, "healthy")
    broke = log(PLAIN, curve([39, 40])[:40], "RuntimeError: the loss is nan, training stops")
    went_on = log(PLAIN, curve(first=21), hour=1)
    again = asked(tmp_path / "b", "is it fine?", first=broke, second=went_on)
    assert "loss.nan_until_end" not in {e.key for e in again.evidence}


PAGES = [p for p in read_folder(KNOWLEDGE) if p.cause == HEALTHY]


def sure(*faults: str) -> list:
    """The ranking of a run that came to a good end, asked whether it is well, with these faults."""
    good = ("run.healthy_end", "run.finished", "loss.decreasing", "reward.rising", "nccl.test_passed")
    return rank(PAGES, Facts.of([
        Evidence(key=key, value=True, file="train.log", line=n, text="", id=f"E{n}")
        for n, key in enumerate((*good, *faults), 1)
    ]))  # fmt: skip


@pytest.mark.parametrize(
    ("faults", "healthy"),
    [
        ((), True),
        (("eval.first_nan_step",), False),
        (("error.native_crash",), False),
        (("error.native_crash", "run.recovered"), True),
        (("loss.first_nan_step",), False),
        (("loss.first_nan_step", "loss.nan_recovered"), True),
        (("loss.first_nan_step", "loss.nan_recovered", "host.disk_full"), False),
        (("loss.first_nan_step", "loss.nan_recovered", "run.recovered", "loss.nan_until_end"), False),
    ],
)
def test_healthy_stands_only_where_each_strong_contradiction_was_overcome(faults, healthy):
    assert (verdict(sure(*faults)) == HEALTHY) is healthy


KILLED = """\
[rank0]: 2026-11-22 01:10:01 INFO step 1 loss 2.9700 lr 1e-4
[rank1]: 2026-11-22 01:10:01 INFO step 1 loss 2.9700 lr 1e-4
[rank0]: 2026-11-22 01:10:02 INFO step 2 loss 2.9400 lr 1e-4
[rank1]: 2026-11-22 01:10:02 INFO step 2 loss 2.9400 lr 1e-4
E1122 01:10:06.000000 4242 torch/distributed/elastic/multiprocessing/api.py:870] failed (exitcode: -9) local_rank: 1 \
(pid: 4251) of binary: /usr/bin/python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
======================================================
train.py FAILED
------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-22_01:10:06
  host      : node3
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 4251)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4251
======================================================
"""


def test_of_many_ranks_the_one_whose_loss_broke_at_the_smallest_step_is_the_first_failure(tmp_path):
    ranks = {f"rank{r}": log(PLAIN, curve(range(at, STEPS + 1))) for r, at in enumerate((34, 33, 31, 32))}
    first = asked(tmp_path, "what went wrong?", **ranks).root_cause.first_failure
    assert (first.rank, first.step) == (2, 31)


def test_the_rank_that_was_killed_is_the_first_failure(tmp_path):
    first = asked(tmp_path, "what went wrong?", train=KILLED).root_cause.first_failure
    assert (first.rank, first.step) == (1, 2)


def test_what_the_launcher_saw_first_is_told_also_where_no_cause_is(tmp_path):
    summary = KILLED[KILLED.index("torch.distributed.elastic") :].replace("exitcode  : -9", "exitcode  : 1")
    report = asked(tmp_path, "what went wrong?", launcher=summary.replace("Signal 9 (SIGKILL) received by PID 4251", "?"))
    assert report.status == "insufficient_evidence"
    assert (report.root_cause.first_failure.rank, report.root_cause.first_failure.step) == (1, None)


def test_a_run_that_did_not_break_has_no_first_failure(tmp_path):
    ranks = {f"rank{r}": log(PLAIN, curve()) for r in range(2)}
    assert asked(tmp_path, "how is my run?", **ranks).root_cause.first_failure == FirstFailure()
