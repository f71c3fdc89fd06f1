"""What a client may read by address: playbooks and finished reports."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..report import Report
from .outgoing import Outgoing
from .runs import Runs

TEMPLATES = (
    ("playbook://{slug}", "Playbook", "How one failure is recognised, told apart, repaired and prevented"),
    ("report://{session}", "Report", "A finished diagnosis as JSON, whole"),
)
SHOWN = 20  # reports that are listed


@dataclass(frozen=True, slots=True)
class Listed:
    """A report that may be read."""

    uri: str
    title: str


def listed(runs: Runs, out: Outgoing) -> list[Listed]:
    """The latest reports on runs that the client may look at."""
    from ..store import reports, usable_state

    found = []
    for entry in reports(usable_state()[0]):
        try:
            kept_report(entry.id, runs)
        except UsageError:  # not for this client, gone since, or of another version
            continue
        title = f"{entry.cause or 'answer'} ({entry.status}): {entry.question[:120]}"
        found.append(Listed(f"report://{entry.id}", out.line(title)))
        if len(found) == SHOWN:
            break
    return found


def read(uri: str, runs: Runs, out: Outgoing) -> tuple[str, str]:
    """MIME type and text of a resource.

    Raises:
        UsageError: there is none at this address.
    """
    if m := re.fullmatch(r"report://([\w-]{1,80})", uri):
        return "application/json", _report(m[1], runs, out)
    if m := re.fullmatch(r"playbook://([\w.-]+(?:/[\w.-]+)?)", uri):
        return "text/markdown", _playbook(m[1], out)
    raise UsageError(f"no resource at {uri}", "addresses are report://SESSION and playbook://FAMILY/NAME")


def kept_report(session: str, runs: Runs) -> Report:
    """The report of a session that this client may see.

    Raises:
        UsageError: there is none.
    """
    from ..store import load_report, session_roots, usable_state

    state = usable_state()[0]
    report = load_report(state, session)
    if runs.roots and not runs.may_show(root for roots in session_roots(state, session) for root in roots):
        raise UsageError(f"no session {session!r}", "it is of a run outside the folders this server was started for")
    return report


def _report(session: str, runs: Runs, out: Outgoing) -> str:
    import json

    report = kept_report(session, runs)
    return json.dumps(out.data(report.model_dump(by_alias=True, mode="json")), ensure_ascii=False, indent=1)


def _playbook(slug: str, out: Outgoing) -> str:
    from ..library import playbooks

    path = next((p.path for p in playbooks() if slug in (p.slug, p.cause)), None)
    if path is None:
        raise UsageError(f"no playbook {slug!r}", "`search` finds them")
    return out.data(Path(path).read_text(encoding="utf-8"))
