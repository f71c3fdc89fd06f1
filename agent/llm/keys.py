"""Where a key is kept and how it is fetched. No message here ever repeats what a file or a variable holds."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..errors import UsageError
from ..small_file import small_file

_LIMIT = 8192  # bytes of a file with a key
_KEY = re.compile(r"[\x21-\x7e]+")
_OR = "or ask no model with --offline"


def from_variable(name: str) -> str:
    """The value of a variable without blanks around it; empty where it is not set.

    Raises:
        UsageError: it holds characters that no header may carry.
    """
    value = os.environ.get(name, "").strip()
    if value and not _KEY.fullmatch(value):
        raise UsageError(f"{name}: the value holds blanks or characters that no key has", _OR)
    return value


def from_file(name: str, folder: Path | None = None) -> str:
    """The key in a file: one line, in a regular file that others cannot read.

    Args:
        folder: what a relative name starts from; None is the current folder.

    Raises:
        UsageError: there is no such file, others may read it, or it does not hold one line.
    """
    path = Path(name)
    try:
        path = (folder or Path()) / path.expanduser()
        data, mode = small_file(path, _LIMIT)
    except (OSError, ValueError, RuntimeError) as e:  # the last: `~nobody` has no home
        raise UsageError(f"{path}: the key cannot be read: {getattr(e, 'strerror', None) or e}", _OR) from None
    if mode & 0o007:
        raise UsageError(f"{path}: everyone on this machine can reach the key", f"chmod 600 {path}")
    lines = data.decode("ascii", errors="replace").split()
    if len(lines) != 1 or not _KEY.fullmatch(lines[0]):
        raise UsageError(f"{path}: must hold one key and nothing else", _OR)
    return lines[0]
