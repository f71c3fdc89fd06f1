"""Experiments that tell a broken pipeline from a hard task: one batch learned by heart, and the input zeroed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ..reading import experiments
from ..reading.experiments import MOST_SECONDS, Declaration, Overrides, Trial
from ..rehearsal import rehearses, would_run
from ..tool import clean, failed, finding, not_applicable, tool
from ..types import Evidence, Risk, ToolResult
from ..workspace import Workspace

LEARNED = 0.1  # of its first value: a loss on one batch that falls so far was learned
SMALL = 0.02  # a loss that is small from the start was learned too
SAME = 0.02  # relative difference of losses below which zeroed input makes no difference

Seconds = Annotated[float, Field(description="time limit of one run; 0: as declared", ge=0, le=3600)]


@tool(
    emits=("experiment.overfits", "experiment.overfit_first_loss", "experiment.overfit_last_loss",
           "experiment.overfit_ratio", "experiment.overfit_not_finite"),
    risk=Risk.COSTLY,
    live=True,
)  # fmt: skip
def overfit_one_batch(ws: Workspace, seconds: Seconds = 0) -> ToolResult:
    """Train on one batch with the user's own command: a sound pipeline learns it by heart.

    Use when loss does not fall. Runs the command that the user declared (the file named by DOCTOR_EXPERIMENTS,
    section overfit_one_batch) within a time limit and says whether the loss on one batch goes to about zero. If
    not, labels, masks, gradients or the optimizer are broken; data and tuning come later. Without a declaration:
    the edits to make by hand.
    """
    found = experiments.declared()
    if not ws.live or found is None or found[0].overfit_one_batch is None:
        return _by_hand(ws, "overfit_one_batch", "overfit_one_batch")
    what, home = found
    assert what.overfit_one_batch is not None
    if rehearses(ws):
        return _rehearsed(ws, what, [what.overfit_one_batch], home, seconds)
    trial = experiments.run(ws, what, what.overfit_one_batch, home, seconds)
    if trial.trouble:
        return failed(trial.trouble)
    finite = [v for v in trial.losses if math.isfinite(v)]
    first, last = trial.first, trial.last
    told = f"loss {first:.6g} at first, {last:.6g} at the end of {len(trial.losses)} points on one batch"
    evidence = [
        _cite(ws, trial, "experiment.overfit_first_loss", first),
        _cite(ws, trial, "experiment.overfit_last_loss", last),
    ]
    if len(finite) < len(trial.losses):
        return finding(f"not finite: {told}", [*evidence, _cite(ws, trial, "experiment.overfit_not_finite", True)])
    ratio = last / first if first > 0 else 1.0
    learned = ratio <= LEARNED or last <= SMALL
    evidence += [
        _cite(ws, trial, "experiment.overfit_ratio", round(ratio, 6)), _cite(ws, trial, "experiment.overfits", learned),
    ]  # fmt: skip
    if learned:
        return clean(f"one batch is learned: {told}", evidence)
    if trial.stopped:
        return failed(f"stopped at its time limit before one batch was learned: {told}; give it more with --seconds")
    return finding(f"one batch is not learned: {told}", evidence)


@tool(
    emits=("experiment.ignores_input", "experiment.real_input_loss", "experiment.zero_input_loss",
           "experiment.zero_input_ratio", "experiment.real_input_learns"),
    risk=Risk.COSTLY,
    live=True,
)  # fmt: skip
def zero_input_baseline(ws: Workspace, seconds: Seconds = 0) -> ToolResult:
    """Train with zeroed input and with the real one: an equal loss means that the model does not see its input.

    Use when loss stays where guessing would put it. Runs the command that the user declared (the file named by
    DOCTOR_EXPERIMENTS, sections zero_input and real_input) twice within a time limit. Without a declaration: the
    edits to make by hand.
    """
    found = experiments.declared()
    if not ws.live or found is None or found[0].zero_input is None:
        return _by_hand(ws, "zero_input_baseline", "zero_input")
    what, home = found
    assert what.zero_input is not None
    if rehearses(ws):
        return _rehearsed(ws, what, [what.zero_input, what.real_input or Overrides()], home, seconds)
    zero = experiments.run(ws, what, what.zero_input, home, seconds)
    real = experiments.run(ws, what, what.real_input or Overrides(), home, seconds)
    for name, trial in (("zeroed", zero), ("real", real)):
        if trial.trouble:
            return failed(f"with {name} input: {trial.trouble}")
        if trial.stopped:
            points = f"{len(trial.losses)} points of a loss"
            return failed(f"with {name} input: stopped at its time limit after {points}; give it more with --seconds")
    if not math.isfinite(zero.last) or not math.isfinite(real.last):
        return failed(f"a loss is not finite: {zero.last:g} with zeroed input, {real.last:g} with the real one")
    ratio = zero.last / real.last if real.last else math.inf
    same = abs(real.last - zero.last) <= SAME * max(abs(real.last), abs(zero.last))
    evidence = [
        _cite(ws, zero, "experiment.zero_input_loss", zero.last),
        _cite(ws, real, "experiment.real_input_loss", real.last),
        _cite(ws, real, "experiment.zero_input_ratio", round(min(ratio, 1e9), 6)),
        _cite(ws, real, "experiment.real_input_learns", real.last < 0.95 * real.first),
        _cite(ws, zero, "experiment.ignores_input", same),
    ]
    told = f"loss {real.last:.6g} with the real input, {zero.last:.6g} with zeros"
    if same:
        return finding(f"the input makes no difference: {told}", evidence)
    return clean(f"the input is used: {told}", evidence)


def _rehearsed(
    ws: Workspace, what: Declaration, runs: list[Overrides], home: Path, seconds: float
) -> ToolResult:  # fmt: skip
    """Note the runs under the name of an output folder that is made only when they are made."""
    for o in runs:
        argv = [*(o.command or what.command), *o.arguments]
        env = {**o.environment, "DOCTOR_OUTPUT": "{output}", "PYTHONUNBUFFERED": "1"}
        would_run(ws, argv, min(seconds or what.seconds, MOST_SECONDS), env, (home / what.folder).resolve())
    return not_applicable("not run")


def _cite(ws: Workspace, trial: Trial, key: str, value: float | bool) -> Evidence:
    return ws.answered(trial.done, key, value, text=trial.last_line)


def _by_hand(ws: Workspace, experiment: str, section: str) -> ToolResult:
    """What to do where no command is declared."""
    framework, steps = experiments.by_hand(ws, experiment)
    how = f"declare [{section}] in a file of yours and name it: DOCTOR_EXPERIMENTS=experiments.toml"
    result = not_applicable(f"no command is declared for it: {how}; or by hand, see text")
    result.text = "\n".join([result.summary, f"By hand ({framework}):", *(f"- {s}" for s in steps)])
    return result
