"""Ports of InfiniBand and RoCE cards: from `ibstat`, `ibv_devinfo`, counters of the kernel, or our own probe.

reports = ports(lines)      -> one Port for each port seen, counters by name
facts(reports)              -> what is wrong with them
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ...core.own_files import KNOWLEDGE, read_table
from ..run.files import Line

_CARD = re.compile(r"^CA '(?P<name>\w+)'|^hca_id:\s*(?P<other>\w+)")
_PORT = re.compile(r"^\s+(?:Port (?P<n>\d+):|port:\s+(?P<other>\d+))\s*$")
_FIELD = re.compile(
    r"^\s+(?P<name>State|Physical state|Rate|SM lid|Base lid|Link layer|state|link_layer|sm_lid|active_mtu|port_lid):"
    r"\s+(?P<value>.*?)\s*$"
)
_COUNTER = re.compile(
    r"infiniband/(?P<card>\w+)/ports/(?P<port>\d+)/(?:hw_)?counters/(?P<name>\w+):\s?(?P<value>\d+)\s*$"
)
_NAMES = {"Physical state": "phys_state", "SM lid": "sm_lid", "Base lid": "lid", "Link layer": "link_layer"}
_TRAFFIC = re.compile(r"data|packets|unicast|multicast|wait|bytes|lifespan|_requests$")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_WIDTH = re.compile(r"\((?P<width>\d+)X")
UP = re.compile(r"\bACTIVE\b|\bPORT_ACTIVE\b", re.IGNORECASE)

Fact = tuple[str, Any, Line]


@dataclass(slots=True)
class Port:
    """A port by its name `mlx5_0/1`; every field with the line that says it; counters in the order they were read."""

    name: str
    fields: dict[str, tuple[str, Line]] = field(default_factory=dict)
    counters: dict[str, list[tuple[int, Line]]] = field(default_factory=dict)

    def get(self, name: str) -> str:
        return self.fields[name][0] if name in self.fields else ""


def ports(lines: Iterable[Line]) -> list[Port]:
    """Ports in the order in which they are first seen."""
    found: dict[str, Port] = {}
    card = port = ""
    for line in lines:
        text = line.text.rstrip()
        if text.startswith("{"):
            _probed(found, text, line)
        elif m := _CARD.match(text):
            card, port = m["name"] or m["other"], ""
        elif m := _COUNTER.search(text):
            _port(found, m["card"], m["port"]).counters.setdefault(m["name"], []).append((int(m["value"]), line))
        elif card and (m := _PORT.match(text)):
            port = m["n"] or m["other"]
        elif card and port and (m := _FIELD.match(text)):
            name = _NAMES.get(m["name"], m["name"].lower())
            _port(found, card, port).fields[name] = (m["value"], line)
    return list(found.values())


def _port(found: dict[str, Port], card: str, port: str) -> Port:
    name = f"{card}/{port}"
    return found.setdefault(name, Port(name))


def _probed(found: dict[str, Port], text: str, line: Line) -> None:
    try:
        said = json.loads(text)
    except ValueError:
        return
    if not isinstance(said, dict) or "/" not in str(said.get("port")):
        return
    port = _port(found, *str(said["port"]).split("/", 1))
    if "counter" in said:
        now, rise = said.get("value"), said.get("rise")
        if not isinstance(now, int) or not isinstance(rise, int):
            return
        port.counters[str(said["counter"])] = [(now - rise, line), (now, line)]
    else:
        port.fields |= {k: (str(v), line) for k, v in said.items() if k != "port" and v != ""}


def facts(found: list[Port]) -> Iterator[Fact]:
    """Keys below `ib.`: rates are Gb/s, rises counts between the first and the last reading of a counter."""
    best: dict[str, float] = {}
    for port in found:
        if _rate(port):
            best[port.get("link_layer")] = max(best.get(port.get("link_layer"), 0), _rate(port))
    for port in found:
        yield from _state(port)
        yield from _speed(port, best.get(port.get("link_layer"), 0))
        yield from _errors(port)


def _rate(port: Port) -> float:
    m = _NUMBER.search(port.get("rate"))
    return float(m[0]) if m and UP.search(port.get("state")) else 0.0


def _state(port: Port) -> Iterator[Fact]:
    if "state" not in port.fields:
        return
    state, line = port.fields["state"]
    layer = port.get("link_layer")
    if UP.search(state):
        yield "port", " ".join(f"{port.name} up {port.get('rate')} {layer}".split()), line
        return
    physical = port.get("phys_state")
    at = port.fields.get("phys_state", (state, line))[1]
    yield "down", f"{port.name} {state}" + (f", {physical}" if physical else ""), at
    no_manager = port.get("sm_lid") in {"0", "0x0"}
    if "linkup" in physical.lower() and layer == "InfiniBand" and no_manager and "init" in state.lower():
        yield "no_subnet_manager", port.name, port.fields["sm_lid"][1]


def _speed(port: Port, best: float) -> Iterator[Fact]:
    if 0 < _rate(port) < best:
        yield "rate_low", f"{port.name} {_rate(port):g} of {best:g} Gb/s", port.fields["rate"][1]
    m = _WIDTH.search(port.get("rate"))
    if m and int(m["width"]) < 4:
        yield "width_low", f"{port.name} {m['width']} lanes", port.fields["rate"][1]


def _errors(port: Port) -> Iterator[Fact]:
    for name, readings in port.counters.items():
        if _TRAFFIC.search(name):
            continue
        (first, _), (last, line) = readings[0], readings[-1]
        if last > first:
            yield "errors_rising", f"{port.name} {name} +{last - first}", line
        elif last:
            yield "errors_counted", f"{port.name} {name} {last}", line


# ----------
# What the links of a machine should carry: a table of data, and the entry that fits what the machine says.

_NVLINK = re.compile(r"\bNV\d+\b")
_XGMI = re.compile(r"\bXGMI\b")


@dataclass(frozen=True, slots=True)
class Link:
    """A kind of link. `low` and `high`: GB/s of bus bandwidth that an all-reduce of large messages should reach."""

    name: str
    low: float
    high: float
    what: str
    gpus: tuple[str, ...] = ()


@cache
def links() -> dict[str, Link]:
    """Every known link by name."""
    data = read_table(KNOWLEDGE / "links.yaml")
    return {
        e["name"]: Link(
            e["name"], e["rate"] * e["share"][0], e["rate"] * e["share"][1], e["what"], tuple(e.get("gpus", ()))
        )
        for e in data["links"]
    }


def link_between(topology: str, devices: str) -> Link | None:
    """The link between this machine's GPUs.

    Args:
        topology: what `nvidia-smi topo -m` prints.
        devices: what `nvidia-smi --query-gpu=name,pcie.link.gen.max --format=csv,noheader` prints.
    """
    matrix = [line for line in topology.splitlines() if line.startswith("GPU")]
    first = devices.splitlines()[0] if devices.strip() else ""
    if matrix and (_NVLINK.search(matrix[0]) or _XGMI.search(matrix[0])):
        fitting = [k for k in links().values() if any(re.search(rf"\b{g}\b", first) for g in k.gpus)]
        return fitting[0] if fitting else None
    generation = re.search(r",\s*(\d)\s*$", first)
    return links().get(f"pcie{generation[1]}") if generation else None
