"""Metrics out of any log line: every number is read with the label that stands before it.

One rule covers HF dictionaries of both eras, Megatron, DeepSpeed, torchtitan, NeMo, nanoGPT, verl, slime,
progress-bar postfixes, `step=10 loss=...` and caffe: split the line at its numbers, look the text before each one
up in the vocabulary.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from ...run.lines import without_escapes
from ...run.metric_names import Meaning, meaning, unit_factor, vocabulary

# ----------
# What one line says of the metrics of a run.


@dataclass(slots=True)
class Reading:
    """What one line (or one redraw of a progress bar) says. `values`: (meaning, raw label, value, start, end)."""

    step: float | None = None
    step_span: tuple[int, int] | None = None
    epoch_span: tuple[int, int] | None = None
    start: int = 0  # where the prefix that names a rank ends
    epoch: float | None = None
    total: float | None = None
    rank: int | None = None
    learnable: bool = True  # what a number means shows from its place alone, so that such lines are read as columns
    values: list[tuple[Meaning, str, float, int, int]] = field(default_factory=list)


# ----------
# Status lines of inference engines: vLLM's and SGLang's load, throughput and cache, one line every few seconds.

_NUMBER = rb"([\d.]+)"
_FIELDS: tuple[tuple[str, float, re.Pattern[bytes]], ...] = tuple(
    (metric, factor, re.compile(pattern.replace(b"N", _NUMBER)))
    for metric, factor, pattern in (
        ("engine_throughput", 1.0, rb"(?:Avg generation throughput|gen throughput \(token/s\)): N"),
        ("prompt_throughput", 1.0, rb"(?:Avg prompt throughput|input throughput \(token/s\)): N"),
        ("engine_running", 1.0, rb"(?:Running: N reqs|#running-req: N)"),
        ("engine_waiting", 1.0, rb"(?:(?:Waiting|Pending): N reqs|#queue-req: N)"),
        ("cache_usage", 0.01, rb"GPU KV cache usage: N%"),
        ("cache_usage", 1.0, rb"(?<![a-z] )token usage: N"),
        ("cache_hit_rate", 0.01, rb"Prefix cache hit rate: (?:GPU: )?N%"),
    )
)
_ENGINE = re.compile(rb"Engine (\d{1,4}):|\bDP(\d{1,4})\b")
_TENSOR_RANK = re.compile(rb"\bTP([1-9]\d*)\b")


def is_status(line: bytes) -> bool:
    """Whether an engine says here how it is doing."""
    return b"#queue-req" in line or (b"throughput" in line and b" reqs" in line)


def status(line: bytes) -> Reading | None:
    """What a status line says; None where it repeats what another line says.

    The reading's rank is the number of the engine (data-parallel replica) where the line names one. Every tensor-
    parallel rank of SGLang may print the same line: those of the first count.
    """
    if _TENSOR_RANK.search(line):
        return None
    reading = Reading(learnable=False)  # the engine's number stands amid the line
    if m := _ENGINE.search(line):
        reading.rank = int(m[1] if m[1] is not None else m[2])
    seen: set[str] = set()
    for metric, factor, pattern in _FIELDS:
        if metric in seen or not (m := pattern.search(line)):
            continue
        group = next(i for i, g in enumerate(m.groups(), 1) if g is not None)
        seen.add(metric)
        try:
            value = float(m[group])
        except ValueError:
            continue
        reading.values.append((Meaning(metric, factor), metric, value * factor, *m.span(group)))
    return reading if reading.values else None


# ----------

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
_ASSIGNMENT = re.compile(rb"^\s{2,}[A-Za-z_.]+ += ")  # a table of settings, or of results that were logged before
_TRAINING_BAR = re.compile(rb"^\s*(?:$|(?:steps?|train\w*|epoch|iter\w*)\b[^|]{0,40}$|\d+%)", re.I)
_WRAPPER = re.compile(r"(?:np\.\w+|tensor|array|Tensor)\(\[?$")
_REST = re.compile(r"^\d+\s+(?=[A-Za-z])")  # of `step 10/700 loss`
_BAR_LABEL = re.compile(r"^\s*it \[")
_SKIP = (b"Namespace(", b"TrainingArguments(", b"Arguments(", b"Config(", b"Checkpoint(", b" --")
_MODULE = re.compile(
    rb"^\s*\(\w+\): [A-Za-z_]\w*\("
)  # a part of a model that is printed: `(criterion): MSE(weight=1.0)`
# In the name of a file numbers are settings, and values that were rounded: `last-step=20-val_loss=0.01.ckpt`.
_SAVED = re.compile(rb"\.(?:pth?|ckpt|safetensors|tar|npz|pkl|onnx|h5|gguf)\b")
_ENDS_NAME = re.compile(rb"[\s'\",:;(\[{|<>]")
_COPIED = b"wandb: "  # a summary of what was logged before
# The mode that numbers are of, from its word on: `Test: [ 1/10] Loss 0.4`, `train loss 0.3 acc 0.8 | val loss 0.4`.
_MODE = re.compile(
    rb"(?i)(?<![a-z0-9_/.-])(?:(?P<train>train(?:ing)?)"
    rb"|(?P<held>eval(?:uation|uating)?|valid(?:ation|ating)?|val|test(?:ing)?|dev)"
    rb"|(?P<aside>warm[- ]?start|benchmark|throughput test))(?![a-z0-9_/=-]|\.(?!\.))"
)
_OF_HELD = {"loss": "eval_loss", "perplexity": "eval_perplexity", "accuracy": "eval_accuracy", "reward": "eval_reward"}
_OF_TRAINING = frozenset({"step_time", "data_time", "throughput", "bar_step_time", "learning_rate", "grad_norm"})
BARE = frozenset({"train", "val", "valid", "validation", "test", "dev", "eval"})  # names of losses that say no more
# what follows the hours of a time, or the year of a date: `I 01:31:39 train]` names no step
_CLOCK = re.compile(rb"(?::\d\d:\d\d|-\d\d-\d\d)(?!\d)")
# `loss min|avg|max: 0.1|0.2|0.3`: the names of several statistics, then their numbers
_STATISTICS = re.compile(
    rb"(?P<name>[\w@/.-]{2,60})[ _]"
    rb"(?P<kinds>(?:min|avg|mean|max|med|median|std)(?:[|/](?:min|avg|mean|max|med|median|std)){1,4})"
    rb" *[:=] *(?P<numbers>[-+\w.]+(?: *[|/] *[-+\w.]+){1,4})"
)
_SECONDS = (b"ms", b"s", b"sec", b"us")
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
        name = _REST.sub("", name)
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


def _names_of_files(line: bytes) -> list[tuple[int, int]]:
    """Where the names of saved files stand."""
    if not (found := list(_SAVED.finditer(line))):
        return []
    ends = [0, *(m.end() for m in _ENDS_NAME.finditer(line))]
    return [(ends[bisect_right(ends, m.start()) - 1], m.end()) for m in found]


def read_line(line: bytes) -> Reading | None:
    """The metrics of one line, or None when it reports none."""
    line = without_escapes(line)
    if is_status(line):
        return status(line)
    if any(s in line for s in _SKIP) or _ASSIGNMENT.match(line) or line.startswith(_COPIED) or _MODULE.match(line):
        return None
    reading = Reading()
    mode, whole, placed = "", "", b"/step" in line
    rank = _RANK.search(line)
    start = 0
    if rank:
        reading.rank = int(next(g for g in rank.groups() if g is not None))
        start = reading.start = rank.end() if rank.start() == 0 else 0
    seen, unread, apart = set[str](), vocabulary().unread, list[bool]()
    end, listed, saved = start, _statistics(line), _names_of_files(line)
    for m in NUMBER.finditer(line, start):
        if inside := next((last for first, last in saved if first <= m.start() < last), 0):
            end = inside
            continue
        mode = _mode(line, end, m.start(), mode)
        whole = whole if reading.values else mode
        found, sep, name = _label(listed.get(m.start(), line[end : m.start()]))
        token = m[0]
        if token.lstrip(b"+-")[:1].isalpha() and (
            found is None or not (sep or line[m.start() - 1 : m.start()] == b" ")
        ):
            continue
        after = m.end()
        if found is None and name.lower() in BARE and b"." in token and (reading.step_span or reading.epoch_span):
            found = Meaning("loss", 1.0, True)  # `step 80 val 1.2111`: a loss, if its curve is like one
        if found is None or _CLOCK.match(line, after):
            end = after
            continue
        value = float(token.replace(b",", b""))
        unit = _UNIT.match(line, after)
        end = after
        if found.metric == "step" and unit is not None and unit[1] in _SECONDS:
            found, placed = Meaning("step_time", 1.0, True), True  # `Step: 328ms` counts nothing
        if found.metric == "step":
            if reading.step is None and value.is_integer():
                reading.step, reading.step_span = value, m.span()
        elif found.metric == "epoch":
            if reading.epoch is None:
                reading.epoch, reading.epoch_span = value, m.span()
        elif (
            (found := _of_mode(found, mode, whole)) is not None
            and found.metric not in seen
            and found.metric not in unread
        ):
            if unit and (factor := unit_factor(found.metric, unit[1].decode())) is not None:
                found, end = Meaning(found.metric, factor, found.needs_step), unit.end()
            seen.add(found.metric)
            apart.append(sep)
            reading.values.append((found, name, value * found.factor, *m.span()))
    _progress(line, reading)
    if whole == "held" and _is_under_way(line, reading):
        return None
    return _kept(reading, apart, placed=placed)


def _is_under_way(line: bytes, reading: Reading) -> bool:
    """Whether a line counts the batches of an evaluation: what comes out of it stands at the end of its bar."""
    if reading.total is None:
        return False
    under_way = reading.step != reading.total or not _PROGRESS.search(line)
    reading.step = None
    return under_way


def _mode(line: bytes, start: int, end: int, before: str) -> str:
    """The mode after a stretch of a line: its last word for one, or the mode before."""
    found = before
    for m in _MODE.finditer(line, start, end):
        found = m.lastgroup or found
    return found


def _of_mode(found: Meaning, mode: str, whole: str) -> Meaning | None:
    """What a number measures in its mode: an evaluation has a loss of its own, and its pace is not that of training.

    Args:
        whole: the mode of the line, told before its first number.
    """
    if whole == "aside" or (whole == "held" and found.metric in _OF_TRAINING):
        return None
    if mode == "held" and found.metric in _OF_HELD:
        return Meaning(_OF_HELD[found.metric], found.factor, found.needs_step)
    return found


def _of_total(line: bytes, reading: Reading) -> re.Match[bytes] | None:
    """`[ 1/50]`, unless it is the epoch that is counted so."""
    epoch = reading.epoch_span or (-1, -1)
    return next((m for m in _OF_TOTAL.finditer(line) if not m.start() <= epoch[0] < m.end()), None)


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
            if reading.step is None and reading.values and (of := _of_total(line, reading)):
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


# ----------
# Where metrics can stand at all: lines that hold one of a few word stems, found at gigabytes a second.

try:
    import hyperscan
except ImportError:  # optional: `bytes.find` does the same work, slower
    hyperscan: Any = None

# One of these stands in every line that is read as metrics: they name a step, or something kept without one.
_STEMS = (
    b"loss", b"step", b"iter", b"epoch", b"it/s", b"/it", b"grad", b"norm", b"scale", b"kl", b"logprob", b"length",
    b"nll", b"ppl", b"perplex", b"std", b"expert", b"lr", b"prob", b"router", b"entropy", b"reward", b"trunc", b"clip",
    b"_len", b"throughput", b"#queue", b"/sec", b"mse",
)  # fmt: skip
_MOST_HITS = 1 << 16  # in one block; beyond it every line is looked at
_local = threading.local()


def may_measure(text: bytes) -> bool:
    """Whether a line can hold metrics; wrong only by saying yes."""
    low = text.lower()
    return any(stem in low for stem in _STEMS)


def candidates(body: bytes, starts: np.ndarray) -> np.ndarray | None:
    """Mask of the lines that can hold metrics; None when there are so many that each is worth a look.

    Args:
        body: whole lines.
        starts: offset of each line in it.
    """
    if hyperscan is None:
        return None if may_measure(body) else np.zeros(len(starts), dtype=bool)
    ends: list[int] = []

    def hit(_id: int, _start: int, end: int, _flags: int, _context: object) -> bool:
        ends.append(end)
        return len(ends) >= _MOST_HITS

    try:
        _database().scan(body, match_event_handler=hit)
    except hyperscan.ScanTerminated:
        return None
    if len(ends) >= _MOST_HITS:
        return None
    mask = np.zeros(len(starts), dtype=bool)
    mask[np.searchsorted(starts, np.array(ends, dtype=np.int64) - 1, side="right") - 1] = True
    return mask


def _database() -> Any:
    """One database for each thread: its scratch space is not shared."""
    made = getattr(_local, "database", None)
    if made is None:
        made = hyperscan.Database()
        made.compile(
            expressions=[s.replace(b"/", rb"\/") for s in _STEMS], flags=[hyperscan.HS_FLAG_CASELESS] * len(_STEMS)
        )
        _local.database = made
    return made


# ----------
# Lines printed with fixed widths, read as columns: one example line tells where every digit stands.
#
# Logs of the big frameworks pad their numbers, so millions of lines share a handful of layouts. Rows of the same
# length are compared with the example in one numpy pass; what differs in anything but digits goes back to the
# line reader.

_DIGITS = b"0123456789"
_POWERS = np.array([float(f"1e{i}") for i in range(301)])


@dataclass(frozen=True)
class Field:
    """A number at fixed columns `start:end`: a weight for each column (0 for the point), its decimals and exponent."""

    start: int
    end: int
    weights: np.ndarray
    sign: float
    decimals: int
    exponent: tuple[int, int] | None
    exponent_sign: int

    def read(self, rows: np.ndarray) -> np.ndarray:
        """The values in rows of digits 0 to 9, rounded as the line reader would (up to 15 digits are exact)."""
        whole = (rows[:, self.start : self.end] @ self.weights) * self.sign
        if self.exponent is None:
            return whole / _POWERS[self.decimals]
        low, high = self.exponent
        power = (rows[:, low:high] @ (10.0 ** np.arange(high - low - 1, -1, -1))) * self.exponent_sign - self.decimals
        power = np.clip(power, -300, 300).astype(np.int64)
        return np.where(power < 0, whole / _POWERS[np.abs(power)], whole * _POWERS[np.abs(power)])


@dataclass(frozen=True)
class Layout:
    """Where an example line of `length` bytes has its numbers.

    A row fits when each byte lies between `lowest` and `lowest + span`: digits where the example has digits, the
    very same byte elsewhere.
    """

    length: int
    lowest: np.ndarray
    span: np.ndarray
    step: Field | None
    values: list[tuple[Meaning, str, Field]]
    rank: int | None

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray | None, list[np.ndarray]]:
        """Mask of the rows of this layout; steps and values of those. `rows`: uint8 (n, length), used up."""
        rows -= self.lowest  # digits become their value, the rest 0; what is below wraps around
        same = np.asarray((rows <= self.span).all(axis=1))
        if not same.all():
            rows = rows[same]
        steps = self.step.read(rows) if self.step else None
        return same, steps, [f.read(rows) * m.factor for m, _, f in self.values]


def learn(line: bytes, reading: Reading) -> Layout | None:
    """The layout of a line that was read, or None when its numbers cannot be taken by column."""
    if not reading.values or b"\r" in line or b"\x1b" in line or not reading.learnable or reading.total is not None:
        return None
    if reading.step is not None and reading.epoch is not None:
        return None  # steps may count anew in each epoch, which only the line reader follows
    values = []
    for meant, raw, _, start, end in reading.values:
        field = _field(line, start, end)
        if field is None or meant.metric == "bar_step_time":
            return None
        values.append((meant, raw, field))
    step = _field(line, *reading.step_span) if reading.step_span else None
    if reading.step is not None and step is None:
        return None
    lowest = np.frombuffer(line, np.uint8).copy()
    span = np.zeros(len(line), dtype=np.uint8)
    for m in NUMBER.finditer(line, _prefix_length(line, reading)):
        for i in range(m.start(), m.end()):
            if line[i] in _DIGITS:
                lowest[i], span[i] = 48, 9
    return Layout(len(line), lowest, span, step, values, reading.rank)


def _prefix_length(line: bytes, reading: Reading) -> int:
    """Bytes that must stay as they are: a rank in front tells whose line it is."""
    if reading.rank is None:
        return 0
    at = line.find(str(reading.rank).encode())
    return at + len(str(reading.rank)) if at >= 0 else 0


def _field(line: bytes, start: int, end: int) -> Field | None:
    token = line[start:end]
    if token[:1].isalpha() or token[1:2].isalpha():
        return None
    sign = -1.0 if token[:1] == b"-" else 1.0
    mantissa, _, exponent = token.lower().partition(b"e")
    figures = [c in _DIGITS for c in mantissa]
    first = next((i for i, f in enumerate(figures) if f), None)
    if first is None or sum(figures) > 15:
        return None
    places = np.cumsum(figures[first:][::-1])[::-1] - 1
    weights = np.where(figures[first:], 10.0**places, 0.0)
    point = mantissa.find(b".")
    decimals = len(mantissa) - point - 1 if point >= 0 else 0
    tail, power_sign = None, 1
    if exponent:
        power_sign = -1 if exponent[:1] == b"-" else 1
        base = start + len(mantissa) + 1
        tail = (base + len(exponent) - len(exponent.lstrip(b"+-")), base + len(exponent))
    return Field(start + first, start + len(mantissa), weights, sign, decimals, tail, power_sign)
