"""What the catalogues say of the terms a question names: Xid codes, words of the field, settings, versions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.own_files import KNOWLEDGE, read_table
from .settings import Setting, read_settings
from .settings_map import Canonical, settings_map

if TYPE_CHECKING:
    from ..run.workspace import Workspace

_XID = re.compile(r"\bxids?\s*(?:errors?|codes?|number)?\s*[:#(=]?\s*(\d{1,3})\b", re.IGNORECASE)
_NAME = re.compile(r"(?:--)?[A-Za-z]\w*(?:[-_.]\w+)+|(?<!\w)--\w+|\b[A-Z]{2,}\w*\b")
_FRAMEWORKS_TOLD = 9


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a catalogue: its file, the term, what it says, the playbook that goes further."""

    document: str
    term: str
    text: str
    see: str = ""


def entries(question: str) -> list[Entry]:
    """Every entry that the question names by its own term; none where it only comes near."""
    found = [*_xids(question), *_folklore(question), *_terms(question)]
    told = {e.term.casefold() for e in found}  # what does nothing, or is a word of the field, is no setting beside
    found += [e for e in _settings(question) if e.term.casefold() not in told]
    found += _versions(question)
    return list({(e.document, e.term): e for e in found}.values())


@cache
def _data(name: str) -> Any:
    return read_table(KNOWLEDGE / name)


def _xids(question: str) -> Iterator[Entry]:
    table = _data("xid.yaml")
    for code in dict.fromkeys(int(m[1]) for m in _XID.finditer(question)):
        entry = table["codes"].get(code)
        if entry is None:
            continue
        text = (
            f"Xid {code}: {entry['name']}. At once: {table['actions'][entry['action']]}. Afterwards: "
            f"{entry['investigate']}. Usually at fault: {entry['blame']}."
        )
        if entry.get("consequence"):
            text += " It follows another error and names no culprit on its own."
        if entry.get("cause"):
            text += f" What to do about it: playbook {entry['cause'].replace('.', '/')}."
        yield Entry("xid.yaml", f"Xid {code}", text, entry.get("cause", ""))


@cache
def _glossary() -> list[tuple[re.Pattern[str], Entry]]:
    return [
        (_spelled([term, *entry.get("also", ())]), Entry("glossary.yaml", term, _said(entry), entry.get("see", "")))
        for term, entry in _data("glossary.yaml").items()
    ]


def _said(entry: dict[str, Any]) -> str:
    return f"{entry['says']} More: playbook {entry['see']}." if "see" in entry else entry["says"]


def _spelled(names: list[str]) -> re.Pattern[str]:
    """Whole words; those written in capitals as they stand, the rest in any case and with a plural."""
    parts = [
        rf"(?<![\w-]){re.escape(n)}(?![\w-])" if n.isupper() else rf"(?<![\w-])(?i:{re.escape(n)}s?)(?![\w-])"
        for n in names
    ]
    return re.compile("|".join(parts))


def _terms(question: str) -> Iterator[Entry]:
    """Terms in the order the question names them; a term inside a longer one that was named too is left out."""
    hits = [(m.start(), -m.end(), entry) for pattern, entry in _glossary() for m in pattern.finditer(question)]
    end = -1
    for _start, stop, entry in sorted(hits, key=lambda h: h[:2]):
        if -stop > end:
            end = -stop
            yield entry


def _folklore(question: str) -> Iterator[Entry]:
    for name in dict.fromkeys(m[0] for m in _NAME.finditer(question)):
        for entry in _data("folklore.yaml"):
            if re.search(entry["spelled"], name.lstrip("-")):
                value = f" ({name} with a value like {entry['value']})" if "value" in entry else ""
                text = f"{name}: {entry['says']}{value}. What works: {entry['works']}. Looked up in: "
                yield Entry("folklore.yaml", name, text + "; ".join(entry["sources"]) + ".")
                break


def _settings(question: str) -> Iterator[Entry]:
    """A setting that the question names as a framework spells it, with its other spellings and defaults."""
    known = settings_map()
    for name in dict.fromkeys(m[0] for m in _NAME.finditer(question)):
        if found := known.resolve("", name.lstrip("-")):
            yield Entry("settings.yaml", name, _spellings(name, known.canonical[found[0].name]))


def _spellings(name: str, setting: Canonical) -> str:
    rows = []
    for framework, spelled in setting.spelled.items():
        if framework != "also":
            key = ".".join(spelled[0].segments).lstrip("=")
            default = f" (default {setting.default[framework]})" if setting.default.get(framework) is not None else ""
            rows.append(f"{framework} {key}{default}")
    lead = f"{name} sets {setting.name.replace('_', ' ')}."
    return f"{lead} Spelled by framework: {', '.join(rows[:_FRAMEWORKS_TOLD])}." if rows else lead


def _versions(question: str) -> Iterator[Entry]:
    """Known conflicts between packages that the question names together."""
    words = set(re.findall(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*", question.lower().replace("-", "_")))
    for fact in _data("compatibility.yaml")["conflicts"]:
        packages = fact.get("when", {})
        if len(packages) > 1 and set(packages) <= words:
            ranges = ", ".join(f"{name} {condition}" for name, condition in packages.items())
            yield Entry("compatibility.yaml", fact["id"], f"{ranges}: {fact['says']}. What to do: {fact['fix']}.")


# ----------
# Local files and folders that the settings of a job name: its data, models, checkpoints and further configs.

MOST = 40
TRIED = 400  # values of settings that are looked up on the disk
# Settings whose value is an input of the job. Anything else (an output, a cache, a note) is not looked at.
INPUTS = ("dataset", "tokenizer", "model", "resume_from", "deepspeed_config", "fsdp_config", "other.script")
_LIKE = ("data", "file", "path", "model", "checkpoint", "config", "tokenizer", "load")
_NOT_LIKE = ("output", "save", "log", "cache", "out_dir", "dump", "tensorboard", "wandb", "temp", "tmp")
_SYSTEM = ("/etc", "/usr", "/var", "/proc", "/sys", "/dev", "/root", "/boot", "/bin", "/lib", "/opt", "/run")
_SHALLOW = 3  # parts of a folder's path: `/data` or `/home/bob` holds more than one job's input
# Of a folder that is named, what describes its model; its other configs and logs are those of other jobs.
_DESCRIBES = ("config.json", "tokenizer", "special_tokens_map", "generation_config", "trainer_state", "index.json")
_FOREIGN = ("config", "code", "log", "metrics", "capture", "environment")


def named_paths(ws: Workspace) -> tuple[list[Path], int]:
    """Existing inputs, each once, in the order of the settings, and how many were left out beyond `MOST`.

    A relative path counts from the folder of the file that names it, or from here. What a root holds already, system
    folders, and folders so near the root that they hold more than this job, are left out.
    """
    held = {root.resolve() for root in ws.roots}
    tried: dict[tuple[str, Path], None] = {}
    for setting in read_settings(ws).all:
        if not setting.used and _is_input(setting):
            tried.update({(text, setting.file.path.parent): None for text in _texts(setting)})
    found: dict[Path, None] = {}
    for text, folder in list(tried)[:TRIED]:
        path = _existing(text, folder)
        if path is not None and not held & {path, *path.parents}:
            found.setdefault(path)
    every = set(found)
    outermost = [p for p in found if not every & set(p.parents)]
    return outermost[:MOST], len(outermost[MOST:]) + len(list(tried)[TRIED:])


def leave_foreign_out(ws: Workspace, named: list[Path]) -> None:
    """Of folders that were only named, keep data, checkpoints and what describes them: the rest is other jobs'."""
    folders = [p for p in named if p.is_dir()]
    ws.files[:] = [
        f
        for f in ws.files
        if f.role not in _FOREIGN
        or any(word in f.path.name for word in _DESCRIBES)
        or not any(folder in f.path.resolve().parents for folder in folders)
    ]


def _is_input(setting: Setting) -> bool:
    if setting.name in INPUTS:
        return True
    name = setting.name.rpartition(".")[2]
    return any(w in name for w in _LIKE) and not any(w in name for w in _NOT_LIKE)


def _texts(setting: Setting) -> list[str]:
    values = setting.value if isinstance(setting.value, list) else [setting.value]
    return [v for v in values if isinstance(v, str) and 1 < len(v) < 1024 and not v.startswith(("-", "$", "{"))]


def _existing(text: str, folder: Path) -> Path | None:
    if "/" not in text and "." not in text:
        return None
    for base in (folder, Path()):
        try:
            path = (base / Path(text).expanduser()).resolve()
            file, there = path.is_file(), path.is_dir()
        except (OSError, ValueError, RuntimeError):
            return None
        if file or there:
            own = path == Path().resolve() or path in folder.resolve().parents or path == folder.resolve()
            system = str(path).startswith(_SYSTEM) and not str(path).startswith(str(folder.resolve()))
            broad = there and (len(path.parts) - 1 < _SHALLOW or path in Path.home().parents or path == Path.home())
            return None if own or system or broad else path
    return None
