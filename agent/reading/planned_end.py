"""Whether a log's last progress stands where the run was to end: its own counter, or the steps and epochs asked for."""

from __future__ import annotations

import re

from .settings import Settings

_STEP = re.compile(
    r"(?i)\b(?:global[_ ]?|train(?:ing)?[_ ]?)?(?:step|iter|iteration|batch)s?\b\s{0,2}[:=\[#(]{0,2}\s{0,6}(\d{1,9})"
    r"(?:\s{0,2}(?:/|of)\s{0,6}(\d{1,9}))?"
)
_EPOCH = re.compile(
    r"(?i)\bep(?:och)?\b[\s:=\[#(]{0,6}(\d{1,6})\]?(?:\s{0,2}(?:/|of)\s{0,6}(\d{1,6}))?"
    r"(?:.{0,4}\[\s{0,6}(\d{1,9})\s{0,2}/\s{0,6}(\d{1,9}))?"
)
_LOGGED = 0.03  # of the way, by which the last line that is logged may stand before the end
_FEWEST = 5  # steps; a shorter count is one of other things


def at_planned_end(body: str, settings: Settings) -> bool:
    """Whether a line of progress is of the last step, or near the end of the last epoch, that was asked for."""
    steps, epochs = _asked(settings, "max_steps"), _asked(settings, "epochs")
    epoch, step = _EPOCH.search(body), _STEP.search(body)
    if epoch is not None:
        number, count = int(epoch[1]), int(epoch[2] or epochs or 0)
        if count < 2 or number not in (count, count - 1) or (epoch[2] and number != count):
            # a count within an epoch that is not the last says nothing of the whole
            return (step is None or not step[2] or count < 2) and _reached(step, steps)
        within = epoch[3], epoch[4]
        if within[0]:
            return int(within[0]) >= 0.8 * int(within[1])
        return number == count or step is None or not step[2] or _reached(step, None)
    return _reached(step, steps)


def _reached(step: re.Match[str] | None, asked: float | None) -> bool:
    if step is None:
        return False
    count = float(step[2]) if step[2] else asked or 0.0
    return count >= _FEWEST and (1 - _LOGGED) * count <= int(step[1]) <= count + 1


def _asked(settings: Settings, name: str) -> float | None:
    """The largest number that a call, a configuration or a print gives; a default of the code where there is none."""
    found = [
        s for s in (*settings.used(name), *settings.asked(name))
        if isinstance(s.value, int | float) and s.value > 0 and not s.file.good
    ]  # fmt: skip
    return max((float(s.value) for s in found if not s.default or all(f.default for f in found)), default=None)
