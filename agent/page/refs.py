"""Mentions of evidence in a sentence as links within the page, where the page has that evidence."""

from __future__ import annotations

import re
from collections.abc import Collection

from .markup import Html, joined, tag

_IDENT = re.compile(r"\bE\d{1,9}\b")
_GROUP = re.compile(r"\[E\d{1,9}(?:, E\d{1,9})*(?: and \d+ more)?\]")


def linked(text: str, known: Collection[str]) -> Html:
    """A text with its citations in brackets (`[E1, E2 and 3 more]`) linked."""
    parts: list[Html | str] = []
    at = 0
    for group in _GROUP.finditer(text):
        parts += [text[at : group.start()], tag("span", idents(group[0], known), class_="cites")]
        at = group.end()
    return joined(*parts, text[at:])


def idents(text: str, known: Collection[str]) -> Html:
    """A text of ids with each that the page has linked."""
    parts: list[Html | str] = []
    at = 0
    for found in _IDENT.finditer(text):
        ident = found[0]
        parts += [text[at : found.start()], tag("a", ident, href=f"#{ident}") if ident in known else ident]
        at = found.end()
    return joined(*parts, text[at:])


def is_ident(text: str) -> bool:
    """Whether a text may stand as an anchor: an id of evidence and nothing else."""
    return _IDENT.fullmatch(text) is not None
