"""Calls to a rollout engine (vLLM, SGLang) in server and trainer logs, in order, as a small state machine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..scan.anchors import Hit

_CALLS: tuple[tuple[str, str], ...] = (
    ("reset", r"reset(?:ting)?[_ ]prefix[_ ]cache|flush(?:ed|ing)?[_ ]cache"),
    ("wake", r"POST /?\S*wake_?up|resume_memory_occupation|\bwake_up\(|waking up|woke up"),
    ("sleep", r"POST /?\S*/sleep\b|release_memory_occupation|sleep (?:mode )?freed|entering sleep"),
    ("update", r"POST /?\S*/(?:start_weight_update|update_weights\w*|update_named_param|load_weights|weight_update)"),
    ("update", r"\bupdate_weights(?:_from_\w+)?\("),
    ("generate", r"POST /?\S*(?:/completions|/generate|/chat)\b"),
)
CALLS: tuple[tuple[str, re.Pattern[str]], ...] = tuple((kind, re.compile(p, re.IGNORECASE)) for kind, p in _CALLS)
UPDATE = r"(?:update_weights|weight_update|weight sync|update weights|weight update)"
LATE = r"(?:timed out|time out|Timeout ?Error|ReadTimeout)"
TIMED_OUT = re.compile(rf"{UPDATE}.{{0,160}}{LATE}|{LATE}.{{0,160}}{UPDATE}", re.IGNORECASE)
DEAD = re.compile(
    r"EngineDeadError|engine ?core.{0,80}(?:exited unexpectedly|died|failed to start)|"
    r"engine ?core encountered (?:an issue|a fatal error)|"
    r"scheduler hit an exception|sigquit received|rollout engine.{0,60}(?:dead|died|crash)|engine.{0,40}unhealthy|"
    r"ActorDiedError.{0,80}(?:engine|rollout|vllm|sglang)",
    re.IGNORECASE,
)
PART = r"(?:decode|prefill|forward)"
COMPARED = re.compile(
    rf"(?P<a>[\w.-]{{1,40}}) (?P<apart>{PART})\w{{0,12}}\s{{1,8}}vs\.?\s{{1,8}}"
    rf"(?P<b>[\w.-]{{1,40}}) (?P<bpart>{PART})\w{{0,12}}\s{{0,8}}[:|].{{0,60}}?(?P<value>\d+(?:\.\d+)?)",
    re.IGNORECASE,
)
# An engine that joins a process group for weight updates (SGLang), and one that waited in vain for the others.
JOINS = re.compile(r"init custom process group: .{0,240}\bgroup_name=(?P<group>[\w.-]{1,80})")
NOT_FORMED = re.compile(r"Failed to initialize custom process group")
DIVERGED = re.compile(r"diverge[ds]?|mismatch|differs?|\bFAIL", re.IGNORECASE)
OUTLIERS = re.compile(r"(\d+)\s?/\s?(\d+) (?:outlier|sequences? (?:with|above|over)|diverg)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Event:
    """One call (sleep, wake, update, reset or generate), with the line that shows it."""

    kind: str
    hit: Hit


def events(hits: Iterable[Hit]) -> list[Event]:
    """The calls among these lines, in their order."""
    found = []
    for hit in hits:
        kind = next((kind for kind, pattern in CALLS if pattern.search(hit.text)), None)
        if kind:
            found.append(Event(kind, hit))
    return found


def updates_while_asleep(calls: list[Event]) -> tuple[list[Event], list[Event]] | None:
    """The sleep calls and the weight updates after them with no wake-up between; None when the order is right."""
    asleep: list[Event] = []
    for i, call in enumerate(calls):
        if call.kind == "sleep":
            asleep.append(call)
        elif call.kind == "wake" or call.kind == "generate":
            asleep = []
        elif call.kind == "update" and asleep:
            later = []
            for x in calls[i:]:
                if x.kind == "wake":
                    break
                later += [x] if x.kind == "update" else []
            return asleep, later[:4]
    return None
