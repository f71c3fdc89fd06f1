"""Sections of playbooks and of the user's own documents that bear on a verdict, named by document and heading."""

from __future__ import annotations

from pathlib import Path

from ..index.search import Result, bound, search

SHOWN = 3


def passages(question: str, title: str, cause: str, *, settled: bool, notes: list[str]) -> list[str]:
    """What to read next, one line each, the user's own documents before ours.

    Words alone are compared where the evidence settled the matter; only an open question is worth the time that
    the vector index takes to load. A document that is bound to a cause is named for that cause alone, and always.
    """
    found = search(f"{title}. {question}"[:800], k=8, by="words" if settled else "both")
    if found.degraded and not settled:
        notes.append(f"index: {found.degraded}")
    own = [*bound(cause), *(r for r in found if r.kind == "document" and r.cause in (None, cause))]
    ours = [r for r in found if r.kind != "document" and (r.cause == cause or not settled)]
    chosen: dict[tuple[str, ...], Result] = {}
    for r in [*own, *ours]:
        chosen.setdefault((r.document, *(r.headings if r.kind == "document" else ())), r)
    return [f"Read: {_name(r)}" for r in list(chosen.values())[:SHOWN]]


def _name(r: Result) -> str:
    path = " > ".join(r.headings)
    if r.kind == "document":
        return f"{Path(r.document).name} > {path}" if path else Path(r.document).name
    return f"playbook {r.document} > {path} (doctor playbook show {r.document})" if path else r.document
