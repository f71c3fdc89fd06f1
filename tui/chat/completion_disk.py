"""Completions that need more than memory: folders, sessions, applies, tools, whose modules are slow. For a thread."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ...agent.safety.fences import holds_unseen, inert, one_line
from .completion import MOST, Candidate, Place, matching, word

if TYPE_CHECKING:
    from ...agent.chat.talk import Conversation

LOOKED_AT = 5_000  # entries of one folder
KINDS = ("path", "folder", "tool", "session", "apply")


class OnDisk:
    """What the disk offers. Sessions and applies are read once for each time that the list is open.

    Args:
        state: the folder of doctor's own state; without it no session is offered.
    """

    def __init__(self, state: Path | None = None) -> None:
        self._state = state
        self._read: dict[str, list[Candidate]] = {}

    def forget(self) -> None:
        """The list was closed: what it shows next is read anew."""
        self._read = {}

    def offered(self, where: Place, talk: Conversation | None = None) -> list[Candidate]:
        """Candidates of a kind in `KINDS`.

        Args:
            talk: the conversation whose applies are offered.

        Raises:
            OSError: the folder cannot be read.
        """
        if where.kind in ("session", "apply"):
            known = self._read  # not a later one: this may be slow
            if where.kind not in known:
                known[where.kind] = applies(talk) if where.kind == "apply" else sessions(self._state)
            return matching(where.typed, known[where.kind])
        return tools(where.typed) if where.kind == "tool" else paths(where.typed)


def sessions(state: Path | None) -> list[Candidate]:
    """The newest sessions, with what was asked; also those that were left before their report."""
    from ...agent.chat.recent import ago
    from ...agent.chat.recent import sessions as kept

    if state is None:
        return []
    return [
        Candidate(one_line(r.session), one_line(f"{ago(r.time)}, {r.status}: {r.question or r.cause or '-'}"[:400]))
        for r in islice((r for r in kept(state) if r.opens), MOST)
    ]


def applies(talk: Conversation | None) -> list[Candidate]:
    """What stands of the applies to files of the run, newest first."""
    from ...agent.chat.offered_repairs import Repairs

    if talk is None:
        return []
    return [
        Candidate(one_line(a.ident), one_line(f"{a.when}: {', '.join(a.patches)} in {', '.join(a.files)}"[:400]))
        for a in Repairs(talk).applied()
    ]


def tools(typed: str) -> list[Candidate]:
    """The checks that can be named, with their title and, above reading, their risk."""
    from ...agent.core.types import Risk
    from ...agent.tools.tool import all_tools

    rows = [
        Candidate(t.name.replace("_", "-"), t.title if t.risk is Risk.READ else f"{t.risk.value}: {t.title}")
        for t in all_tools().values()
    ]
    return matching(typed.replace("_", "-"), rows)


def paths(typed: str) -> list[Candidate]:
    """Folders, then files, below what is typed; hidden ones where a dot is typed. Names that hide characters are not.

    A name that a terminal cannot show as it is could not be typed either: such a run is named on the command line.
    """
    head, slash, last = typed.rpartition("/")
    folder = Path(f"{head}{slash}" or ".")
    if typed.startswith("~"):
        folder = Path(os.path.expanduser(f"{head}{slash}" or "~/"))  # noqa: PTH111 - an unknown user stays as typed
    with os.scandir(folder) as entries:
        found = [(not _is_folder(e), e.name) for e in islice(entries, LOOKED_AT) if _fits(e.name, last)]
    found.sort()
    rows = []
    for is_file, name in found[:MOST]:
        text = f"{head}{slash}{name}{'' if is_file else '/'}"
        rows.append(Candidate(word(text, more=not is_file), "" if is_file else "folder", more=not is_file))
    return rows


def _fits(name: str, begun: str) -> bool:
    plain = name == inert(name) == one_line(name) and not holds_unseen(name) and name.isprintable()
    return plain and name.startswith(begun) and (begun.startswith(".") or not name.startswith("."))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
