"""What a playbook must prove before it counts: its examples, its keys, its cause, its checks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .playbook import Playbook, causes
from .tool import all_tools

_ADVICE = ("question.", "sig.")


def faults(playbook: Playbook, known: list[Playbook]) -> Iterator[str]:
    """Everything wrong with a playbook, one line each, starting with its path."""
    at = playbook.path
    vocabulary, tools = causes(), all_tools()
    if playbook.cause not in vocabulary:
        yield f"{at}: cause {playbook.cause!r} is not in causes.yaml"
    for name in [*playbook.checks, *(f.verify for f in playbook.fixes if f.verify)]:
        if name not in tools:
            yield f"{at}: no tool is called {name!r}"
    for cause in playbook.explains:
        if cause not in vocabulary:
            yield f"{at}: explains {cause!r}, which is not in causes.yaml"
    yield from _signature_faults(playbook)
    slugs = {p.key for p in known}
    for predicate in playbook.predicates:
        for key in filter(None, (predicate.key, predicate.than)):
            if not _known(key, slugs):
                yield f"{at}: no tool emits {key!r}"


def _known(key: str, signature_keys: set[str]) -> bool:
    if key.startswith("sig."):
        return key in signature_keys or key.rpartition(".")[0] in signature_keys
    return key.startswith(_ADVICE) or any(t.allows(key) for t in all_tools().values())


def _signature_faults(playbook: Playbook) -> Iterator[str]:
    for number, signature in enumerate(playbook.signatures, 1):
        try:
            compiled = re.compile(signature.pattern)
        except re.error as e:
            yield f"{playbook.path}: signature {number}: {e}"
            continue
        for line in signature.matches:
            if not compiled.search(line):
                yield f"{playbook.path}: signature {number} does not match its own example {line!r}"
        for line in signature.ignores:
            if compiled.search(line):
                yield f"{playbook.path}: signature {number} matches {line!r}, which it must ignore"
