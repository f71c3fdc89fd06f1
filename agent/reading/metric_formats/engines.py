"""Status lines of inference engines: vLLM's and SGLang's load, throughput and cache, one line every few seconds."""

from __future__ import annotations

import re

from ..metric_names import Meaning
from .said import Reading

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
