"""Looking at the disk beside the screen, in threads that are never waited for.

A worker of the screen is joined when the program ends, and a look at a dead server never ends; so these are threads
that end with the program.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

from textual.widget import Widget

T = TypeVar("T")


def hand_over(widget: Widget, then: Callable[[T], None], result: T) -> None:
    """Have the screen's thread go on with what was found; nothing happens where the screen is gone."""
    with contextlib.suppress(RuntimeError):  # its loop is closed
        widget.call_later(then, result)


def look(widget: Widget, work: Callable[[], T], then: Callable[[T], None], failed: Callable[[str], None]) -> None:
    """Do work that reads from the disk, then go on with its result on the screen's thread.

    Args:
        failed: hears in one line what went wrong.
    """

    def run() -> None:
        try:
            found = work()
        except OSError as e:
            hand_over(widget, failed, e.strerror or type(e).__name__)
        except Exception as e:  # noqa: BLE001 - a list that cannot be made may not cost the conversation
            hand_over(widget, failed, f"bug in doctor: {type(e).__name__}: {e}")
        else:
            hand_over(widget, then, found)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), daemon=True, name="look").start()
