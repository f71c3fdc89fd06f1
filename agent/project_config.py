"""A `doctor.toml` in the folder of a run: whoever made the run wrote it, so it may ask for less and for nothing else.

It can lower the bounds on requests, tokens, seconds and cost. Every other key is ignored, and that is told; no word of
the file gets into what is told, only names of our own settings.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .config import Config, config_file, parsed
from .model_keys import BOUNDS
from .small_file import OddFile, small_file

NAME = "doctor.toml"
LIMIT = 8192  # bytes; the parser takes seconds over a few dozen KiB of nested names
_EXPERIMENTS = ("command", "folder", "seconds", "environment", "overfit_one_batch", "zero_input", "real_input")
_NAMES = ("api_key", *(n for n in Config.model_fields if n not in BOUNDS), *_EXPERIMENTS)


class _Unread(Exception):
    """Why a file was not read."""


def project_bounds(roots: Iterable[Path]) -> tuple[dict[str, float], list[str]]:
    """Bounds that the folders of a run ask for, and what of their files was ignored, to be told with the report.

    Args:
        roots: of the run; what is no folder has no such file.

    Returns:
        The smallest of each bound (positive numbers by name), and lines of plain text.
    """
    bounds: dict[str, float] = {}
    told: list[str] = []
    folders = list(roots)
    for number, root in enumerate(folders, 1):
        where = f"{NAME} in {f'r{number}' if len(folders) > 1 else 'the run'}"
        try:
            keys = _keys(root)
        except _Unread as e:
            told.append(f"{where} {e}: ignored")
            continue
        for name, value in keys.items():
            if name in BOUNDS and _is_bound(name, value):
                bounds[name] = min(BOUNDS[name](value), bounds.get(name, math.inf))
        told += _ignored(where, keys)
    return bounds, told


def _ignored(where: str, keys: dict[str, Any]) -> list[str]:
    """One line on what a file may not set, and one on bounds that are none."""
    refused = [name for name in _NAMES if name in keys]
    strange = sum(name not in BOUNDS and name not in _NAMES for name in keys)
    if strange:
        refused.append(f"{strange} unknown key{'s' if strange > 1 else ''}")
    wrong = [name for name in BOUNDS if name in keys and not _is_bound(name, keys[name])]
    lines = [f"{where} may not set {', '.join(refused)}: ignored"] if refused else []
    return lines + ([f"{where}: {', '.join(wrong)} must be a positive number: ignored"] if wrong else [])


def _is_bound(name: str, value: Any) -> bool:
    """Whether it bounds anything: 0, which lifts a bound in the user's own file, does not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if BOUNDS[name] is int:
        return isinstance(value, int) and value > 0
    return 0 < value <= 1e300


def _keys(root: Path) -> dict[str, Any]:
    """What the file sets; nothing where there is none, or where it is a file of the user's own."""
    path = root / NAME
    try:
        if root == Path("-") or not root.is_dir() or not os.path.lexists(path):
            return {}
        real, inside = path.resolve(strict=True), root.resolve()
        if not real.is_relative_to(inside):
            raise _Unread("is a link that leads out of it")
        if _same(real, config_file()):
            return {}
        keys = parsed(small_file(real, LIMIT, follow=False)[0])
    except RuntimeError:  # links in a ring
        raise _Unread("is a link that leads nowhere") from None
    except OSError as e:
        raise _Unread(f"cannot be read ({e.strerror or 'no such file'})") from None
    except OddFile as e:
        raise _Unread(str(e)) from None
    except ValueError:
        raise _Unread("is not TOML that can be read") from None
    if (named := os.environ.get("DOCTOR_EXPERIMENTS")) and _same(real, Path(named)):
        return {name: value for name, value in keys.items() if name not in _EXPERIMENTS}
    return keys


def _same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except (OSError, ValueError):
        return False
