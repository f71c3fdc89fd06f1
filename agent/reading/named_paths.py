"""Local files and folders that the settings of a job name: its data, models, checkpoints and further configs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .settings import Setting, read_settings

if TYPE_CHECKING:
    from ..workspace import Workspace

MOST = 40
_OUTPUT = ("output_dir", "other.logging_dir", "hf_cache", "ld_library_path", "cuda_home", "pythonpath", "ptxas_path")
_SHALLOW = 2  # parts of a path: `/`, `/data` or `~` is no input of one job


def named_paths(ws: Workspace) -> list[Path]:
    """Existing paths, each once, in the order of the settings; what a root holds already is left out.

    A relative path counts from the folder of the file that names it, or from here. Folders the job writes to, and
    those so near the root that they hold more than this job, are left out.
    """
    held = [root.resolve() for root in ws.roots]
    found: dict[Path, None] = {}
    for setting in read_settings(ws).all:
        if setting.used or setting.name in _OUTPUT:
            continue
        for text in _texts(setting):
            path = _existing(text, setting.file.path.parent)
            if path is not None and not any(path == h or h in path.parents for h in held):
                found.setdefault(path)
    return [p for p in found if not any(o in p.parents for o in found)][:MOST]


def _texts(setting: Setting) -> list[str]:
    values = setting.value if isinstance(setting.value, list) else [setting.value]
    return [v for v in values if isinstance(v, str) and 1 < len(v) < 1024 and not v.startswith(("-", "$", "{"))]


def _existing(text: str, folder: Path) -> Path | None:
    if "/" not in text and "." not in text:
        return None
    for base in (folder, Path()):
        try:
            path = (base / Path(text).expanduser()).resolve()
            there = path.is_file() or path.is_dir()
        except (OSError, ValueError, RuntimeError):
            return None
        if there:
            near_root = len(path.parts) - 1 < _SHALLOW and path.is_dir()
            return None if near_root or path in (Path.home(), Path().resolve()) or path in folder.parents else path
    return None
