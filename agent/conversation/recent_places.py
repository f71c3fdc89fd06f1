"""What a typed line could mean: a path that is there, a path that is not, or a question; and how it may go on."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import UsageError
from ..sanitize import one_line

LISTED = 2_000  # entries of a folder that are offered
_PATHLIKE = re.compile(r"^(?:/|~|\.{1,2}(?:/|$))|^[^\s?]*/[^\s?]*$")


@dataclass(frozen=True, slots=True)
class Place:
    """An entry of a folder, as it would be typed."""

    text: str
    folder: bool


@dataclass(frozen=True, slots=True)
class Meant:
    """What a line is: `path` is set where something is there, `why` where it looks like a path and nothing is."""

    kind: Literal["nothing", "path", "no path", "question"]
    path: Path | None = None
    why: str = ""


def looks_like_path(text: str) -> bool:
    """Whether a text is written as a path: from the root, a home or here, or one word with a slash."""
    return bool(_PATHLIKE.match(text.strip()))


def meant(text: str, here: Path) -> Meant:
    """Tell a path from a question; looks at the disk, which may hang. `here` is where relative paths begin."""
    text = text.strip()
    if not text:
        return Meant("nothing")
    try:
        path = there(text, here)
    except UsageError as e:
        return Meant("no path", why=str(e)) if looks_like_path(text) else Meant("question")
    return Meant("path", path)


def there(text: str, here: Path) -> Path:
    """The folder or file that a text names, absolute.

    Raises:
        UsageError: there is none.
    """
    named = one_line(text)[:200]
    try:
        path = here / Path(text).expanduser()
        kind = path.stat().st_mode
    except RuntimeError:
        raise UsageError(f"{named}: whose home is meant is not known") from None
    except FileNotFoundError:
        raise UsageError(f"no such folder or file: {named}") from None
    except (OSError, ValueError) as e:
        raise UsageError(f"{named}: {getattr(e, 'strerror', None) or 'names no file'}") from None
    if kind & 0o170000 not in (0o040000, 0o100000):
        raise UsageError(f"{named} is neither a folder nor a file")
    return path


def completions(text: str, here: Path) -> list[Place]:
    """Entries that a half typed path may go on with, folders first; hidden ones where their dot is typed.

    Looks at the disk, which may hang.
    """
    if text in ("~", "..", "."):
        return [Place(f"{text}/", True)]
    lead, _, start = text.rpartition("/")
    lead = f"{lead}/" if "/" in text else ""
    try:
        folder = here / Path(lead).expanduser() if lead else here
        with os.scandir(folder) as entries:
            found = []
            for entry in entries:
                if len(found) >= LISTED:
                    break
                if entry.name.startswith(start) and (start.startswith(".") or not entry.name.startswith(".")):
                    found.append(_place(lead, entry))
    except (OSError, ValueError, RuntimeError):
        return []
    return sorted((p for p in found if p), key=lambda p: (not p.folder, p.text.lower()))


def _place(lead: str, entry: os.DirEntry[str]) -> Place | None:
    try:
        if entry.is_dir():
            return Place(f"{lead}{entry.name}/", True)
        return Place(f"{lead}{entry.name}", False) if entry.is_file() else None
    except OSError:
        return None


def shared(places: list[Place], text: str) -> str:
    """How far all completions agree: what the tab key makes of a text."""
    texts = [p.text for p in places if p.text == one_line(p.text)]  # what cannot be typed is chosen from the list
    if not texts:
        return text
    first, last = min(texts), max(texts)
    same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:same] if same > len(text) else text
