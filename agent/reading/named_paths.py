"""Local files and folders that the settings of a job name: its data, models, checkpoints and further configs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .settings import Setting, read_settings

if TYPE_CHECKING:
    from ..workspace import Workspace

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
