"""Placeholders of commands replaced by what the evidence knows, so that a shell takes each for the one word it is."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath
from typing import Any

from ..core.own_files import KNOWLEDGE, read_table
from ..core.report import ReportFix
from ..core.types import Evidence
from ..reading.checkpoints.layouts import step_of_folder
from ..verdict.predicates import Facts
from .restart import Outcome, culprits, outcomes
from .salvage.copying import word

# ----------
# What a command may name: nodes, processes, cards, paths. Only what the evidence knows, and only one of each.


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
    data: dict[str, Any] = read_table(KNOWLEDGE / "operations.yaml")
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


# ----------

BLANK = re.compile(r"<([a-z][a-z-]*)>")
_PLAIN = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_.:/@%+=-]*")
_LISTS = ("nodename=<node>", "--exclude=<node>", "--without <node>")  # where a command takes several with commas
_MOST = 8  # commands that one becomes


def filled(fix: ReportFix, proof: Sequence[Evidence], facts: Facts, scene: Scene | None = None) -> ReportFix:
    """A repair with the placeholders of its commands filled in, where exactly one value is known and safe.

    Args:
        proof: the evidence that the verdict stands on; its values come before all others.
        scene: paths of the runs and the nodes at fault. Without it no path is filled in.
    """
    known = names(proof, facts, scene or Scene())
    commands = [done for command in fix.commands for done in fill(command, known)]
    return fix.model_copy(update={"commands": list(dict.fromkeys(commands))})


def fill(command: str, known: Mapping[str, list[str]]) -> list[str]:
    """A command with its placeholders filled in: several where it names one node and several are at fault."""
    nodes = known.get("node", [])
    if "<node>" in command and 1 < len(nodes) <= _MOST and not any(shape in command for shape in _LISTS):
        return [_one({**known, "node": [n]}, command) for n in nodes]
    return [_one(known, command)]


def _one(known: Mapping[str, list[str]], command: str) -> str:
    parts: list[str] = []
    at = 0
    for m in BLANK.finditer(command):
        value = ",".join(known.get(m[1], []))
        quoted = _in_quotes(command[: m.start()])
        parts.append(command[at : m.start()])
        parts.append(m[0] if not value or (quoted and not _PLAIN.fullmatch(value)) else _worded(value))
        at = m.end()
    return "".join((*parts, command[at:]))


def _worded(value: str) -> str:
    return value if _PLAIN.fullmatch(value) or re.fullmatch(r"[A-Za-z0-9.,-]*[A-Za-z0-9]", value) else word(value)


def _in_quotes(before: str) -> bool:
    """Whether the next character stands within quotes of a shell."""
    quote = ""
    characters = iter(before)
    for c in characters:
        if c == "\\" and quote != "'":
            next(characters, "")
        elif quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
    return bool(quote)


# ----------
# What follows from the evidence whatever a playbook says: nodes out, leftovers cleared, files saved from damage.

_SLURM = re.compile(r"\bslurmstepd:|\bsrun: |\bSLURM_[A-Z]|#SBATCH\b|\bslurm_load_jobs\b", re.ASCII)
_KUBERNETES = re.compile(r"\bkubelet\b|\bkubectl\b|\bkubernetes\b|\bOOMKilled\b|\bpod/|Back-off restarting", re.ASCII)
_EACH = 8  # commands of one kind


def operations(
    cause: str, proof: Sequence[Evidence], facts: Facts, scene: Scene | None = None, said: Sequence[str] = ()
) -> list[ReportFix]:
    """Repairs that no file of the run carries. Nothing is run, and only what the evidence names is in a command.

    Args:
        cause: of the verdict.
        proof: the evidence it stands on.
        scene: paths of the runs, nodes at fault, the session.
        said: commands that the report has already, as they will be shown; none of them is given again.
    """
    scene = scene or Scene()
    known = {**names(proof, facts, scene), "cause": [cause]}
    found = []
    for row in table()["operations"]:
        if not _fits(row, cause, facts, known):
            continue
        commands = _commands(row, facts, known, [*said, *(c for f in found for c in f.commands)])
        if commands:
            verify = fill(row.get("verify", ""), known)[0]
            found.append(
                ReportFix(
                    title=row["title"], why=row.get("why", ""), risk=row.get("risk", ""), commands=commands,
                    verify="" if BLANK.search(verify) else verify,
                )
            )  # fmt: skip
    return found


def _fits(row: Mapping[str, Any], cause: str, facts: Facts, known: Mapping[str, list[str]]) -> bool:
    if not any(fnmatch.fnmatchcase(cause, pattern) for pattern in row.get("causes", ["*"])):
        return False
    if any(name not in known for name in row.get("needs", ())):
        return False
    if "keys" in row and not any(e.kind != "absent" for key in row["keys"] for e in facts.get(key)):
        return False
    wanted = row.get("scheduler")
    return wanted is None or wanted == scheduler(facts)


def scheduler(facts: Facts) -> str:
    """What started the job, by what it left: slurm, kubernetes, or nothing that is known."""
    if any(key.startswith(("slurm.", "host.slurm_")) for key in facts.by_key):
        return "slurm"
    texts = [e.text for found in facts.by_key.values() for e in found if e.kind in ("line", "command")]
    if any(_SLURM.search(t) for t in texts):
        return "slurm"
    cluster = facts.get("host.evicted") or any(_KUBERNETES.search(t) for t in texts)
    return "kubernetes" if cluster else "none"


def _commands(row: Mapping[str, Any], facts: Facts, known: Mapping[str, list[str]], said: Sequence[str]) -> list[str]:
    """The commands whose names are all known, none of them twice in the report."""
    found: list[str] = []
    for template in row["commands"]:
        for words in _each(row, facts, known):
            for command in fill(template, words):
                open_ = {m[1] for m in BLANK.finditer(command)} - set(row.get("open", ()))
                if not open_ and not any(_same(command, other) for other in (*said, *found)):
                    found.append(command)
    return found


def _each(row: Mapping[str, Any], facts: Facts, known: Mapping[str, list[str]]) -> list[Mapping[str, list[str]]]:
    """The known names, once for each piece of evidence that the row goes through."""
    if "each" not in row:
        return [known]
    pattern = re.compile(row["each"], re.ASCII)
    held = [e for key in row["keys"] for e in facts.get(key) if e.kind not in ("absent", "asked")]
    values = dict.fromkeys(tuple(m.groupdict().items()) for e in held if (m := pattern.search(str(e.value))))
    return [{**known, **{k: [v] for k, v in one if v}} for one in list(values)[:_EACH]]


def _same(command: str, other: str) -> bool:
    """The same command but for its reason and what is left open."""
    return _bare(command) == _bare(other)


def _bare(command: str) -> str:
    return re.sub(r"\breason=(?:\"[^\"]*\"|\S+)|\s*\.\.\.|\s*#.*", "", " ".join(command.split())).strip()
