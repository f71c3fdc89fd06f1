"""Amounts that the evidence gives: how much less, how long, how many, and which of the values that exist.

A playbook names one under `amount`. Each is None where the evidence does not tell it: no repair is guessed.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from ...verdict.predicates import Facts
from .recipe import Ground

TOLD = 400  # first lines of a log, in which a run tells what it is made of
SAVING = 0.1  # share of the time that saving may take
_TARGET = re.compile(
    r"Target (\d{1,9}) is out of bounds|[Ll]abel (?:value of |index )?(\d{1,9}) .{0,30}out(?:side| of)"
)
_REPLICAS = re.compile(r"model-parallel (\d{1,6}) x data-parallel \d{1,6} is not (\d{1,6}) processes")
_MULTIPLE = re.compile(r"(\d{1,6}) processes are not a multiple of the model-parallel size (\d{1,6})")
_DIVISIBLE = re.compile(r"\((\d{1,6}(?:\s?[x*]\s?\d{1,6})*)\)[^()]{0,80}divisible by[^()]{0,80}\((\d{1,6})\)")
_PARTS = re.compile(r"(\d{1,5}) parts on disk, (\d{1,5}) now")
_ROWS = re.compile(  # of an embedding or the head over the vocabulary: in the file, and in the model
    r"(?:embed\w*|wte|lm_head|tok_embeddings)\.weight\b.{0,160}?Size\(\[(\d{1,9}).{0,120}?Size\(\[(\d{1,9})"
)
_ENTRIES = re.compile(
    r"(?i)\btokeni[sz]er(?:\s?[:=(]\s?| with | has )(\d{2,9}) (?:entries|tokens|pieces|words)\b"
    r"|\blen\(tokenizer\)\s?[=:]\s?(\d{2,9})\b|\btokenizer[ _]vocab(?:ulary)?[ _]?size\s?[=:]?\s?(\d{2,9})\b"
)
_MISREAD = re.compile(r"(\S+), .+ is (\S+)\Z")


@dataclass(frozen=True)
class Amounts:
    """What the evidence of a diagnosis says about the run's own numbers."""

    on: Ground
    facts: Facts

    def of(self, amount: str, setting: str) -> Any:
        """The value of a setting by the name of an amount; None where nothing tells it, or it is that already."""
        value = AMOUNTS[amount](self, setting)
        return None if value == self.on.now(setting) else value

    def count(self, name: str) -> int | None:
        """A setting that is a whole number above zero, as it is now."""
        now = self.on.now(name)
        number = isinstance(now, int | float) and not isinstance(now, bool)
        return int(now) if number and 0 < now < 1 << 40 and float(now).is_integer() else None

    def numbers(self, *keys: str) -> list[float]:
        """Numbers that the evidence of these keys has."""
        found = [e.value for key in keys for e in self.facts.get(key) if e.kind != "absent"]
        return [float(v) for v in found if isinstance(v, int | float) and not isinstance(v, bool)]

    def said(self, pattern: re.Pattern[str], *keys: str) -> list[re.Match[str]]:
        """Where the evidence of these keys says something."""
        texts = [str(text) for key in keys for e in self.facts.get(key) for text in (e.value, e.text)]
        return [m for text in texts if (m := pattern.search(text))]


def saving_interval(run: Amounts, name: str) -> int | None:
    """Saving as rarely as keeps it to a tenth of the time, and still twice in a run."""
    shares = [s for s in run.numbers("breakdown.checkpoint", "profile.checkpoint_fraction") if SAVING < s < 1]
    now, whole = run.count(name), run.count("max_steps")
    if not shares or now is None:
        return None
    share = max(shares)
    wanted = math.ceil(now * share / (1 - share) * (1 - SAVING) / SAVING)
    return max(now, min(wanted, whole // 2) if whole else wanted)


def longest_passed(run: Amounts, name: str) -> int | None:
    """The greatest length that went well before one that is far longer did not, as a power of two."""
    passed, now = run.numbers("memory.longest_passed"), run.count(name)
    if not passed or now is None:
        return None
    return min(now, 1 << math.ceil(math.log2(max(passed))))


def classes_seen(run: Amounts, name: str) -> int | None:
    """Classes for the greatest label that was met; one far beyond them is a mark to ignore and no class."""
    met = [int(m[1] or m[2]) for m in run.said(_TARGET, "error.first", "error.message", "sig.data.index_out_of_range")]
    met += [int(n) for n in run.numbers("data.label_out_of_range", "sample.label_out_of_range")]
    now = run.count(name)
    return max(met) + 1 if met and now is not None and now <= max(met) <= 2 * now + 2 else None


def rows_for_tokens(run: Amounts, name: str) -> int | None:
    """Rows for every entry of the tokenizer."""
    now = run.count(name)
    rows = [int(n) + 1 for n in run.numbers("tokenizer.exceeds_embedding", "tokenizer.exceeds_config")]
    rows = rows or list(_entries_told(run))
    return max(rows) if now is not None and rows and now < max(rows) else None


def _entries_told(run: Amounts) -> Iterator[int]:
    """How many entries the log says that the tokenizer has; a word that stands for a file counts nothing."""
    for file in run.on.ws.by_role("log"):
        for line in islice(run.on.ws.lines(file), TOLD) if not file.good else ():
            if m := _ENTRIES.search(line.text[:400]):
                yield int(next(filter(None, m.groups())))


def rows_of_checkpoint(run: Amounts, name: str) -> int | None:
    """The rows that the vocabulary has in the checkpoint, where the run asks for others."""
    found = {(int(m[1]), int(m[2])) for m in run.said(_ROWS, "sig.ckpt.shape_mismatch", "error.message", "error.first")}
    stored, asked = next(iter(found)) if len(found) == 1 else (0, 0)
    here = [s.value for s in run.on.settings if s.name == name]  # of the model that is loaded too, which agrees
    return stored if stored and asked in here else None


def saved_parts(run: Amounts, name: str) -> int | None:
    """As many parts as the checkpoint was saved in, where the run makes as many as it was loaded into."""
    found = {(int(m[1]), int(m[2])) for m in run.said(_PARTS, "checkpoint.split_otherwise")}
    disk, loaded = next(iter(found)) if len(found) == 1 else (0, 0)
    return disk if disk and loaded == run.count(name) else None


def file_encoding(run: Amounts, name: str) -> str | None:
    """The encoding that the files have, where the one they were read with is set."""
    pairs = {(m[1], m[2]) for m in run.said(_MISREAD, "data.encoding_misread")}
    now = run.on.now(name)
    if len(pairs) != 1 or not isinstance(now, str):
        return None
    read, real = next(iter(pairs))
    try:
        return codecs.lookup(real).name if codecs.lookup(now).name == codecs.lookup(read).name else None
    except LookupError:
        return None


def fitting_batch(run: Amounts, name: str) -> int | None:
    """The next smaller micro-batch, else the next larger, whose product the group size divides."""
    told, now = run.said(_DIVISIBLE, "error.first", "error.message"), run.count(name)
    if not told or now is None:
        return None
    whole = math.prod(int(n) for n in re.findall(r"\d+", told[0][1]))
    group = int(told[0][2])
    if not group or whole % now or whole % group == 0:
        return None
    step = group // math.gcd(group, whole // now)
    return max(step, now // step * step)


def left_over_replicas(run: Amounts, name: str) -> int | None:
    """Data parallelism: what model parallelism leaves of the processes."""
    found = {(int(m[1]), int(m[2])) for m in run.said(_REPLICAS, "lint.parallel_sizes")}
    model, processes = next(iter(found)) if len(found) == 1 else (0, 0)
    return processes // model if model and processes % model == 0 else None


def dividing_split(run: Amounts, name: str) -> int | None:
    """The next smaller tensor parallelism with which the processes come out even."""
    found = {(int(m[1]), int(m[2])) for m in run.said(_MULTIPLE, "lint.parallel_sizes")}
    processes, model = next(iter(found)) if len(found) == 1 else (0, 0)
    now = run.count(name)
    if now is None or not model or model % now:
        return None
    return next((n for n in range(now - 1, 1, -1) if processes % (model // now * n) == 0), None)


def existing_folder(run: Amounts, name: str) -> str | None:
    """The one folder of the run that is called nearly like a path that leads nowhere."""
    now = run.on.now(name)
    if not isinstance(now, str) or now.startswith(("/", "~")) or "/" not in now:
        return None
    path = PurePosixPath(now)
    folders = {p for f in run.on.ws.files for p in PurePosixPath(f.name).parents if p.name}
    if path in folders or not run.said(re.compile(re.escape(now)), "error.first", "error.message"):
        return None
    alike = [p for p in folders if p.name == path.name and SequenceMatcher(None, str(p), str(path)).ratio() > 0.9]
    return str(alike[0]) if len(alike) == 1 else None


def answer_header(run: Amounts, name: str) -> str | None:
    """The header before the answers of the samples, where none of them has the one that the mask looks for."""
    now = run.on.now(name)
    if not isinstance(now, str) or not re.search(r"[A-Za-z]", now) or not re.search(r"[^\w\s]", now):
        return None
    form = re.compile(re.sub(r"[A-Za-z]+", "[A-Za-z]+", re.escape(now.strip())))
    last: set[str] = set()
    for file in run.on.ws.by_role("data", "log"):
        for line in islice(run.on.ws.lines(file), TOLD) if not file.good else ():
            headers = form.findall(line.text[:4000])
            if len(set(headers)) > 1:
                last.add(headers[-1])
                last.update(h for h in headers if h == now.strip())
    return next(iter(last)) if len(last) == 1 else None


def best_share(run: Amounts, name: str) -> int | None:
    """Training as far as validation was best."""
    best = [e.step for e in run.facts.get("eval.best_step") if e.step and e.value == e.step]
    last = [e.step for key in ("eval.worsened", "eval.gap_ratio") for e in run.facts.get(key) if e.step]
    now = run.count(name)
    if not best or not last or now is None or min(best) >= max(last):
        return None
    if name == "max_steps" and not 0.9 <= now / max(last) <= 1.1:
        return None
    return max(1, math.ceil(now * min(best) / max(last)))


def steps_made(run: Amounts, name: str) -> int | None:
    """The length that the run really has, where the schedule was given a shorter one."""
    if not (run.facts.get("run.finished") or run.facts.get("run.healthy_end")):
        return None
    now = run.count(name)
    steps = [e.step for found in run.facts.by_key.values() for e in found if e.step is not None]
    return max(steps) if now is not None and steps and max(steps) > now else None


AMOUNTS: dict[str, Callable[[Amounts, str], Any]] = {
    f.__name__: f
    for f in (
        saving_interval, longest_passed, classes_seen, rows_for_tokens, file_encoding, fitting_batch,
        left_over_replicas, dividing_split, existing_folder, best_share, steps_made,
        rows_of_checkpoint, saved_parts, answer_header,
    )
}  # fmt: skip
