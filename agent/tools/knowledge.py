"""What is known apart from any run: catalogues, playbooks and the user's own documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ...index.search import Result, Results, search
from ..reading.catalogue import Entry, entries
from ..tool import clean, finding, tool
from ..types import LINE_CAP, Evidence, ToolResult
from ..workspace import Workspace

PASSAGES = 4


@tool(emits=("knowledge.entry", "knowledge.passage"))
def look_up(
    ws: Workspace,
    query: Annotated[str, Field(description="a term, an error, a setting, or a question in words", min_length=2)],
) -> ToolResult:
    """Look a term or a question up in catalogues, playbooks and the user's own documents.

    Use for what needs no run: what an Xid code, an exit code, a setting or a word of the field means, which settings do
    nothing, which versions conflict, how a failure is recognised and repaired. Answers with the passages and where
    they stand; says so when nothing bears on the question.
    """
    known = entries(query)
    found = search(f"{query} {' '.join(e.term for e in known)}"[:800], k=2 * PASSAGES)
    evidence = [_entry(e) for e in known] + [_passage(r) for r in _distinct(found, known)]
    limited = f" ({found.degraded})" if found.degraded else ""
    if not evidence:
        return clean(f"no catalogue, playbook or document bears on this{limited}")
    text = "\n\n".join(f"[{e.file} > {e.member}]\n{e.text}" for e in evidence)
    return finding(f"{len(known)} entries and {len(evidence) - len(known)} passages{limited}", evidence, text)


def _distinct(found: Results, known: list[Entry]) -> Iterator[Result]:
    """Passages, the user's own first; where a catalogue names a playbook or a cause, of the playbooks only that one."""
    named = {e.see for e in known if e.see}
    own = [r for r in found if r.kind == "document"]
    ours = [r for r in found if r.kind != "document"]
    ours = [r for r in ours if r.document in named or r.cause in named] or ([] if named else ours)
    yield from [*own, *ours][:PASSAGES]


def _entry(e: Entry) -> Evidence:
    return Evidence(
        key="knowledge.entry", value=e.term, kind="document", file=f"knowledge/{e.document}", member=e.term, text=e.text
    )


def _passage(r: Result) -> Evidence:
    name = Path(r.document).name if r.kind == "document" else f"playbook {r.document}"
    headings = " > ".join(r.headings)
    return Evidence(
        key="knowledge.passage", value=headings, kind="document", file=name, member=headings,
        text=r.text[:LINE_CAP], cut=len(r.text) > LINE_CAP,
    )  # fmt: skip
