"""Flight-recorder dumps as JSON: secrets can be taken out of text only, and JSON replays as well as the pickle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import ParseError
from ..reading.files import RunFile
from ..reading.flight.dump import LIMIT, load

if TYPE_CHECKING:
    from ..workspace import Workspace

LATEST = 64  # entries whose stacks are kept where a dump is too long as a whole


def dumps(ws: Workspace) -> list[RunFile]:
    """Files that are dumps which can be read, in the order of their names."""
    from ..reading.flight.recordings import recordings

    found = {d.file.name: d.file for r in recordings(ws) for d in r.dumps.values()}
    return [found[name] for name in sorted(found)]


def as_json(ws: Workspace, file: RunFile, room: int) -> tuple[str, bool]:
    """A dump as JSON of at most `room` bytes, and whether it is all there.

    Raises:
        ParseError: it is damaged, hostile, or too long even for its last entry.
    """
    content = load(ws.read(file, LIMIT + 1))
    for whole, shown in _shorter(content):
        try:
            text = json.dumps(shown, separators=(",", ":"), ensure_ascii=False, skipkeys=True)
        except (TypeError, ValueError, RecursionError) as e:
            raise ParseError(f"not to be written as JSON: {str(e)[:80]}") from None
        if len(text) <= room:
            return text, whole
    raise ParseError("no room for it")


def _shorter(content: dict[str, Any]) -> Iterator[tuple[bool, dict[str, Any]]]:
    """The dump, without stacks but of the latest entries, then with ever fewer of the latest entries."""
    yield True, content
    entries = content.get("entries")
    if not isinstance(entries, list):
        return
    bare = [{k: v for k, v in e.items() if k != "frames"} if isinstance(e, dict) else e for e in entries[:-LATEST]]
    count = len(entries)
    while count:
        yield False, {**content, "entries": [*bare, *entries[-LATEST:]][-count:]}
        count //= 2
