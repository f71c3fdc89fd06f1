"""Telling a flight-recorder dump from other files by its first bytes, whatever it is called."""

from __future__ import annotations

import re

_PICKLE = re.compile(rb"\A\x80[\x02-\x05]")
_JSON = re.compile(rb"\A\s*\{")


def is_dump(head: bytes) -> bool:
    """Whether the first KiB of a file are those of a dump, pickled or JSON."""
    if _PICKLE.match(head):
        return b"pg_config" in head and (b"version" in head or b"entries" in head)
    if b'"traceEvents"' in head or b'"distributedInfo"' in head:
        return False  # torch.profiler names the process groups at the head of its traces
    if _JSON.match(head):
        return b'"collective_seq_id"' in head or (b'"pg_config"' in head and b'"ranks"' in head)
    return False
