"""One line under the header: how the job that is followed stands, by its last look."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from textual.content import Content
from textual.widgets import Static

from ..text import said

if TYPE_CHECKING:
    from ...agent.chat.chat_following import Pulse

_MARKS = {"running": (">", "$success"), "waiting": ("-", "$text-muted"), "finished": ("-", "$success")}
_TROUBLE = ("!", "$error")
_LATE = 20.0  # seconds after a look was due from which that is told: its files do not answer, or take long to read


class LiveStrip(Static):
    """Nothing until the first pulse. Its seconds go on by themselves: a look may hang, the line does not."""

    DEFAULT_CSS = """
    LiveStrip {
        height: 1; padding: 0 1; background: $panel; display: none; text-wrap: nowrap; text-overflow: ellipsis;
    }
    LiveStrip.-following { display: block; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._pulse: Pulse | None = None
        self._awaited = ""
        self._since = 0.0  # monotonic clock at the pulse: the clock of files may be set

    def on_mount(self) -> None:
        self.set_interval(1.0, self._say)

    def show_pulse(self, pulse: Pulse | None) -> None:
        """How the job stands now; None where no job is followed any more."""
        self._pulse, self._since, self._awaited = pulse, time.monotonic(), ""
        self.set_class(pulse is not None, "-following")
        self._say()

    def show_awaited(self, names: str) -> None:
        """What is waited for, and since when: nothing of it is there yet."""
        self._pulse, self._since, self._awaited = None, time.monotonic(), names
        self.add_class("-following")
        self._say()

    def on_resize(self) -> None:
        self._say()

    def _say(self) -> None:
        if self._awaited:
            from ...agent.chat.chat_following import span

            passed = span(round(time.monotonic() - self._since))
            self.update(Content.assemble(("- waiting", "bold $text-muted"), f" {passed} for ", said(self._awaited)))
        elif self._pulse is not None:
            self.update(line(self._pulse, time.monotonic() - self._since, max(self.size.width, 20)))


def line(pulse: Pulse, passed: float, width: int) -> Content:
    """The strip in words, the most telling first; parts that have no room are left out from the end.

    Args:
        passed: seconds since the pulse was made.
    """
    from ...agent.chat.chat_following import span

    mark, colour = _MARKS.get(pulse.state, _TROUBLE)
    late = passed - pulse.wait > _LATE
    told = Content.styled(f"{'!' if late else mark} {pulse.state}", f"bold {'$error' if late else colour}")
    for part in [f"not looked at for {span(round(passed))}"] * late + _parts(pulse, passed):
        more = Content("   ") + (Content.styled(part, "$error") if part.startswith("!") else said(part, limit=200))
        if told.cell_length + more.cell_length <= width:
            told = told + more
    return told


def _parts(pulse: Pulse, passed: float) -> list[str]:
    from ...agent.chat.chat_following import at_step, span
    from ...agent.telling.page.plot import said as value
    from ...agent.telling.page.plot import said_step

    parts: list[str] = []
    if pulse.step is not None:
        parts.append(f"step {said_step(pulse.step)}")
    if pulse.loss is not None:
        bad = not math.isfinite(pulse.loss)
        parts.append(f"{'! ' if bad else ''}loss {value(pulse.loss)}")
    if pulse.grown is not None:
        parts.append(f"last line {span(max(0, round(pulse.looked - pulse.grown + passed)))} ago")
    if pulse.pace:
        rate = f"{1 / pulse.pace:.3g} steps/s" if pulse.pace < 1 else f"{span(pulse.pace)} a step"
        parts.append(rate)
    if pulse.not_finite is not None:
        parts.append(
            f"! not finite first{at_step(pulse.not_finite)}" if math.isfinite(pulse.not_finite) else "! not finite"
        )
    elif pulse.spike is not None:
        parts.append(f"! jump to {value(pulse.spike[1])} at step {said_step(pulse.spike[0])}")
    return parts
