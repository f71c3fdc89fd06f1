"""The one door to the page: text becomes inert and escaped here, elements are made by name from code alone.

What comes out is both HTML and well-formed XML, so that a strict parser can check all of it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..sanitize import inert, one_line

# Beside what `sanitize` takes: halves of characters, what XML does not allow, marks that show nothing.
_UNSEEN = re.compile("[\ud800-\udfff\ufffe\uffff\u00ad\u180e\ufff9-\ufffb\U000e0000-\U000e007f]")
_VOID = frozenset(("meta", "br", "hr"))


@dataclass(frozen=True, slots=True)
class Html:
    """A piece of the page that is safe as it stands. Only `tag`, `raw` and `joined` make it."""

    text: str


def shown(text: str) -> str:
    """Text for the page, not escaped yet: whatever is invisible or steers its neighbours is made visible."""
    return _UNSEEN.sub(lambda m: m[0].encode("unicode_escape", "surrogatepass").decode(), inert(text))


def clipped(text: str, limit: int) -> str:
    """The start of a text, and how many characters were left out."""
    more = len(text) - limit
    return text if more <= 0 else f"{text[:limit]} ... ({more:,} more characters)"


def tag(name: str, /, *inside: Html | str | None, **attributes: str | float | None) -> Html:
    """An element.

    Args:
        name: of the element, a word of our own.
        inside: elements and texts; None is left out.
        attributes: a trailing underscore is dropped and others become hyphens (`class_`, `aria_label`); None is left
            out, a number gets two decimals at most.
    """
    named = "".join(f' {_name(n)}="{_value(v)}"' for n, v in attributes.items() if v is not None)
    if name in _VOID:
        return Html(f"<{name}{named} />")
    return Html(f"<{name}{named}>{joined(*inside).text}</{name}>")


def joined(*pieces: Html | str | None, between: str = "") -> Html:
    """Pieces one after the other; strings are escaped."""
    parts = [p.text if isinstance(p, Html) else html.escape(shown(p)) for p in pieces if p is not None]
    return Html(html.escape(between).join(parts))


def within(pieces: Sequence[Html], budget: int) -> tuple[list[Html], int]:
    """The pieces from the first on that fit into so many bytes, and how many are left out."""
    kept = []
    for piece in pieces:
        budget -= len(piece.text.encode())
        if budget < 0:
            break
        kept.append(piece)
    return kept, len(pieces) - len(kept)


def raw(text: str) -> Html:
    """A text of our own that is markup already; never anything of a run or a report."""
    return Html(text)


def number(value: float) -> str:
    """A coordinate with two decimals at most."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _name(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    return html.escape(shown(one_line(value))) if isinstance(value, str) else number(value)
