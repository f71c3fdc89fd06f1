"""Node health over an allocation: the same questions to every node, and what sets one apart from its peers."""

from __future__ import annotations

import json
import re
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..nodes.engine import Engine, Node

PROBES = Path(__file__).resolve().parent.parent / "probes"
SECONDS = 60.0  # a node may take for all questions
GPU_LOST = 79  # the Xid of a card that fell off the bus: it stays away until the node is started again
OFFSET = 2.0  # seconds between clocks that spoil the order of logs
FULL, FEW_INODES = 1 << 30, 0.01
LESS_MEMORY = 0.9  # of the middle node's, below which memory is missing
_SERVED = re.compile(r"nfs|rpc|lustre|ptlrpc|cl_io|fuse|ceph|gpfs|nvidia|uvm", re.IGNORECASE)
_RUN = """
import json, sys
for name, source, arguments in json.loads({sources!r}):
    place = {{"__name__": name}}
    try:
        exec(compile(source, name, "exec"), place)
        place["main"](arguments)
    except BaseException as e:  # noqa: BLE001 - one question that fails must not cost the others
        sys.stdout.write(json.dumps({{"failed": name, "why": type(e).__name__ + ": " + str(e)[:200]}}) + "\\n")
sys.stdout.write(json.dumps({{"end": True}}) + "\\n")
sys.stdout.flush()
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a node. `bad`: reason enough to leave it out; else it is only odd."""

    node: str
    bad: bool
    what: str


@dataclass(slots=True)
class Health:
    """What one node told. `why` is empty where it told everything."""

    node: str
    why: str = ""
    facts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    gpus: dict[int, dict[str, Any]] = field(default_factory=dict)
    ports: dict[str, dict[str, Any]] = field(default_factory=dict)
    window: tuple[float, float] = (0.0, 0.0)  # between which of our seconds it was asked

    def of(self, fact: str) -> dict[str, Any]:
        """The first fact of a kind; empty where there is none."""
        return next(iter(self.facts.get(fact, [])), {})

    def version(self, of: str) -> str:
        """A version as it was told."""
        return next((str(f["value"]) for f in self.facts.get("version", []) if f["of"] == of), "")


def asked(engine: Engine, nodes: Sequence[Node], python: str, seconds: float = SECONDS) -> list[Health]:
    """Ask every node that can be reached, all at the same time."""
    there = [node for node in nodes if node.reachable]
    began = time.time()
    answers = {a.node: a for a in engine.run([python, "-"], [n.name for n in there], seconds, program())}
    window = (began, time.time())
    found = []
    for node in nodes:
        answer = answers.get(node.name)
        if answer is None:
            found.append(Health(node.name, f"is {node.state or 'away'}"))
            continue
        health = read(node.name, answer.stdout)
        health.window = window
        if not health.facts:
            said = answer.stderr.strip().splitlines()
            health.why = answer.why or f"could not be asked: {said[-1][:200] if said else f'exit code {answer.code}'}"
        elif answer.why:
            health.why = f"{answer.why}; the last question was {health.of('asking').get('name', 'unknown')}"
        found.append(health)
    return found


def program() -> bytes:
    """One Python program made of the probes' sources."""
    files = [(Path(__file__).with_name("sweep_node.py"), []), (PROBES / "host.py", []), (PROBES / "ib.py", ["1"]),
             (PROBES / "nvml.py", [])]  # fmt: skip
    sources = [(path.stem, path.read_text(encoding="utf-8"), arguments) for path, arguments in files]
    return _RUN.format(sources=json.dumps(sources)).encode()


def read(node: str, said: bytes) -> Health:
    """Lines of the probes, as far as they came."""
    health = Health(node)
    for line in said.decode(errors="replace").splitlines():
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if not isinstance(told, dict):
            continue
        if "asking" in told:
            health.facts["asking"] = [{"name": told["asking"]}]
        elif "gpu" in told and "field" in told:
            health.gpus.setdefault(int(told["gpu"]), {})[str(told["field"])] = told["value"]
        elif "port" in told:
            port = health.ports.setdefault(str(told["port"]), {})
            if "counter" in told:
                port[f"rise {told['counter']}"] = told["rise"]
            else:
                port.update(told)
        elif "fact" in told:
            health.facts.setdefault(str(told["fact"]), []).append(told)
        elif "field" in told:
            health.facts.setdefault(str(told["field"]), []).append(told)
    return health


def judged(nodes: Sequence[Node], every: Sequence[Health]) -> list[Finding]:
    """What is wrong by itself, and what sets a node apart from most others."""
    told = [health for health in every if health.facts]
    found = [Finding(h.node, True, h.why) for h in every if h.why]
    declared = {node.name: node.gpus for node in nodes}
    usual_gpus = _usual([len(h.gpus) for h in told])
    for health in told:
        known = declared.get(health.node)
        expected = max(known or 0, usual_gpus or 0)
        if len(health.gpus) < expected and (health.gpus or known != 0):  # 0: a head node that is to have none
            found.append(Finding(health.node, True, f"shows {len(health.gpus)} GPUs of {expected}"))
        found += [Finding(health.node, bad, what) for bad, what in (*_cards(health), *_kernel(health), *_host(health))]
    found += _apart(told)
    return list(dict.fromkeys(found))


def _cards(health: Health) -> Iterator[tuple[bool, str]]:
    for number, card in sorted(health.gpus.items()):
        if "error" in card:
            yield True, f"GPU {number}: {card['error']}"
        if _number(card.get("ecc.errors.uncorrected.volatile.total")) > 0:
            yield True, f"GPU {number}: {card['ecc.errors.uncorrected.volatile.total']} uncorrected memory errors"
        for name in ("remapped_rows.pending", "remapped_rows.failure", "retired_pages.pending"):
            if card.get(name) == "Yes":
                yield True, f"GPU {number}: {name} is Yes"
        if card.get("gpu_recovery_action", "None") != "None":
            yield True, f"GPU {number}: the driver asks for a {card['gpu_recovery_action']}"
        for name in ("hw_thermal_slowdown", "hw_power_brake_slowdown"):
            if card.get(f"clocks_event_reasons.{name}") == "Active":
                yield True, f"GPU {number}: slowed down ({name})"
        if card.get("process.foreign"):
            yield False, f"GPU {number}: another job's process {card['process.foreign']}"


def _kernel(health: Health) -> Iterator[tuple[bool, str]]:
    numbers = Counter(int(f["number"]) for f in health.facts.get("xid", []))
    for number, count in sorted(numbers.items()):
        yield number == GPU_LOST, f"kernel log: Xid {number}, {count} times since it was started"
    for stuck in health.facts.get("stuck", []):
        if _SERVED.search(str(stuck.get("where", ""))):  # elsewhere a process may wait for a moment
            yield False, f"process {stuck['pid']} ({stuck['name']}) is stuck in the kernel ({stuck['where']})"


def _host(health: Health) -> Iterator[tuple[bool, str]]:
    for disk in health.facts.get("disk", []):
        if disk.get("read_only"):
            yield True, f"{disk['path']} is read-only"
        elif int(disk["free"]) < min(FULL, int(disk["total"]) // 20):
            yield True, f"{disk['path']} has {int(disk['free']) >> 20} MiB left"
    for inodes in health.facts.get("inodes", []):
        if int(inodes["free"]) < FEW_INODES * int(inodes["total"]):
            yield True, f"{inodes['path']} has {inodes['free']} inodes left"


def _apart(told: list[Health]) -> Iterator[Finding]:
    """What only peers show: it takes three nodes to say which of them is unusual."""
    if len(told) < 3:
        return
    kinds: dict[tuple[bool, Any], list[Health]] = {}
    for health in told:
        kinds.setdefault((bool(health.gpus), health.of("host").get("cores")), []).append(health)
    for peers in kinds.values():  # a head node is no bad node for being smaller than those that train
        if len(peers) > 2:
            yield from _lacking(peers)
    yield from _clocks(told)
    for what in ("driver", "kernel", "python", "torch", "nccl"):
        seen = {h.node: _driver(h) if what == "driver" else h.version(what) for h in told}
        usual = _usual(list(seen.values()))
        for node, version in seen.items():
            if usual is not None and version != usual:
                yield Finding(
                    node, False, f"{what} is {version or 'not there'}, with most others {usual or 'not there'}"
                )


def _lacking(peers: list[Health]) -> Iterator[Finding]:
    """What a node has less of than nodes of its kind; more of it is only odd."""
    memory = {h.node: int(h.of("memory").get("MemTotal", 0)) for h in peers}
    middle = statistics.median(memory.values())
    for node, size in memory.items():
        if size and size < LESS_MEMORY * middle:
            yield Finding(node, True, f"has {size >> 30} GiB of memory, its peers {int(middle) >> 30}")
    for what, value in (("active ports", _active), ("link speed", _speed), ("PCIe lanes", _lanes)):
        usual = _usual([value(h) for h in peers])
        for health in peers:
            if usual is not None and (own := value(health)) != usual:
                less = _number(own) < _number(usual)
                yield Finding(health.node, less, f"{what}: {own or 'none'}, with most others {usual}")


def _clocks(told: list[Health]) -> Iterator[Finding]:
    """A clock is off where no moment of the asking explains what it showed."""
    for health in told:
        now, (began, ended) = health.of("time").get("now"), health.window
        others = [h.of("time").get("now", 0.0) for h in told if h is not health]
        if now is None or not others:
            continue
        off = (
            now - min(max(statistics.median(others), began), ended)
            if began - OFFSET > now or now > ended + OFFSET
            else 0
        )
        apart = abs(now - statistics.median(others)) > ended - began + OFFSET
        if off and apart:
            yield Finding(health.node, False, f"its clock is off by about {off:+.0f} s")


def _driver(health: Health) -> str:
    cards = [str(c["driver_version"]) for c in health.gpus.values() if "driver_version" in c]
    return cards[0] if cards else str(health.of("driver_version").get("value", ""))


def _active(health: Health) -> int:
    return sum("ACTIVE" in str(port.get("state", "")) for port in health.ports.values())


def _speed(health: Health) -> str:
    rates = [str(p["rate"]) for p in health.ports.values() if "ACTIVE" in str(p.get("state", "")) and "rate" in p]
    return min(rates, key=_number, default="")


def _lanes(health: Health) -> int:
    lanes = [int(_number(c["pcie.link.width.current"])) for c in health.gpus.values() if "pcie.link.width.current" in c]
    return min(lanes, default=0)


def _number(value: Any) -> float:
    try:
        return float(str(value).split()[0])
    except (ValueError, IndexError):
        return 0.0


def _usual(values: Sequence[Any]) -> Any:
    """What more than half of at least three have; None where there is no such thing."""
    if len(values) < 3:
        return None
    value, count = Counter(values).most_common(1)[0]
    return value if count > len(values) / 2 else None
