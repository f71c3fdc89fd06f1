"""Which file systems the run's data lie on, as captures of mounts say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..reading.files import Line, RunFile, holds, lines
from ..reading.settings import read_settings
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

LARGEST = 64 << 20  # bytes of a file that is searched; captures may be larger
LITERALS = (b" type ", b"% /", b" rw,", b" ro,")  # one stands in every line of the forms below
SHOWN = 8
TYPE = r"(?P<type>[a-z][\w.\-]{1,24})"
# `mount`, /proc/mounts, `df -T`: device, place and type in three orders
FORMS = (
    re.compile(rf"^(?P<device>\S+) on (?P<place>/\S*) type {TYPE} \("),
    re.compile(rf"^(?P<device>\S+) (?P<place>/\S*) {TYPE} r[wo],\S+ \d \d$"),
    re.compile(
        rf"^(?P<device>\S+)\s+{TYPE}\s+[\d.]+[KMGTP]?\s+[\d.]+[KMGTP]?\s+[\d.]+[KMGTP]?\s+\d+%\s+(?P<place>/\S*)$"
    ),
)
NETWORK = re.compile(
    r"^(?:nfs4?|lustre|gpfs|beegfs|ceph|cifs|smb3?|glusterfs|afs|9p|virtiofs|wekafs|"
    r"fuse\.(?:s3fs|gcsfuse|sshfs|goofys|juicefs|rclone|blobfuse2?|ceph\S*|glusterfs|mount-s3|geesefs))$"
)
DATA = re.compile(r"(?i)data|train|valid|\bval|image|img|manifest|corpus|shard|folder|root")
WRITTEN = re.compile(r"(?i)out|save|log|ckpt|checkpoint|cache|model|pretrain|tokenizer|result|load|resume")


@dataclass(frozen=True, slots=True)
class Mount:
    """A file system at a place, and the line that says so."""

    place: str
    type: str
    file: RunFile
    line: Line

    def holds(self, path: str) -> bool:
        return path == self.place or path.startswith(self.place.rstrip("/") + "/")


@tool(emits=("storage.network_mount", "storage.data_on_network", "storage.data_on_local"), recall=True)
def data_mounts(ws: Workspace) -> ToolResult:
    """Say on which file system the training data lie, from captures of mount, /proc/mounts or df -T.

    Use when data loading is slow or decays. Compares the data paths of flags and configs with the places where file
    systems are mounted; the longest matching place decides.
    """
    every = [f for f in ws.by_role("log", "capture", "environment", "other", "config") if not f.good]
    files = [f for f in every if f.size <= LARGEST or f.role in ("capture", "other")]
    unread = len(every) - len(files)
    rest = f"; {unread} file(s) over {LARGEST >> 20} MiB not searched" if unread else ""
    mounts = [m for f in files if holds(f.path, LITERALS) for m in _mounts(f)]
    if not mounts:
        return not_applicable(f"no capture of mounted file systems{rest}")
    network = [m for m in mounts if NETWORK.match(m.type)]
    evidence = [*_network(ws, network), *_data(ws, mounts)]
    if not network:
        return clean(f"no network file system is mounted{rest}", evidence)
    on = [e for e in evidence if e.key == "storage.data_on_network"]
    return finding(f"{len(network)} network file system(s)" + (", data lie on one" if on else "") + rest, evidence)


def _mounts(file: RunFile) -> Iterator[Mount]:
    for line in lines(file.path):
        for form in FORMS if any(text in line.data[:400] for text in LITERALS) else ():
            if m := form.match(line.text[:400].strip()):
                yield Mount(m["place"], m["type"], file, line)
                break


def _network(ws: Workspace, network: list[Mount]) -> Iterator[Evidence]:
    for m in network[:SHOWN]:
        yield ws.cite(m.file, m.line, "storage.network_mount", f"{m.place} is {m.type}")


def _data(ws: Workspace, mounts: list[Mount]) -> Iterator[Evidence]:
    told: set[str] = set()
    for s in read_settings(ws).all:
        key, path = s.key.rsplit(".", 1)[-1], s.value
        if not isinstance(path, str) or not path.startswith("/") or path in told:
            continue
        if not (s.name == "dataset" or DATA.search(key)) or WRITTEN.search(key):
            continue
        at = max((m for m in mounts if m.holds(path)), key=lambda m: len(m.place), default=None)
        if at is None or at.place == "/":
            continue
        told.add(path)
        where = "network" if NETWORK.match(at.type) else "local"
        value = f"{path} on {at.type}"
        yield ws.cite(s.file, s.line, f"storage.data_on_{where}", value)
        yield ws.cite(at.file, at.line, f"storage.data_on_{where}", value)
