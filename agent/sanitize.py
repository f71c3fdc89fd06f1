"""The one door through which text of a run reaches a terminal: escapes, control and bidi characters come out inert."""

from __future__ import annotations

import re

# What takes no room wherever it stands (Default_Ignorable_Code_Point of Unicode, and the marks of annotations): soft
# hyphens, joiners, fillers, which count as letters in a name of Python, variation selectors, tags.
_NO_ROOM = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSEEN = re.compile(f"[\u2028\u2029{_NO_ROOM}]")
# C0 except tab and newline, DEL, C1, line separators, and what is not seen.
_INERT = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029{_NO_ROOM}]")


def inert(text: str) -> str:
    """Text with every character that could steer a terminal or hide in it made visible (`\\x1b`, `\\u202e`)."""
    return _INERT.sub(lambda m: m[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """The same on one line: a newline (file names may hold one) is made visible too."""
    return inert(text).replace("\n", "\\n")


def holds_unseen(text: str) -> bool:
    """Whether a text holds a character beside control ones that nobody sees: it takes no room, or ends a line."""
    return _UNSEEN.search(text) is not None
