"""Whether a log's last progress stands where the run was to end: its own counter, or the steps and epochs asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .settings import Settings

_STEP = re.compile(
    r"(?i)\b(?:global[_ ]?|train(?:ing)?[_ ]?)?(?:step|iter|iteration)s?\b\s{0,2}[:=\[#(]{0,2}\s{0,6}(\d{1,9})"
    r"(?:\s{0,2}(?:/|of)\s{0,6}(\d{1,9}))?"
)
_EPOCH = re.compile(
    r"(?i)\bep(?:och)?\b[\s:=\[#(]{0,6}(\d{1,6})\]?(?:\s{0,2}(?:/|of)\s{0,6}(\d{1,6}))?"
    r"(?:.{0,4}\[\s{0,6}(\d{1,9})\s{0,2}/\s{0,6}(\d{1,9}))?"
)
_WITHIN = re.compile(r"(?i)\b(?:step|iter|iteration|batch)s?\b[\s:=\[#(]{0,6}\d{1,9}(?:\s{0,2}(?:/|of)\s{0,6}\d{1,9})?")
_OTHER = re.compile(
    r"(?i)(?<![a-z0-9_])(?:eval(?:uat\w{1,4})?|valid(?:at\w{1,4})?|val|test(?:ing)?)\b"
    r"(?!\s(?:loss|acc|ppl|perp|bpb|err|f1|score)|[\s:=]{1,3}\d{1,9}\.\d)"
)
_OPENS = re.compile(
    r"(?i)\b(?:saving|validating|evaluating|testing|uploading|exporting|merging|writing|validation|evaluation|"
    r"(?:begin|start|run)\w{0,4} (?:eval|valid|test|sav)\w{0,8})\b"
)
_CLOSES = re.compile(r"(?i)\b(?:saved|wrote|written|done|complete[d]?|finished|uploaded|exported)\b")
_LOGGED = 0.03  # of the way, by which the last line that is logged may stand before the end
_FEWEST = 5  # steps; a shorter count is one of other things


def at_planned_end(body: str, settings: Settings) -> bool:
    """Whether a line of progress is of the last step, or near the end of the last epoch, that was asked for."""
    if _OTHER.search(body):
        return False
    steps, epochs = _asked(settings, "max_steps"), _asked(settings, "epochs")
    epoch, step = _EPOCH.search(body), _STEP.search(body)
    if epoch is None:
        return _reached(step, steps)
    number, count = int(epoch[1]), int(epoch[2] or epochs or 0)
    if count < 2 or number not in (count, count - 1) or (epoch[2] and number != count):
        # a count within an epoch that is not the last says nothing of the whole, the steps asked for do
        return step is not None and steps is not None and _near(int(step[1]), steps)
    if epoch[3]:
        return int(epoch[3]) >= 0.8 * int(epoch[4])
    return _reached(step, steps) if step or _WITHIN.search(body) else number == count or epoch[2] is None


def of_the_whole(body: str, texts: Iterable[str], settings: Settings) -> bool:
    """Whether the counter of the log's last progress is one of the run: it never began anew, the epoch is the last.

    Args:
        texts: the lines of the log, in their order.
    """
    step = _STEP.search(body)
    total = int(step[2]) if step and step[2] else 0
    asked = int(_asked(settings, "epochs") or 0)
    highest, fell, first, last, count = 0, False, 1, None, 0
    for text in texts:
        if "tep" not in text and "iter" not in text and "po" not in text.lower():
            continue
        if _OTHER.search(text):
            continue
        for m in _STEP.finditer(text):
            if total and m[2] and int(m[2]) == total:
                fell = fell or int(m[1]) < highest - total / 2
                highest = max(highest, int(m[1]))
        if m := _EPOCH.search(text):
            first, last, count = min(first, int(m[1])), int(m[1]), int(m[2] or asked)
    if last is not None and count >= 2 and last < count - (first == 0):
        steps = _asked(settings, "max_steps")
        return step is not None and steps is not None and _near(int(step[1]), steps) and not fell
    # in the last epoch a count may have begun anew with each epoch
    return not fell or (last is not None and count >= 2)


def phase_opened(texts: Iterable[str]) -> bool:
    """Whether the lines after the last progress begin something (a save, a validation) and do not say that it ended."""
    opened = False
    for text in texts:
        opened = not _CLOSES.search(text) and (opened or _OPENS.search(text) is not None)
    return opened


def _near(number: int, count: float) -> bool:
    return count >= _FEWEST and (1 - _LOGGED) * count <= number <= count + 1


def _reached(step: re.Match[str] | None, asked: float | None) -> bool:
    if step is None:
        return False
    return _near(int(step[1]), float(step[2]) if step[2] else asked or 0.0)


def _asked(settings: Settings, name: str) -> float | None:
    """The largest number that a call, a configuration or a print gives; a default of the code where there is none."""
    found = [
        s for s in (*settings.used(name), *settings.asked(name))
        if isinstance(s.value, int | float) and s.value > 0 and not s.file.good
    ]  # fmt: skip
    return max((float(s.value) for s in found if not s.default or all(f.default for f in found)), default=None)
