"""What an end with an exception says of causes that have nothing to do with it: they cannot be why the run ended.

A learning rate, a version, a difference to another run are in sound runs too. Beside an exception that nobody caught,
such a circumstance alone is no reason; and a loss or a speed ends no process, unless the exception speaks of it or
values were no longer finite.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .predicates import Facts
from .types import Evidence

NO_REASON = -1.0  # below what carries a verdict
CIRCUMSTANCES = ("settings.", "lint.", "env.", "compare.", "question.")
ENDS_NOTHING = ("loss", "speed", "eval")  # families of causes under which a process lives on
GOOD_END = ("run.healthy_end", "run.finished", "run.recovered", "job.exit_ok")
BEHAVIOUR = frozenset({"nan", "spike", "divergence", "not_learning", "slow", "eval_bad", "rl_bad", "generation"})
SPEAKS_OF_IT = ("sig.", "error.message")  # its own signature, or a predicate over the words of the exception
ASKED_TO_STOP = frozenset({"KeyboardInterrupt", "SystemExit"})
_NOT_FINITE = re.compile(r"nan|nonfinite|non_finite|overflow")


def ended_by_exception(facts: Facts) -> bool:
    """Whether an exception ended the run, as far as is known, and the question is not about something else."""
    if not facts.get("error.first") or any(facts.get(key) for key in GOOD_END):
        return False
    if BEHAVIOUR & {str(e.value) for e in facts.get("question.symptom")}:
        return False
    names = {str(e.value) for e in facts.get("error.exception")}
    return bool(names - ASKED_TO_STOP)


def is_no_reason(cause: str, supported: Iterable[Evidence]) -> bool:
    """Whether a cause that this evidence speaks for cannot be what raised the exception."""
    told = list(supported)
    if all(e.key.startswith(CIRCUMSTANCES) for e in told):
        return True
    of_the_host = {(e.file, e.line) for e in told if e.key.startswith("host.")}  # the machine speaks, not the run
    tied = any(
        _NOT_FINITE.search(e.key) or (e.key.startswith(SPEAKS_OF_IT) and (e.file, e.line) not in of_the_host)
        for e in told
    )
    return cause.partition(".")[0] in ENDS_NOTHING and not tied
