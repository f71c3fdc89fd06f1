"""A log line where there is little room for it."""

from __future__ import annotations

_READ = 2_000  # characters that are looked at; a row shows fewer


def without_head(text: str) -> str:
    """A line without the time, rank and level that its logger put first; all of it where nothing else is left."""
    from ..reading.lines import strip

    text = text[:_READ].lstrip()
    body = strip(text).body
    at = text.find(body)
    return (text[at:] if at >= 0 else body).strip() or text
