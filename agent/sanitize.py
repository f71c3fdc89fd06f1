"""The one door through which text of a run reaches a terminal: escapes, control and bidi characters come out inert."""

from __future__ import annotations

import re

# C0 except tab and newline, DEL, C1, bidi embedding/override/isolate marks, zero-width marks, line separators.
_INERT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def inert(text: str) -> str:
    """Text with every character that could steer a terminal made visible (`\\x1b`, `\\u202e`)."""
    return _INERT.sub(lambda m: m[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """The same on one line: a newline (file names may hold one) is made visible too."""
    return inert(text).replace("\n", "\\n")
