"""The members of a bundle as they come together: texts under safe names, and what the manifest says of each file."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

from ..reading.files import RunFile
from .cleaning import Cleaning

NAME_BYTES = 200  # of one part of a name; file systems take 255
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


@dataclass(slots=True)
class Contents:
    """Texts by member name, within a bound. `files` are rows of the manifest; `out` is what had no room."""

    limit: int
    cleaning: Cleaning = field(default_factory=Cleaning)
    texts: dict[str, str] = field(default_factory=dict)
    files: list[dict[str, Any]] = field(default_factory=list)
    out: list[dict[str, str]] = field(default_factory=list)
    used: int = 0
    _taken: set[str] = field(default_factory=set)

    @property
    def room(self) -> int:
        return max(0, self.limit - self.used)

    def add(self, name: str, text: str) -> str | None:
        """Put a text in; its member's name, or None where the bundle is full."""
        size = len(text.encode("utf-8", "replace"))
        name = self._free(safe_name(self.cleaning.text(name)))
        if size > self.room:
            self.out.append({"member": name, "why": "the bundle is full"})
            return None
        self.used += size
        self.texts[name] = text
        return name

    def add_data(self, name: str, data: Any) -> str | None:
        """The same for plain data, each value cleaned beside its name."""
        return self.add(name, json.dumps(self.cleaning.data(data), indent=1, ensure_ascii=False) + "\n")

    def row(self, file: RunFile, kept: str, why: str = "", member: str | None = None) -> None:
        """Say of a file of the run what became of it."""
        row: dict[str, Any] = {"name": file.name, "role": file.role, "bytes": file.size, "kept": kept}
        self.files.append(row | ({"member": member} if member else {}) | ({"why": why} if why else {}))

    def settled(self) -> dict[str, bytes]:
        """Every text as bytes, after all of them were gone through for every secret."""
        self.cleaning.data(self.files)  # names of files that stay away may tell secrets too
        self.cleaning.settle(self.texts)
        return {self.cleaning.text(name): text.encode("utf-8", "replace") for name, text in self.texts.items()}

    def _free(self, name: str) -> str:
        number, free = 1, name
        while free.casefold() in self._taken:  # a file system may not tell capitals apart
            number += 1
            free = f"{name}~{number}"
        self._taken.add(free.casefold())
        return free


def safe_name(name: str) -> str:
    """A name for an archive: relative, without parts that lead elsewhere, without control characters, not too long."""
    parts = [p for p in name.split("/") if p not in ("", ".", "..")]
    return "/".join(_part(_CONTROL.sub("_", p).encode("utf-8", "replace").decode()) for p in parts) or "unnamed"


def _part(part: str) -> str:
    data = part.encode()
    if len(data) <= NAME_BYTES:
        return part
    return data[: NAME_BYTES - 17].decode(errors="ignore") + "~" + hashlib.sha256(data).hexdigest()[:16]
