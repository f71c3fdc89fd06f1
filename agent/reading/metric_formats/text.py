"""Metrics out of any log line: every number is read with the label that stands before it.

One rule covers HF dictionaries of both eras, Megatron, DeepSpeed, torchtitan, NeMo, nanoGPT, verl, slime,
progress-bar postfixes, `step=10 loss=...` and caffe: split the line at its numbers, look the text before each one
up in the vocabulary.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ..lines import without_escapes
from ..metric_names import Meaning, meaning, unit_factor, vocabulary
from .engines import is_status, status
from .said import Reading

NUMBER = re.compile(
    rb"(?<![\w.@/#])[-+]?(?:\d+(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?"
    rb"|(?:[nN][aA][nN]|[iI]nf(?:inity)?|INF)(?!\w))"
)
_UNIT = re.compile(rb"\s?([a-zA-Z%]+(?:/[a-zA-Z]+)?)")
_RANK = re.compile(
    rb"^\s*(?:\[rank(\d{1,5})\]:?|\[default(\d{1,5})\]:?|"
    rb"\[rank[ _:=]?(\d{1,5})\]|rank[ _:=]?(\d{1,5})[:\] |]|(\d{1,4}): )"
    rb"|\[[Rr]ank[ _:=]?(\d{1,5})\]|\[rank=(\d{1,5})\]"
)
_PROGRESS = re.compile(rb"(\d+)/(\d+) \[[^\]\[]{0,120}?(?:([\d.]+)(it/s|s/it)|\?)")
_COUNTING = re.compile(rb"(\d+)it \[[^\]\[]{0,120}?([\d.]+)(it/s|s/it)")
_COLUMN = re.compile(rb"^(\d{1,9})\t")  # a table on the console whose first column is the step
_OF_TOTAL = re.compile(rb"\[ *(\d+) */ *(\d+) *\]")
_ASSIGNMENT = re.compile(rb"^\s{2,}[A-Za-z_.]+ = ")
_TRAINING_BAR = re.compile(rb"^\s*(?:$|(?:steps?|train\w*|epoch|iter\w*)\b[^|]{0,40}$|\d+%)", re.I)
_WRAPPER = re.compile(r"(?:np\.\w+|tensor|array|Tensor)\(\[?$")
_BAR_LABEL = re.compile(r"^\s*it \[")
_SKIP = (b"Namespace(", b"TrainingArguments(", b"Arguments(", b"Config(", b"Checkpoint(", b" --")
_WORDLIKE = ("nan", "inf")
# what follows the hours of a time, or the year of a date: `I 01:31:39 train]` names no step
_CLOCK = re.compile(rb"(?::\d\d:\d\d|-\d\d-\d\d)(?!\d)")
# `loss min|avg|max: 0.1|0.2|0.3`: the names of several statistics, then their numbers
_STATISTICS = re.compile(
    rb"(?P<name>[\w@/.-]{2,60})[ _]"
    rb"(?P<kinds>(?:min|avg|mean|max|med|median|std)(?:[|/](?:min|avg|mean|max|med|median|std)){1,4})"
    rb" *[:=] *(?P<numbers>[-+\w.]+(?: *[|/] *[-+\w.]+){1,4})"
)
_MIDDLE = (b"avg", b"mean", b"med", b"median")


@lru_cache(maxsize=1 << 16)
def _label(raw: bytes) -> tuple[Meaning | None, bool, str]:
    """Meaning of the text before a number; whether a `:`/`=` parts them; the name as spelled."""
    text = _WRAPPER.sub("", raw.decode(errors="replace"))
    if _BAR_LABEL.match(text):
        return None, False, ""
    bare = text.rstrip(" '\"([{\t")
    apart = bare.endswith((":", "="))
    name = bare.rstrip(" :=.'\"-").lstrip(" ,:;|{}[]()'\"\t%/-")
    if "'" in text or '"' in text:
        pieces = [p for p in re.split(r"['\"]", text) if normalish(p)]
        name = pieces[-1] if pieces else name
        return meaning(name, True), True, name
    if "/" in name:
        name = re.split(r"[\s|,;]", name)[-1] if "(" not in name else name
        found = meaning(name, True) or meaning(name)
    else:
        cut = [piece.strip() for piece in re.split(r"[|,;}\]>]|\s-\s|\)\s", name)]
        name = next((piece for piece in reversed(cut) if piece), "")  # `Iter | 50`: the label stands before the bar
        found = meaning(name)
        if "(" in name and ")" not in name:
            name = name.rpartition("(")[2]
    return found, apart, name[-60:]


def normalish(piece: str) -> bool:
    """Whether a piece of text between quotes could be a name."""
    return any(c.isalpha() for c in piece)


def _statistics(line: bytes) -> dict[int, bytes]:
    """Where the numbers of such a list start, each with the label it is read under: the middle one alone has one."""
    labels: dict[int, bytes] = {}
    for m in _STATISTICS.finditer(line) if b"|" in line or b"/" in line else ():
        kinds = re.split(rb"[|/]", m["kinds"])
        places = [n.start() + m.start("numbers") for n in re.finditer(rb"[-+\w.]+", m["numbers"])]
        if len(kinds) == len(places):
            wanted = next((i for i, k in enumerate(kinds) if k in _MIDDLE), 0)
            labels |= {at: m["name"] + b": " if i == wanted else b"" for i, at in enumerate(places)}
    return labels


def read_line(line: bytes) -> Reading | None:
    """The metrics of one line, or None when it reports none."""
    line = without_escapes(line)
    if is_status(line):
        return status(line)
    if any(s in line for s in _SKIP) or _ASSIGNMENT.match(line):
        return None
    reading = Reading()
    rank = _RANK.search(line)
    start = 0
    if rank:
        reading.rank = int(next(g for g in rank.groups() if g is not None))
        start = reading.start = rank.end() if rank.start() == 0 else 0
    seen: set[str] = set()
    unread = vocabulary().unread
    apart: list[bool] = []
    end = start
    listed = _statistics(line)
    for m in NUMBER.finditer(line, start):
        found, sep, name = _label(listed.get(m.start(), line[end : m.start()]))
        token = m[0]
        wordlike = token.lstrip(b"+-")[:1].isalpha()
        if wordlike and (found is None or not (sep or line[m.start() - 1 : m.start()] == b" ")):
            continue
        after = m.end()
        if found is None or _CLOCK.match(line, after):
            end = after
            continue
        value = float(token.replace(b",", b""))
        unit = _UNIT.match(line, after)
        end = after
        if found.metric == "step":
            if reading.step is None and value.is_integer():
                reading.step, reading.step_span = value, m.span()
        elif found.metric == "epoch":
            if reading.epoch is None:
                reading.epoch, reading.epoch_span = value, m.span()
        elif found.metric not in seen and found.metric not in unread:
            if unit:
                factor = unit_factor(found.metric, unit[1].decode())
                if factor is not None:
                    found = Meaning(found.metric, factor, found.needs_step)
                end = unit.end() if factor is not None else after
            seen.add(found.metric)
            apart.append(sep)
            reading.values.append((found, name, value * found.factor, *m.span()))
    _progress(line, reading)
    return _kept(reading, apart, placed=b"/step" in line)


def _progress(line: bytes, reading: Reading) -> None:
    """Position and rate that a progress bar prints."""
    bar = _PROGRESS.search(line)
    if bar:
        if reading.step is None:
            reading.step, reading.total = float(bar[1]), float(bar[2])
        rate, unit = bar[3], bar[4]
        description = line[: bar.start()].rpartition(b":")[0] if b":" in line[: bar.start()] else b""
    else:
        counting = _COUNTING.search(line)
        if not counting:
            if reading.step is None and reading.values and (of := _OF_TOTAL.search(line)):
                reading.step, reading.total = float(of[1]), float(of[2])
            elif reading.step is None and reading.values and (column := _COLUMN.match(line)):
                reading.step, reading.step_span = float(column[1]), column.span(1)
            return
        if reading.step is None:
            reading.step = float(counting[1])
        rate, unit, description = counting[2], counting[3], line[: counting.start()]
    if (
        rate
        and (reading.values or _TRAINING_BAR.match(description))
        and not any(m.metric in ("step_time", "throughput") for m, *_ in reading.values)
    ):
        value = float(rate)
        seconds = value if unit == b"s/it" else 1 / value if value else float("nan")
        reading.values.append((Meaning("bar_step_time"), unit.decode(), seconds, 0, 0))


def _kept(reading: Reading, apart: list[bool], *, placed: bool) -> Reading | None:
    """The reading without what only looks like a metric: settings without a step, sentences with a number.

    `placed`: the line is about steps without naming one (`50ms/step`).
    """
    placed = placed or reading.step is not None or reading.epoch is not None
    if not placed:
        reading.values = [v for v, sep in zip(reading.values, apart, strict=False) if sep and not v[0].needs_step]
    return reading if reading.values else None
