"""Lints that need more than one condition: where a setting stands, in which command, beside which data."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import ParseError
from .files import Line, RunFile
from .settings import Setting, Settings
from .settings_files import head

if TYPE_CHECKING:
    from ..workspace import Workspace

_DEVICE = re.compile(r"^cuda(?::\d+)?$")
_HARD_DEVICE = re.compile(r"""\.cuda\(\s*0\s*\)|['"]cuda:0['"]|set_device\(\s*0\s*\)""")
_PORT_TAKERS = ("master_port", "rendezvous_endpoint", "standalone")
_NUMBERS_NODES = ("node_rank", "rendezvous_endpoint", "rendezvous_backend")
_COUNTS_ITSELF = re.compile(
    r"(?i)\btorchrun\b|torch\.distributed\.(?:run|launch)\b|force_torchrun|\bswift (?:sft|pt|rlhf)\b"
)


@dataclass(frozen=True, slots=True)
class Lint:
    """A fact about settings, with the lines it stands on (none where it is an absence)."""

    rule: str
    says: str
    lines: list[tuple[RunFile, Line]] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)


def place_lints(ws: Workspace, reading: Settings) -> Iterator[Lint]:
    """All lints of this module."""
    mine = [s for s in reading.all if not s.file.good]
    yield from _processes(mine)
    yield from _devices(ws, reading, mine)
    yield from _clipping(reading, mine)
    yield from _two_places(mine)
    yield from _ports(mine)
    yield from _unnumbered_nodes(mine)
    for file, key, first, second in reading.duplicates[:20]:
        if not file.good:
            yield Lint(
                "duplicate_key",
                f"{key} is given twice, on lines {first.number} and {second.number}",
                [(file, second), (file, first)],
            )


def lint_at(rule: str, says: str, *settings: Setting) -> Lint:
    """A lint that stands on the lines of settings."""
    return Lint(rule, says, [(s.file, s.line) for s in settings])


def named(settings: list[Setting], name: str) -> list[Setting]:
    """What was asked for under a canonical name."""
    return [s for s in settings if s.name == name and not s.used]


def whole(s: Setting) -> int | None:
    """A whole positive number below ten million, or None."""
    return s.value if isinstance(s.value, int) and not isinstance(s.value, bool) and 0 < s.value < 10**7 else None


def _processes(mine: list[Setting]) -> Iterator[Lint]:
    """More processes a node than devices that the same command can see."""
    for visible in named(mine, "visible_devices"):
        devices = visible.value
        if not isinstance(devices, list) or not all(re.match(r"[\w.:\-/]+\Z", str(d)) for d in devices):
            continue
        names = ("processes_per_node", "local_world_size", "world_size")
        starts = [s for name in names for s in named(mine, name) if s.file == visible.file]
        same = [s for s in starts if s.group == visible.group] or (
            starts if visible.place.style != "environment" or len(starts) == 1 else []
        )
        for s in same:
            count = whole(s)
            if count and count > len(devices) and (s.name != "world_size" or len(devices) > 0):
                says = f"{count} processes are started, {len(devices)} devices are visible ({visible.key})"
                yield lint_at("processes_exceed_visible_gpus", says, visible, s)


def _devices(ws: Workspace, reading: Settings, mine: list[Setting]) -> Iterator[Lint]:
    """One fixed device in code or config, and several processes."""
    several = [s for n in ("processes_per_node", "world_size") for s in named(mine, n) if (whole(s) or 0) > 1]
    if not several:
        return
    for s in named(mine, "device"):
        if re.match(r"cuda:\d+$", str(s.value)):
            yield lint_at(
                "same_device_for_all_ranks", f"{s.key} is {s.value} for each of several processes", s, several[0]
            )
    for source in reading.sources:
        if source.format != "python" or source.file.good:
            continue
        for line in lines_of(ws, source.file):
            if (
                _HARD_DEVICE.search(line.text)
                and "add_argument" not in line.text
                and not line.text.lstrip().startswith("#")
            ):
                says = "one fixed device in code that several processes run"
                yield Lint("same_device_for_all_ranks", says, [(source.file, line), (several[0].file, several[0].line)])
                break


def lines_of(ws: Workspace, file: RunFile) -> list[Line]:
    """The first lines of a small file; none where it cannot be read."""
    try:
        return head(ws.lines(file), 1 << 20, 5000)
    except (ParseError, OSError, EOFError, ValueError):
        return []


def _clipping(reading: Settings, mine: list[Setting]) -> Iterator[Lint]:
    """The trainer is asked to clip; DeepSpeed's own file does not carry it, or its engine reports none."""
    asked = [
        s
        for s in named(mine, "gradient_clip_norm")
        if s.framework != "deepspeed" and isinstance(s.value, int | float) and s.value > 0
    ]
    files = [
        s for s in reading.sources if s.framework == "deepspeed" and s.format == "json" and s.asks and not s.file.good
    ]
    engine = [
        s for s in mine if s.name == "gradient_clip_norm" and s.used and s.framework == "deepspeed" and s.value == 0
    ]
    for source in files:
        inside = [s for s in mine if s.file == source.file]
        if asked and not any(s.name == "gradient_clip_norm" for s in inside):
            near = [
                s for s in inside if s.name in ("gradient_accumulation_steps", "micro_batch_size") and "." not in s.key
            ][:1]
            says = f"gradient clipping {asked[0].value} is asked for, {source.file.name} has no gradient_clipping key"
            yield lint_at("clip_not_passed_to_deepspeed", says, *asked[:3], *(near or inside[:1]), *engine[:2])
            return
    if asked and engine:
        says = f"gradient clipping {asked[0].value} is asked for, the DeepSpeed engine reports {engine[0].value}"
        yield lint_at("clip_not_passed_to_deepspeed", says, *engine[:2], *asked[:3])


def _two_places(mine: list[Setting]) -> Iterator[Lint]:
    """An optimizer, schedule or size given both in DeepSpeed's file and to the trainer, and not the same."""
    for name in (
        "optimizer",
        "lr_scheduler",
        "learning_rate",
        "weight_decay",
        "gradient_accumulation_steps",
        "micro_batch_size",
        "gradient_clip_norm",
        "warmup_steps",
        "fp16",
        "bf16",
    ):
        inside = [s for s in named(mine, name) if s.framework == "deepspeed" and s.value not in ("auto", None)]
        outside = [
            s for s in named(mine, name) if s.framework not in ("deepspeed", "env") and s.place.format != "table"
        ]
        if inside and outside and (name in ("optimizer", "lr_scheduler") or inside[0].value != outside[0].value):
            says = f"{name} is given twice: {inside[0].value} to DeepSpeed, {outside[0].value} to the trainer"
            yield lint_at("optimizer_scheduler_in_two_places", says, inside[0], outside[0])


def _ports(mine: list[Setting]) -> Iterator[Lint]:
    """Several launches that all take the default rendezvous port."""
    launches: dict[tuple[str, str], list[Setting]] = defaultdict(list)
    for s in mine:
        if s.framework == "launcher" and s.name in ("processes_per_node", "nodes", "world_size"):
            launches[s.file.name, s.group].append(s)
    given = {(s.file.name, s.group) for s in mine if s.name in _PORT_TAKERS}
    bare: dict[str, list[Setting]] = defaultdict(list)
    for (name, group), found in launches.items():
        if (name, group) not in given:
            bare[name].append(found[0])
    for found in bare.values():
        if len(found) > 1:
            yield lint_at(
                "master_port_default", f"{len(found)} launches without a port of their own (default 29500)", *found[:4]
            )


def _unnumbered_nodes(mine: list[Setting]) -> Iterator[Lint]:
    """Nodes told apart by RANK alone, under a launcher that counts processes itself and reads another variable."""
    by_file: dict[str, list[Setting]] = defaultdict(list)
    for s in mine:
        if not s.used:
            by_file[s.file.name].append(s)
    for found in by_file.values():
        ranks = [s for s in found if s.name == "other.rank" and s.framework == "env" and str(s.value).isdigit()]
        nodes = [s for s in found if s.name == "nodes" and str(s.value).isdigit() and int(str(s.value)) > 1]
        numbered = any(s.name in _NUMBERS_NODES for s in found)
        if ranks and nodes and not numbered and any(_COUNTS_ITSELF.search(s.line.text) for s in [*ranks, *nodes]):
            says = (
                f"RANK is set by hand for {nodes[0].value} nodes, but the launcher counts the processes itself and"
                " takes the number of its node from NODE_RANK or --node-rank, which is not given: every node is node 0"
            )
            yield lint_at("node_number_missing", says, *ranks[:4])
