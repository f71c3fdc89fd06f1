"""Which runs a folder holds that can be compared, and what each of them was set to.

groups(ws, reading) -> [[Side, ...], ...]
plain_form(value)   -> the value, however it is written

A run is what left a log or metrics of its own (or is a row of a table, or the good run). Configs that merely lie in one
folder are none: they count where each belongs to a run, by its name or because a command names both.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from ..run.files import RunFile
from ..run.metric_names import meaning
from ..run.workspace import Workspace
from .settings import RESULT, Setting, Settings
from .settings_map import parse

GOOD, THIS = "good", "this run"


@dataclass(slots=True)
class Side:
    """One run among several: its name, its own files by name, and what it sets, by canonical name."""

    label: str
    files: set[str] = field(default_factory=set)
    asked: dict[str, list[Setting]] = field(default_factory=lambda: defaultdict(list))
    used: dict[str, list[Setting]] = field(default_factory=lambda: defaultdict(list))
    programs: set[str] = field(default_factory=set)
    roles: set[str] = field(default_factory=set)  # of what it left
    resumes: bool = False  # its command says so
    writes: set[str] = field(default_factory=set)  # folders that its command names for that
    unread: set[str] = field(default_factory=set)  # configs that its command names and that are not here

    def take(self, s: Setting) -> None:
        """One more setting of this run."""
        (self.used if s.used else self.asked)[s.name].append(s)


_PLUMBING = re.compile(r"(?i)^(?:logs?|conf(?:ig)?s?|out(?:put)?s?|results?|runs?|jobs?|metrics|scripts?|launch)$")
_CONFIG = re.compile(r"[\w./-]+\.(?:ya?ml|json|toml|py|cfg|ini|conf)\b")
_PROCESS = re.compile(r"(?i)^(?:process|proc|worker|gpu|local)[-_.]?\d+$")
LIBRARY = {"other.model_type", "other.architectures", "other.transformers_version"}  # a model's own description
WRITES = re.compile(r"(?i)(?:^|[._-])(?:out|output|save|dir|runs?|log)\w*$")  # keys of what a run writes into
_MANY = 24  # entries of a file that is no config if none of them is known
RESULTS = 128  # logs and metrics that are asked which run they are of
_MOST, _LOOSE = 24, 64  # runs that are compared with one another, configs that are asked whose they are
_SCRIPT_BYTES = 64 << 10
_SAID = 3  # settings that two logs print alike, from which one program printed both


def groups(ws: Workspace, reading: Settings) -> list[list[Side]]:
    """Runs that can be compared with one another: the good one and this one, rows of a table, runs of one folder."""
    return ws.memo(("sides", id(reading)), lambda: (reading, _groups(ws, reading)))[1]


def _groups(ws: Workspace, reading: Settings) -> list[list[Side]]:
    aside = _word_lists(reading) | {s.file for s in reading.sources if s.trains}
    told = [s for s in reading.all if s.note != "implied" and not s.default and s.file not in aside and is_setting(s)]
    told = [s for s in told if s.place.format != "python" or s.place.style == "assignment"]
    found = [_rows(told, table) for table in dict.fromkeys(s.file for s in told if s.group.startswith("row "))]
    own = [s for s in told if not s.group.startswith("row ") and s.place.format != "table"]
    if any(f.good for f in ws.files):
        return [*found, _with_good(ws, own)]
    return [*found, _runs(ws, reading, own)]


def _word_lists(reading: Settings) -> set[RunFile]:
    """Files of many entries none of which any framework knows: a vocabulary, an index, records."""
    entries: dict[RunFile, list[bool]] = defaultdict(list)
    for s in reading.all:
        entries[s.file].append(s.known)
    return {file for file, known in entries.items() if len(known) > _MANY and not any(known)}


def _rows(told: list[Setting], table: RunFile) -> list[Side]:
    """Rows of a table; a note (`with nodes: 1 it trains`) stands against what the same file asks for."""
    rows: dict[str, Side] = {}
    for s in told:
        if s.file == table and s.group.startswith("row "):
            rows.setdefault(s.group, Side(s.group)).take(s)
    if list(rows) == ["row note"]:
        asked = Side("asked")
        for s in told:
            if s.file == table and s.group != "row note" and s.name in rows["row note"].asked:
                asked.take(s)
        return [asked, rows["row note"]]
    return list(rows.values())[:_MOST]


def _with_good(ws: Workspace, own: list[Setting]) -> list[Side]:
    sides = {True: Side(GOOD), False: Side(THIS)}
    for f in ws.files:
        sides[f.good].files.add(f.name)
    for s in own:
        sides[s.file.good].take(s)
    return [sides[True], sides[False]]


def _runs(ws: Workspace, reading: Settings, own: list[Setting]) -> list[Side]:
    """Runs of one folder, by the logs and metrics they left."""
    found: dict[str, Side] = {}
    described = {s.file for s in own if s.name in LIBRARY}
    results = [f for f in ws.by_role("log", "metrics") if not (f.good or is_part(f))]
    results = [f for f in results if f not in described][:RESULTS]
    for f in results:
        side = found.setdefault(run_key(f), Side(run_key(f)))
        side.files.add(f.name)
        side.roles.add(f.role)
    if len(found) < 2:
        found = _named_in_results(ws, own, results) or found
    belongs = belonging(ws, own, found)
    _gather(reading, found, belongs)
    for s in own:
        side = found.get(belongs.get((s.file.name, s.group), belongs.get((s.file.name, ""), "")))
        if side is not None:
            side.files.add(s.file.name)
            side.take(s)
            if s.place.format == "shell":
                _note_command(ws, side, _command(ws, s))
    labelled = {f.variant for f in results if f.variant}
    sides = [s for s in found.values() if s.label in labelled or s.asked or len(s.used) >= _SAID]
    return sides[:_MOST] if len(sides) > 1 else []


def _gather(reading: Settings, sides: dict[str, Side], belongs: dict[tuple[str, str], str]) -> None:
    """What lies below the folder that a run writes into is that run's, its log elsewhere or not."""
    written: dict[str, set[str]] = defaultdict(set)
    for s in reading.all:
        key = belongs.get((s.file.name, s.group)) or belongs.get((s.file.name, ""))
        if key in sides and isinstance(s.value, str) and WRITES.search(s.key) and not s.default:
            written[s.value.strip("./") + "/"].add(key)
    for folder, keys in written.items():
        inside = {key for key, side in sides.items() if all(name.startswith(folder) for name in side.files)}
        owners = [sides[key] for key in keys - inside if key in sides]
        for side in [sides.pop(key) for key in inside] if owners else ():
            if len(owners) == 1:
                owners[0].files |= side.files
                owners[0].roles |= side.roles


def is_part(f: RunFile) -> bool:
    """Whether a file is what one process of a run left, rather than the run."""
    return f.rank is not None or _PROCESS.match(f.path.stem) is not None


def run_key(f: RunFile) -> str:
    """The name of the run that a file belongs to, as its own name tells: `logs/small.log` and `conf/small.yaml`."""
    path = PurePath(f.name)
    stem = path.name.split(".", 1)[0] if path.suffix in (".gz", ".zst", ".bz2", ".xz") else path.stem
    return f.variant or "/".join([*(p for p in path.parts[:-1] if not _PLUMBING.match(p)), stem])


def _named_in_results(ws: Workspace, own: list[Setting], results: list[RunFile]) -> dict[str, Side]:
    """Runs of which only the commands and one list of results are left: `run 1 accuracy 0.26`."""
    labels = list(dict.fromkeys(s.file.variant for s in own if s.file.variant and s.place.format == "shell"))
    for f in results if len(labels) > 1 else []:
        text = ws.head(f).decode(errors="replace")
        if all(re.search(rf"(?im)^\W*(?:run|variant|config)[ _]?{re.escape(at)}\b.*\d", text) for at in labels):
            return {at: Side(at, {f.name}) for at in labels}
    return {}


def belonging(ws: Workspace, own: list[Setting], sides: dict[str, Side]) -> dict[tuple[str, str], str]:
    """The run of every file that has one, and of the commands of a script that starts several, by `(file, group)`."""
    files = {s.file.name: s.file for s in own}
    out = {(f.name, ""): key for f in files.values() if (key := run_key(f)) in sides}
    marks = _marks(sides)
    for s in own:
        if s.place.format == "shell" and (s.file.name, s.group) not in out:
            key = _one(marks, _command(ws, s))
            if key and (s.file.name, "") not in out:
                out[s.file.name, s.group] = key
    named: dict[str, set[str]] = defaultdict(set)  # by the name of a config, the runs whose own files name it
    owner = {name: key for key, side in sides.items() for name in side.files}
    for f in ws.files:
        if key := owner.get(f.name) or out.get((f.name, "")):
            for name in _CONFIG.findall(ws.head(f).decode(errors="replace")):
                named[PurePath(name).name].add(key)
    for s in own:
        if key := out.get((s.file.name, s.group)):
            for name in _CONFIG.findall(_command(ws, s)):
                named[PurePath(name).name].add(key)
    loose = [f for f in files.values() if (f.name, "") not in out and f.role == "config"][:_LOOSE]
    beside: dict[str, list[str]] = defaultdict(list)
    for key in sides:
        beside[_folder(key)].append(key)
    twins = Counter(f.path.name for f in loose)  # `run.json` here and in `earlier/`
    for f in loose:
        by = named.get(f.path.name) or ()
        near = beside[_folder(run_key(f))] if not by and twins[f.path.name] > 1 and f.variant is None else []
        if len(by) == 1 or len(near) == 1:
            out[f.name, ""] = next(iter(by or near))
    return out


def _folder(key: str) -> str:
    return key.rpartition("/")[0]


def _marks(sides: dict[str, Side]) -> dict[str, str]:
    """Words of a command that mean one run: the name of its log, or of the folder that it alone writes into."""
    words: dict[str, set[str]] = defaultdict(set)
    for key, side in sides.items():
        for name in side.files:
            path = PurePath(name)
            for word in (name, path.name, *(p for p in path.parts[:-1] if not _PLUMBING.match(p))):
                words[word].add(key)
    return {word: keys.pop() for word, keys in words.items() if len(keys) == 1}


def _one(marks: dict[str, str], command: str) -> str:
    found = {
        marks[word] for part in re.split(r"[\s=>\"']+", command) for word in (part, *part.split("/")) if word in marks
    }
    return found.pop() if len(found) == 1 else ""


def _command(ws: Workspace, s: Setting) -> str:
    """The whole command that a setting stands in, over its continued lines."""
    return ws.memo(("commands", s.file.name), lambda: _commands(ws, s.file)).get(s.line.number, "")


def _commands(ws: Workspace, file: RunFile) -> dict[int, str]:
    """Every line of a script with the lines that it goes on in, by line number."""
    out: dict[int, str] = {}
    held: list[tuple[int, str]] = []
    for number, row in enumerate(ws.text(file, _SCRIPT_BYTES).split("\n"), 1):
        held.append((number, row.rstrip().rstrip("\\")))
        if not row.rstrip().endswith("\\"):
            out |= dict.fromkeys((n for n, _ in held), " ".join(part for _, part in held))
            held = []
    return out


def _note_command(ws: Workspace, side: Side, command: str) -> None:
    """Which program a command starts, and which configs it names that nobody can read."""
    here = {PurePath(f.name).name for f in ws.files}
    side.programs |= {PurePath(p).name for p in re.findall(r"[\w./-]+\.py\b", command)}
    side.resumes |= re.search(r"(?<![\w-])--?(?:\w+[-_])?(?:resume|continue)\b", command) is not None
    side.writes |= set(re.findall(r"--?(?:out\w*|save\w*|log\w*)[-_]?(?:dir|path|folder)?[ =](\S+)", command))
    side.unread |= {c for c in _CONFIG.findall(command) if PurePath(c).name not in here}


# ----------
# What counts as a setting, and when two values are the same.

_NO_DIFFERENCE = re.compile(
    r"(?i)(?:^|[._])(?:(?:run|exp(?:eriment)?|job|project|display|user|host|trial)_?(?:name|id)|output|\w*_?dir|\w*_?path"
    r"|\w*_?folder|artifact_location|project|entity|tags?|notes?|description|files?|wandb\w*|mlflow\w*|logs?|logging"
    r"|log_\w+|logging_\w+|report_to|\w*_?ports?|\w*_?addr(?:ess)?|\w*url|hosts?|hostname|\w*host_ip|hostfile|pid|uuid"
    r"|(?:node|local|global|machine)_rank|timestamp|(?:transformers|torch|python|\w*lib|schema|format)_version"
    r"|deepspeed_config|config_file|resume_from\w*|init_from|save_total_limit|debug)$"
    r"|(?:^|\.)(?:name|id|out|user|c|config|script|date|time)$|^other\.rank$"
)
_EXPLAINS = {"moe_logging", "nccl_cumem_host", "prepared_dataset"}  # named like a place, and none
_IDENTITY = {"model", "tokenizer", "dataset", "eval_dataset", "prepared_dataset", "ref_model"}
_PLACE = re.compile(r"^(?:\.{0,2}|~)/|\.(?:ya?ml|json[lc]?|toml|pt|pth|bin|ckpt|safetensors|csv|txt|log|py|sh)$")
_PATH = re.compile(r"^[\w.-]+/[\w./@+-]*$|" + _PLACE.pattern)
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32", "float64": "fp64"}


def is_setting(s: Setting) -> bool:
    """Whether a difference could explain anything: no name, place or port, no result, nothing left open."""
    last = s.name.rpartition(".")[2]
    if s.known:
        if s.name in _IDENTITY | _EXPLAINS:
            return not _open(s.value)
        placed = isinstance(s.value, str) and _PLACE.search(s.value)
        return not (placed or _NO_DIFFERENCE.search(s.name) or _open(s.value))
    if _NO_DIFFERENCE.search(s.name) or RESULT.search(s.name) or _open(s.value):
        return False
    if s.used and (m := meaning(last, True)) is not None and m.metric not in ("learning_rate", "step"):
        return False
    return not (isinstance(s.value, str) and _PATH.search(s.value))


def _open(value: Any) -> bool:
    """`auto`, placeholders and expressions have no value yet."""
    return isinstance(value, str) and (value.strip().lower() == "auto" or re.search(r"[${}<(]", value) is not None)


def plain_form(value: Any) -> Any:
    """A value however it is written: 1e-3 and "0.001", true and yes, bf16 and torch.bfloat16, lists in any order."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return float(f"{value:.12g}")
    if isinstance(value, list | tuple):
        return tuple(sorted(str(plain_form(v)) for v in value)) or None
    text = str(value).strip().strip("'\"")
    if "," in text:
        return plain_form([v.strip() for v in text.strip("[]()").split(",") if v.strip()])
    made = parse(text.replace("_", "") if re.fullmatch(r"[\d_]+", text) else text)
    if isinstance(made, int | float) or made is None:
        return made if isinstance(made, bool) or made is None else float(f"{made:.12g}")
    low = text.lower().removeprefix("torch.")
    return {"yes": True, "on": True, "no": False, "off": False}.get(low, _DTYPES.get(low, low))


def form_of(s: Setting) -> Any:
    """What of a setting is compared; of a model or a data set its name, wherever it lies."""
    if s.name in _IDENTITY and isinstance(s.value, str):
        return PurePath(s.value.rstrip("/")).name.lower()
    return plain_form(s.value)


def same(a: Any, b: Any) -> bool:
    """Equal, up to how they are written."""
    return plain_form(a) == plain_form(b)
