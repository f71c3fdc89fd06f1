"""An alarm as it is told, and what keeps one event from being told for every file and rank that shows it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from ..redact import Redactor
from .kinds import KINDS, Found, Severity

_REMEMBERED = 256  # alarms that a new one may be an echo of
_NEAR = 0.02  # of the step: so far apart two files may number the same event
_DIGITS = re.compile(r"\d+")
_ONE_EVENT = frozenset(
    ("loss_nan", "grad_nan", "loss_spike", "divergence", "plateau", "memory_growth", "scale_floor", "steps_skipped",
     "checkpoint_failed")
)  # fmt: skip
_BY_TEXT = frozenset(("traceback", "fatal", "xid"))
_SHOWN = 400  # characters of a text


@dataclass(frozen=True, slots=True)
class Alarm:
    """One line of the output. Fields as `--json` has them; see docs/watch.md.

    Attributes:
        also: on how many more ranks or files the same was seen at that look.
        earlier: what it stands on was there when the watch began.
    """

    time: str
    severity: Severity
    kind: str
    step: float | None
    rank: int | None
    file: str
    line: int | None
    value: float | None
    usual: str
    text: str
    run: str
    again: bool = False
    earlier: bool = False
    also: int = 0

    def plain(self) -> dict[str, Any]:
        """As plain data that JSON can say: nan and inf as text."""
        data = asdict(self)
        if self.value is not None and not abs(self.value) < float("inf"):
            data["value"] = str(self.value)
        return data


class Voice:
    """Makes alarms of findings: one for each event, however many files and ranks show it."""

    def __init__(self, run: str, kinds: frozenset[str]) -> None:
        self._run, self._kinds = run, kinds
        self._said: deque[Found] = deque(maxlen=_REMEMBERED)
        self._redactor = Redactor()

    def say(self, found: Iterable[tuple[Found, bool]]) -> list[Alarm]:
        """The alarms of one look, grave ones first; each finding comes with whether it is of before the watch."""
        fresh: list[tuple[Found, bool, int]] = []
        for one, earlier in found:
            if one.kind not in self._kinds:
                continue
            at = next((i for i, (held, _, _) in enumerate(fresh) if _same_event(held, one)), None)
            if at is not None:
                held, old, also = fresh[at]
                fresh[at] = (held, old, also + 1)
            elif not any(_same_event(held, one) for held in self._said):
                fresh.append((one, earlier, 0))
            self._said.append(one)
        alarms = [self._alarm(*f) for f in fresh]
        return sorted(alarms, key=lambda a: a.severity != "alarm")

    def _alarm(self, found: Found, earlier: bool, also: int) -> Alarm:
        text = self._redactor.redact(found.text)[:_SHOWN]
        if also:
            text += f" (and {also} more of the same)"
        return Alarm(
            datetime.now().astimezone().isoformat(timespec="seconds"), found.severity or KINDS[found.kind].severity,
            found.kind, found.step, found.rank, found.file, found.line, found.value, found.usual, text, self._run,
            found.again, earlier, also,
        )  # fmt: skip


def _same_event(a: Found, b: Found) -> bool:
    """Whether two findings show one event: elsewhere, near the same step. At one place each stands for itself."""
    if a.kind != b.kind or (a.severity != b.severity and b.severity is None):
        return False
    if (a.file, a.rank) == (b.file, b.rank):
        return a.kind in _BY_TEXT and _worded(a) == _worded(b) and a.line != b.line and a.kind != "xid"
    if a.kind in _BY_TEXT:
        return _worded(a) == _worded(b)
    if a.kind not in _ONE_EVENT:
        return False
    if a.step is None or b.step is None:
        return True
    return abs(a.step - b.step) <= max(2.0, _NEAR * max(abs(a.step), abs(b.step)))


def _worded(found: Found) -> str:
    return _DIGITS.sub("", found.text)[:120] if found.kind != "xid" else found.text[:160]


def placed(found: Found, **where: Any) -> Found:
    """The same finding with what it does not say itself of where it stands."""
    return replace(found, **{k: v for k, v in where.items() if getattr(found, k) in (None, "") and v is not None})
