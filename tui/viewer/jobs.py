"""Work of the viewer away from the screen's thread: one long job at a time, told and stopped; short ones beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from textual.message import Message

from ...agent.core.errors import DoctorError, ParseError
from ...agent.telling.views.excerpt import Cancelled, Watch


@dataclass
class Done(Message):
    """A job is over. `then` takes its result on the thread of the screen, if nothing else was opened meanwhile."""

    job: Job
    result: Any = None
    trouble: str = ""


@dataclass(slots=True, eq=False)
class Job:
    """A piece of work: what it is called while it runs, what it does, what is done with its result."""

    name: str
    work: Callable[[Watch], Any]
    then: Callable[[Any], None]
    age: int  # which opening it belongs to; results for an earlier one are dropped
    watch: Watch

    def run(self, post: Callable[[Message], object]) -> None:
        """Do it on this thread; whatever comes of it is posted."""
        try:
            post(Done(self, self.work(self.watch)))
        except Cancelled:
            post(Done(self, trouble=f"stopped: {self.name}"))
        except (DoctorError, ParseError, OSError) as e:
            post(Done(self, trouble=f"{self.name}: {getattr(e, 'strerror', None) or e}"))
        except Exception as e:  # noqa: BLE001 - a fault of ours is told and the viewer stays
            post(Done(self, trouble=f"bug in doctor: {self.name}: {type(e).__name__}: {e}"))

    @property
    def progress(self) -> str:
        """`searching 41% of 3.1 GB`."""
        done, total = self.watch.done, self.watch.total
        if not done:
            return f"{self.name} ..."
        return f"{self.name} {done / total:.0%} of {size(total)}" if total else f"{self.name} {size(done)}"


def new_job(name: str, work: Callable[[Watch], Any], then: Callable[[Any], None], age: int) -> Job:
    """A job that can be stopped."""
    return Job(name, work, then, age, Watch(stop=threading.Event()))


def size(count: float) -> str:
    """Bytes in three digits: `812 B`, `4.2 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
