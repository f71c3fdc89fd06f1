"""A host file without some of its nodes: DeepSpeed's, MPI's, or a list as Slurm writes it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UsageError
from .copying import beside, publish, refuse_existing

_MOST = 4 << 20
_NODES = 100_000
_FIRST = re.compile(r"^(\s*)(?:[\w.-]+@)?([\w.-]+(?:\[[\d,-]+\][\w.-]*)?(?:,[\w.-]+(?:\[[\d,-]+\][\w.-]*)?)*)")
_ITEM = re.compile(r"([\w.-]+?)\[([\d,-]+)\]([\w.-]*)|([\w.-]+)")
_SLOTS = re.compile(r"\bslots\s*=\s*(\d+)|^[\w.-]+:(\d+)\s*$")


@dataclass(slots=True)
class Hosts:
    """What was written: nodes left out, nodes left and their slots where the file counts them."""

    output: Path
    left_out: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    slots: int = 0


def without(hostfile: Path, nodes: list[str], output: Path) -> Hosts:
    """Write a host file without some nodes; every other line is the same bytes.

    Raises:
        UsageError: either end does not fit, a node is not in it, or none would be left.
    """
    refuse_existing(hostfile, output)
    if not hostfile.is_file() or hostfile.stat().st_size > _MOST:
        raise UsageError(f"{hostfile} is no host file")
    done = Hosts(output)
    try:
        data = hostfile.read_bytes()
        lines = [_without(line, set(nodes), done) for line in data.splitlines(keepends=True)]
        if missing := [n for n in nodes if n not in done.left_out]:
            near = [n for n in done.left if n.split(".")[0] == missing[0].split(".")[0]]
            hint = f"it names {near[0]}" if near else f"it names {', '.join(done.left[:8])}"
            raise UsageError(f"{missing[0]} is not in {hostfile}", hint)
        if not done.left:
            raise UsageError(f"no node of {hostfile} would be left", "nothing was written")
        with beside(output) as folder:
            made = folder / "made"
            with made.open("xb") as f:
                f.writelines(lines)
                f.flush()
                os.fsync(f.fileno())
            made.chmod(hostfile.stat().st_mode & 0o666)
            publish(made, output)
    except OSError as e:
        raise UsageError(f"{output} was not written: {e.strerror or e}") from None
    return done


def _without(line: bytes, nodes: set[str], done: Hosts) -> bytes:
    """A line as it is, shortened where it lists several nodes, or nothing."""
    text = line.decode("utf-8", "surrogateescape")
    m = None if text.lstrip().startswith("#") else _FIRST.match(text)
    if m is None:
        return line
    kept: list[str] = []
    changed = False
    for item in _ITEM.finditer(m[2]):
        names = _expanded(item)
        stay = [n for n in names if n not in nodes]
        done.left_out += [n for n in names if n in nodes]
        done.left += stay
        changed = changed or len(stay) < len(names)
        kept += [item[0]] if len(stay) == len(names) else stay
    if kept and (found := _SLOTS.search(text)):
        done.slots += int(found[1] or found[2])
    if not changed:
        return line
    return (text[: m.start(2)] + ",".join(kept) + text[m.end(2) :]).encode("utf-8", "surrogateescape") if kept else b""


def _expanded(item: re.Match[str]) -> list[str]:
    """`n[01-03,7]` as names.

    Raises:
        UsageError: it stands for far too many.
    """
    if item[4]:
        return [item[4]]
    names: list[str] = []
    for part in item[2].split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise UsageError(f"{item[0]} is no list of nodes")
        span = range(int(first), int(last or first) + 1)
        if len(names) + len(span) > _NODES:
            raise UsageError(f"{item[0]} stands for more than {_NODES} nodes")
        names += [f"{item[1]}{n:0{len(first)}d}{item[3]}" for n in span]
    return names
