"""The file a new playbook begins as. Its proofs fail on purpose: an unfinished one must not pass for knowledge."""

from __future__ import annotations

from .playbook import causes
from .proofs import PARTS

_FRONT = """---
cause: {cause}
title: "TODO: {meaning}"
signatures:
  - pattern: 'TODO: what is particular to this failure, with a rare word in it'
    matches: ["a line as the library prints it; look the format up in its source"]
    ignores: ["a line that looks alike and means something else"]
checks: []            # tools that separate it from its neighbours: doctor tool
requires:             # all of these must hold before it is confirmed: evidence keys stand in docs/tools.md
  - {{key: todo.key, op: exists}}
supports: []          # - {{key: memory.alloc_retries, op: gt, value: 0, weight: weak}}
contradicts: []       # - {{key: ..., op: ..., weight: strong, why: "which neighbour it is then"}}
explains: []          # causes that follow from it
fixes:
  - {{title: "TODO", settings: {{}}, env: {{}}, commands: [], text: "", verify: ""}}
sources: []
---
"""


def skeleton(cause: str) -> str:
    """The text of a new playbook of a cause."""
    front = _FRONT.format(cause=cause, meaning=causes()[cause].replace('"', "'"))
    return front + "\n".join(f"## {part}\nTODO\n" for part in PARTS)
