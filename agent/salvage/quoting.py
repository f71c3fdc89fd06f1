"""Names of files as words of a shell: whatever they hold, the shell takes them for one word and no option."""

from __future__ import annotations

import re
from pathlib import PurePath
from shlex import quote

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\udc80-\udcff]")
_ESCAPED = re.compile(rf"{_CONTROL.pattern}|['\\]")


def word(name: str | PurePath) -> str:
    """One word: quoted where need be, `./` before a dash, `$'...'` where it holds what a terminal would obey."""
    text = str(name)
    if text.startswith("-"):
        text = f"./{text}"
    if not _CONTROL.search(text):
        return quote(text)
    return f"$'{_ESCAPED.sub(_bytes, text)}'"


def _bytes(found: re.Match[str]) -> str:
    return "".join(f"\\x{b:02x}" for b in found[0].encode("utf-8", "surrogateescape"))
