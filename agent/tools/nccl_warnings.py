"""NCCL's warnings ranked by what they are likeliest to come from, and the transport it chose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import yaml

from ..playbook import KNOWLEDGE
from ..reading import nccl_lines as nl
from ..reading.anchor_lines import Hit, anchored
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

EACH = 4
_VIA = re.compile(r" via (P2P/\w+|SHM/\w+|SHM|NET/\w+(?:/\d+)?(?:/GDRDMA)?|direct shared memory|P2P)\b", re.IGNORECASE)
_GDR = re.compile(r"GPU Direct RDMA (Enabled|Disabled)", re.IGNORECASE)
_TIMINGS = re.compile(r"Init timings.{0,80}?\btotal (\d+(?:\.\d+)?)", re.IGNORECASE)
_RCCL = re.compile(r"RCCL version ?:? ?(\d+\.\d+\.\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of warning: its cause where it has one of its own, and what it means. `place`: how telling, from 0."""

    place: int
    name: str
    cause: str
    pattern: re.Pattern[str]
    means: str


@cache
def kinds() -> tuple[Kind, ...]:
    """The table of `knowledge/nccl_warnings.yaml`, the most telling first."""
    text = (KNOWLEDGE / "nccl_warnings.yaml").read_text(encoding="utf-8")
    data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return tuple(
        Kind(place, w["name"], w["cause"], re.compile(w["pattern"], re.IGNORECASE), w["means"])
        for place, w in enumerate(data["warnings"])
    )


def kind_of(message: str) -> Kind | None:
    """The most telling kind that a warning is of."""
    return next((k for k in kinds() if k.pattern.search(message[:2000])), None)


@tool(
    emits=(
        "nccl.likely_cause", "nccl.warning_kind", "nccl.warning_unknown", "nccl.transport", "nccl.gdr",
        "nccl.init_seconds", "nccl.rccl_version",
    ),
    recall=True,
)  # fmt: skip
def nccl_warnings(ws: Workspace) -> ToolResult:
    """Rank NCCL's (or RCCL's) warnings by the cause they are likeliest to come from, and name the transport chosen.

    Use when NCCL printed warnings: many follow from one, and a closed connection is hardly ever the cause. Tells the
    most telling kind first, which ranks print it, and by what the channels run (P2P, SHM, NET/IB with or without GPU
    Direct RDMA, NET/Socket).
    """
    hits = anchored(ws).of("nccl")
    if not any(nl.LINE.search(h.text) or _RCCL.search(h.text) for h in hits):
        return not_applicable("no line of NCCL or RCCL in the run's files")
    told = [(h, m["message"]) for h in hits if (m := nl.LINE.search(h.text)) and m["level"] == "WARN"]
    warned = [(h, kind_of(message)) for h, message in told]
    evidence = [*_ranked(ws, warned), *_chosen(ws, hits)]
    rows = [f"{e.file}:{e.line} {e.key} = {e.value}" for e in evidence]
    known = sorted({k for _, k in warned if k is not None}, key=lambda k: k.place)
    if not known:
        return clean("no warning of a known kind", evidence, "\n".join(rows))
    rows += [f"{k.name}: {k.means} ({k.cause})" for k in known]
    first = known[0]
    return finding(f"{first.name}: {first.means}" + _also(known[1:]), evidence, "\n".join(rows))


def _also(others: list[Kind]) -> str:
    return f"; also {', '.join(k.name for k in others[:4])}" if others else ""


def _ranked(ws: Workspace, warned: list[tuple[Hit, Kind | None]]) -> Iterator[Evidence]:
    """One cause, by the most telling warning, then each kind with its first lines."""
    by_kind: dict[Kind, list[Hit]] = {}
    for hit, kind in warned:
        if kind is not None:
            by_kind.setdefault(kind, []).append(hit)
    likely = next((k for k in sorted(by_kind, key=lambda k: k.place) if k.cause != "none"), None)
    if likely is not None:
        hit = by_kind[likely][0]
        yield ws.cite(hit.file, hit.line, "nccl.likely_cause", likely.cause, rank=hit.rank)
    for kind in sorted(by_kind, key=lambda k: k.place):
        seen: set[object] = set()
        for hit in by_kind[kind]:
            who = hit.rank if hit.rank is not None else hit.file.name
            if who not in seen and len(seen) < EACH:
                seen.add(who)
                yield ws.cite(hit.file, hit.line, "nccl.warning_kind", kind.name, rank=hit.rank)
    unknown = [h for h, kind in warned if kind is None]
    for hit in unknown[:EACH]:
        yield ws.cite(hit.file, hit.line, "nccl.warning_unknown", hit.text.split("NCCL WARN", 1)[-1].strip()[:200])


def _chosen(ws: Workspace, hits: list[Hit]) -> Iterator[Evidence]:
    """Transports, GPU Direct RDMA, seconds of initialization, RCCL's version; each value once."""
    told: set[tuple[str, object]] = set()
    for hit in hits:
        for key, value in _facts(hit.text):
            if (key, value) not in told and sum(k == key for k, _ in told) < EACH:
                told.add((key, value))
                yield ws.cite(hit.file, hit.line, key, value, rank=hit.rank)


def _facts(text: str) -> Iterator[tuple[str, str | float]]:
    if m := _VIA.search(text):
        yield "nccl.transport", re.sub(r"/\d+(?=/|$)", "", m[1])
    if m := _GDR.search(text):
        yield "nccl.gdr", m[1].lower()
    if m := _TIMINGS.search(text):
        yield "nccl.init_seconds", float(m[1])
    if m := _RCCL.search(text):
        yield "nccl.rccl_version", m[1]
