"""Other ways to an answer, to compare doctor with: each takes a task and gives a report of the same form.

`paste` pastes the logs into one request to a model, `retrieval` names the playbook that the index finds for the words
of the failure, `grep` looks for well-known lines. They get the same copy of the files as doctor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from ...agent.core.errors import UsageError

if TYPE_CHECKING:
    from ...agent.core.report import Report
    from ..asked import Task

Name = Literal["offline", "model", "paste", "retrieval", "grep"]
NAMES: tuple[Name, ...] = ("offline", "model", "paste", "retrieval", "grep")
OTHERS = ("paste", "retrieval", "grep")  # without doctor's own planners


def solver(name: str) -> Callable[[Task], Report]:
    """The way of that name, of `OTHERS`.

    Raises:
        UsageError: there is none.
    """
    from . import grep, lookup, paste

    known = {"paste": paste.solve, "retrieval": lookup.solve, "grep": grep.solve}
    if name not in known:
        raise UsageError(f"no such solver: {name}", f"there are {', '.join(NAMES)}")
    return known[name]
