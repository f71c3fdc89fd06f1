"""The one door of the chat: whatever a run, a model or a file name says becomes text that steers nothing.

Textual reads a plain `str` as markup and passes control characters on to the terminal. So no widget is given a `str`
that comes from outside: it is given what `said` makes of it.
"""

from __future__ import annotations

from textual.content import Content

from ..agent.safety.fences import inert, one_line

SHOWN = 4_000  # characters of one line; a terminal that wraps megabytes stands still


def said(text: str, style: str = "", limit: int = SHOWN) -> Content:
    """A text on one line, inert, without markup, cut at `limit` with a word about the rest."""
    return Content.styled(shortened(one_line(_whole(text[: 4 * limit])), limit, len(text)), style)


def paragraph(text: str, style: str = "", limit: int = SHOWN) -> Content:
    """A text with its line ends; the rest as `said`."""
    return Content.styled(shortened(inert(_whole(text[: 4 * limit])), limit, len(text)), style)


def markdown(text: str) -> str:
    """Markdown source for a Markdown widget: inert, images and HTML as text. Its links are shown, never followed."""
    return inert(_whole(text)).replace("![", "\\!\\[").replace("<", "\\<")


def _whole(text: str) -> str:
    """Halves of characters, as in names that are no UTF-8, spelt out: no terminal takes them."""
    return text.encode("utf-8", "backslashreplace").decode()


def shortened(text: str, limit: int, whole: int = 0) -> str:
    """At most `limit` characters of a text, and how long it was."""
    whole = max(whole, len(text))
    return text if whole <= limit and len(text) <= limit else f"{text[:limit]} ... ({whole:,} characters)"
