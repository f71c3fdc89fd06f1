"""What a command may name: nodes, processes, cards, paths. Only what the evidence knows, and only one of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath
from typing import Any

import yaml

from ..playbook import KNOWLEDGE
from ..predicates import Facts
from ..reading.checkpoints.layouts_names import step_of_folder
from ..restart.advice import Outcome, culprits, outcomes
from ..types import Evidence

NODE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
_NOT_SEEN = ("absent", "asked", "document")
_TEXTS, _PACKED = (".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".txt"), (".gz", ".bz2", ".xz", ".zst")
_SINGLE = (".pt", ".pth", ".ckpt", ".bin", ".tar")


@dataclass(frozen=True, slots=True)
class Scene:
    """What a diagnosis knows beside its evidence.

    Attributes:
        roots: folders of the runs by their ids (`r1`).
        nodes: those at fault, as the restart advice names them; None works them out from the proof.
        session: its id.
    """

    roots: Mapping[str, str] = field(default_factory=dict)
    nodes: Sequence[str] | None = None
    session: str = ""


@cache
def table() -> dict[str, Any]:
    """`knowledge/operations.yaml`: where names come from, and what follows from which evidence."""
    data: dict[str, Any] = yaml.load(
        (KNOWLEDGE / "operations.yaml").read_text(encoding="utf-8"),
        Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader),
    )
    return data


@cache
def _every_culprit() -> Outcome:
    """The keys whose host is at fault, whatever the cause."""
    return Outcome("restart_excluding", "", culprit=frozenset(k for o in outcomes().values() for k in o.culprit))


def names(proof: Sequence[Evidence], facts: Facts, scene: Scene) -> dict[str, list[str]]:
    """Values by the names of placeholders; a name that is not known, or not surely one, is left out."""
    known: dict[str, list[str]] = {}
    for name, sources in table()["names"].items():
        found = _told(sources, proof) or _told(sources, (e for s in sources for e in _of(facts, s)))
        if len(found) == 1:
            known[name] = found
    nodes = scene.nodes if scene.nodes is not None else culprits(_every_culprit(), proof, facts)
    if nodes := [n for n in nodes if NODE.fullmatch(n)]:
        known["node"] = nodes
    if session := re.fullmatch(r"[\w-]{1,80}", scene.session, re.ASCII):
        known["session"] = [session[0]]
    runs = {e.run for e in proof} or set(scene.roots)
    if len(runs) == 1 and (root := scene.roots.get(min(runs), "-")) != "-":
        known["run"] = [root]
    known.update(_paths(proof, facts, scene))
    known.update(_samples(facts, scene))
    if (step := _first_trouble(facts)) is not None:
        known["before"] = [str(step)]
    return known


def _first_trouble(facts: Facts) -> int | None:
    """The step from which saves carry the damage on: the first of the curves' hard troubles, else of their spikes."""
    for keys in table()["trouble"]:
        steps = [e.step if e.step is not None else e.value for k in keys for e in facts.get(k) if e.kind != "absent"]
        found = [s for s in steps if isinstance(s, int) and not isinstance(s, bool) and s > 0]
        if found:
            return min(found)
    return None


def _samples(facts: Facts, scene: Scene) -> dict[str, list[str]]:
    """The one data file whose records a report calls bad, and a name for what is kept of it."""
    blamed = (e for key in table()["records"] for e in facts.get(key))
    bad = [e for e in blamed if e.key not in table()["not_bad"] and e.kind in ("line", "binary")]
    files = {path for e in bad if (path := placed(e, scene))}
    if len(files) != 1:
        return {}
    path = PurePosixPath(files.pop())
    ends = "".join(s for s in path.suffixes if s.lower() in (*_TEXTS, *_PACKED))
    copied = any(s.lower() in _TEXTS for s in path.suffixes)
    kept = f"{str(path).removesuffix(ends)}-kept{ends}" if copied else f"{path}-excluded.json"
    return {"samples": [str(path)], "kept": [kept]}


def _of(facts: Facts, source: Mapping[str, Any]) -> Iterable[Evidence]:
    return (e for key in source["keys"] for e in facts.get(key))


def _told(sources: Sequence[Mapping[str, Any]], evidence: Iterable[Evidence]) -> list[str]:
    """Distinct values that evidence gives by the first group of a pattern; strict patterns alone make a value."""
    held = list(evidence)
    found: dict[str, None] = {}
    for source in sources:
        pattern = re.compile(source["pattern"], re.ASCII)
        for e in held:
            if e.kind in _NOT_SEEN or not any(_matches(e.key, k) for k in source["keys"]):
                continue
            said = e.text if source.get("in") == "text" else str(e.value)
            if m := pattern.search(said):
                found.setdefault(m[1] + source.get("then", ""))
    return list(found)


def _matches(key: str, wanted: str) -> bool:
    return key == wanted or (wanted.endswith(".*") and key.startswith(wanted[:-1]))


def _paths(proof: Sequence[Evidence], facts: Facts, scene: Scene) -> dict[str, list[str]]:
    """The damaged file, the checkpoint it belongs to, the folder of all checkpoints."""
    known: dict[str, list[str]] = {}
    files = {path for e in proof if e.kind == "binary" and (path := placed(e, scene))}
    if len(files) == 1:
        known["file"] = sorted(files)
        if not any(step_of_folder(part) for part in PurePosixPath(*files).parts):  # no save of the run's own
            known["download"] = sorted(files)
    saves = _saves((e for e in proof if e.key.startswith(("checkpoint.", "optimizer."))), scene)
    folders = {str(PurePosixPath(s).parent) for s in saves or _saves(facts.get("checkpoint.count"), scene)}
    if len(folders) == 1:
        known["checkpoints"] = sorted(folders)
    if len(saves) == 1:
        own = next(iter(saves))
        stem, dot, suffix = own.rpartition(".") if own.endswith(_SINGLE) else (own, "", "")
        known["checkpoint"], known["new"] = [own], [f"{stem}-without-optimizer{dot}{suffix}"]
    return known


def _saves(evidence: Iterable[Evidence], scene: Scene) -> set[str]:
    """The checkpoints that evidence speaks of: the outermost folder that bears a step, or a file of its own."""
    found = set()
    for e in evidence:
        path = placed(e, scene)
        if e.kind != "binary" or not path or not e.file:
            continue
        parts = PurePosixPath(path).parts
        first = len(parts) - len(PurePosixPath(e.file).parts)
        numbered = [n for n in range(first, len(parts) - 1) if step_of_folder(parts[n])]
        if numbered or path.endswith(_SINGLE):
            found.add(str(PurePosixPath(*parts[: numbered[0] + 1])) if numbered else path)
    return found


def placed(e: Evidence, scene: Scene) -> str:
    """The file of some evidence by its full path; empty where the folder of its run is not known."""
    root = scene.roots.get(e.run, "")
    if not root or root == "-" or not e.file:
        return ""
    inside = e.file.removeprefix(f"{e.run}/") if len(scene.roots) > 1 else e.file
    return root if PurePosixPath(root).name == inside else str(PurePosixPath(root) / inside)
