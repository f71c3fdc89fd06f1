"""The logs of a run on one screen, for a model to read: capped, with exact counts and where to read on."""

from __future__ import annotations

from .failures import Failures
from .logpass import LogPass
from .spans import spans

CAP = 12_000  # characters
FILES, GROUPS, NOTES, SIGNATURES = 24, 12, 16, 24


def outlook(found: LogPass, wrong: Failures) -> str:
    """Files and their ends, failures with their innermost frames, consequences, signatures."""
    parts = [*_files(found), *_failures(wrong), *_notes(wrong), *_signatures(found)]
    text = "\n".join(parts)
    if len(text) <= CAP:
        return text
    return (
        text[:CAP]
        + f"\n(cut: {len(text) - CAP} of {len(text)} characters not shown; read on with grep_logs or read_lines)"
    )


def _files(found: LogPass) -> list[str]:
    shown = [f"Files: {len(found.files)}, {found.bytes} bytes"]
    for name, s in list(found.files.items())[:FILES]:
        span = f" {s.first_stamp.text} .. {s.last_stamp.text}" if s.first_stamp and s.last_stamp else ""
        ranks = f", ranks {_ranks(sorted(s.harvest.ranks))}" if s.harvest.ranks else ""
        shown.append(f"  {name}: {s.lines} lines{span}{ranks}")
        if s.last_line is not None:
            shown.append(
                f"    last {s.last_line.number}: {s.last_line.data[-300:].decode(errors='replace').strip()[:200]}"
            )
    if len(found.files) > FILES:
        shown.append(f"  ... and {len(found.files) - FILES} more files")
    return shown


def _failures(wrong: Failures) -> list[str]:
    shown = []
    if wrong.first is not None:
        f = wrong.first
        known = "" if wrong.first_known else " (times do not allow to say that nothing came before)"
        shown.append(f"First failure: {f.file.name}:{f.line.number}: {f.text[:600]}{known}")
    for group in wrong.groups[:GROUPS]:
        lead = group.lead
        on = f" on ranks {_ranks(group.ranks)}" if group.ranks else ""
        kind = f" [consequence: {lead.cascade}]" if lead.cascade else ""
        times = f" x{len(group.members)}" if len(group.members) > 1 else ""
        shown.append(f"- {lead.file.name}:{lead.line.number}: {lead.text[:400]}{on}{times}{kind}")
        shown += [f"    {frame.line.number}: {frame.text[:200]}" for frame in lead.frames[-4:]]
        shown += [f"    {line.number}: {text[:300]}" for line, text in lead.details[:6]]
        if lead.cause is not None:
            shown.append(
                f"    raised from: {lead.origin.text[:200]} ({lead.origin.file.name}:{lead.origin.line.number})"
            )
    if len(wrong.groups) > GROUPS:
        shown.append(f"... and {len(wrong.groups) - GROUPS} more failures")
    return shown


def _notes(wrong: Failures) -> list[str]:
    shown = [f"Other lines of trouble: {len(wrong.notes)}"] if wrong.notes else []
    for note in wrong.notes[:NOTES]:
        shown.append(f"  [{note.kind}] {note.file.name}:{note.read.line.number}: {note.read.body.strip()[:240]}")
    return shown


def _signatures(found: LogPass) -> list[str]:
    shown = [f"Known signatures: {len(found.hits)}"] if found.hits else []
    for name, hits in sorted(found.hits.items())[:SIGNATURES]:
        first = min(hits, key=lambda h: (h.file.name, h.line.number))
        total = sum({(h.number, h.file.name, h.rank): h.count for h in hits}.values())
        shown.append(f"  {name} ({total} lines): {first.file.name}:{first.line.number}: {first.body.strip()[:160]}")
    return shown


def _ranks(ranks: list[int]) -> str:
    shown = spans(ranks)
    return ", ".join(shown[:12]) + (f" and {len(shown) - 12} more spans" if len(shown) > 12 else "")
