"""Failures, consequences, signatures and endings as evidence that cites its lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...core.playbook import quantity
from ...core.types import Evidence
from ..run.files import Line, RunFile
from ..run.lines import spans
from ..scan.library_notices import of_library, signed
from ..scan.logpass import Hit, LogPass
from .attempts import attempt_at, restarts, stillborn
from .endings import endings
from .failures import Failures, Note, library_of, phases_of, stood_at, user_frame
from .tracebacks import Failure, Frame

if TYPE_CHECKING:
    from ..run.workspace import Workspace

GROUPS = 40
FRAMES, ERROR_LINES, WARNINGS, SIGNATURE_LINES, RANKS = 60, 20, 30, 24, 16
MESSAGE = 400
STATE = 64 << 20  # bytes of a trainer's state
_COUNTS = re.compile(r'(?m)^\s{0,4}"(global_step|max_steps)":\s*(\d{1,12})')
# A field of what code calls a record of the data; settings, states and environments go by other names.
_OF_RECORD = re.compile(
    r"\b(?:row|rec|record|sample|example|ex|item|entry|doc|document|line|datum|d|r|s|turn|msg|message|conv|conversation"
    r"|ann|annotation|obj|instance|feature|features|data_point|datapoint|point|element|elem|dialog|dialogue|story)"
    r"(?:_dict)?\[['\"](?P<key>[^'\"\]]{1,60})['\"]\]"
)
_NUMBER = re.compile(r"^-?\d[\d_,]*(?:\.\d+)?(?:[eE][+-]?\d+)?$")


def typed(text: str) -> Any:
    """A captured value: bytes for `2.00 GiB`, a number for a number, otherwise the text."""
    amount = quantity(text)
    if not isinstance(amount, str):
        return amount
    if _NUMBER.match(text):
        plain = text.replace(",", "").replace("_", "")
        return int(plain) if re.fullmatch(r"-?\d{1,18}", plain) else float(plain)
    return text[:MESSAGE]


def _cited(ws: Workspace, unit: Failure, line: Line, key: str, value: Any = True) -> Evidence:
    return ws.cite(
        unit.file,
        line,
        key,
        value,
        rank=unit.rank,
        host=unit.host,
        attempt=unit.attempt,
        time=unit.stamp.text if unit.stamp else None,
    )


def failure_evidence(ws: Workspace, wrong: Failures) -> Iterator[Evidence]:
    """The first failure, then each event with its message, frames, phase and library."""
    if wrong.first is not None:
        yield _cited(ws, wrong.first, wrong.first.line, "error.first", wrong.first.text[:MESSAGE])
    seen_frames: set[str] = set()
    named = any(u.name or u.message for u in wrong.units)
    for group in sorted(wrong.groups, key=lambda g: g.lead.origin is not wrong.first)[:GROUPS]:
        if named and not (group.lead.name or group.lead.message):
            continue  # a print that another process broke into: what was raised stands in one of the others
        for unit in _told(group.lead, group.members):
            yield from _unit_evidence(ws, unit, seen_frames)


def _told(lead: Failure, members: list[Failure]) -> list[Failure]:
    """One unit for each rank of an event, the earliest of it first."""
    by_rank: dict[object, Failure] = {lead.rank if lead.rank is not None else lead.file.name: lead}
    for m in members:
        by_rank.setdefault(m.rank if m.rank is not None else m.file.name, m)
    return list(by_rank.values())[:RANKS]


def _unit_evidence(ws: Workspace, unit: Failure, seen: set[str]) -> Iterator[Evidence]:
    if unit.cascade:
        yield _cited(ws, unit, unit.line, "error.cascade", unit.cascade)
    elif unit.kind == "native":
        yield _cited(ws, unit, unit.line, "error.native_crash", unit.message[:MESSAGE])
    elif unit.name:
        yield _cited(ws, unit, unit.line, "error.exception", unit.name)
    if unit.message:
        yield _cited(ws, unit, unit.line, "error.message", unit.message[:MESSAGE])
    for line, text in unit.details:
        yield _cited(ws, unit, line, "error.message", text[:MESSAGE])
    if unit.name == "KeyboardInterrupt" and (stood := stood_at(unit.frames)) is not None:
        yield _cited(ws, unit, stood[1].line, "stack.interrupted", stood[0])
    yield from _frame_evidence(ws, unit, seen)


def _frame_evidence(ws: Workspace, unit: Failure, seen: set[str]) -> Iterator[Evidence]:
    fresh: list[Frame] = []
    for frame in unit.frames[-30:]:
        if frame.text not in seen and len(seen) < FRAMES:
            seen.add(frame.text)
            fresh.append(frame)
    for frame in fresh:
        yield _cited(ws, unit, frame.line, "error.frame", frame.text[:MESSAGE])
    if not fresh and unit.frames:
        return  # the same stack on another rank
    if (frame := user_frame(unit)) is not None:
        yield _cited(ws, unit, frame.line, "error.user_frame", frame.text[:MESSAGE])
        if unit.name == "KeyError" and (key := record_key(frame.code, unit.message)):
            yield _cited(ws, unit, frame.line, "error.record_key", key)
    if (library := library_of(unit)) is not None:
        yield _cited(ws, unit, library[1].line, "error.library", library[0])
    if not unit.cascade:
        for name, frame in phases_of(unit)[:4]:
            yield _cited(ws, unit, frame.line if frame else unit.line, "error.phase", name)


def record_key(code: str, message: str) -> str | None:
    """The field that a line of code asks of a record, where this is the key that is lacking."""
    key = message.strip().strip("'\"")
    asked = any(m["key"] == key for m in _OF_RECORD.finditer(code))
    return key if key and asked else None


def note_evidence(ws: Workspace, wrong: Failures) -> Iterator[Evidence]:
    """Consequences, exit codes, signals, kills, and error lines outside of tracebacks."""
    keys = {
        "cascade": "error.cascade",
        "exit": "error.exit_code",
        "signal": "error.signal",
        "killed": "error.bare_kill",
    }
    seen: dict[tuple[object, ...], int] = {}
    plain = 0
    for note in wrong.notes:
        if note.kind == "error":
            plain += 1
            if plain <= ERROR_LINES:
                yield _noted(ws, note, "error.line", note.value)
            continue
        same = (note.kind, note.value, note.rank, note.file.name)
        seen[same] = seen.get(same, 0) + 1
        if seen[same] <= 2 and len(seen) <= 200:
            yield _noted(ws, note, keys[note.kind], note.value)


def _noted(ws: Workspace, note: Note, key: str, value: Any) -> Evidence:
    s, stamp = note.read.stripped, note.read.stamp
    return ws.cite(
        note.file,
        note.read.line,
        key,
        value,
        rank=note.rank,
        host=s.host or note.file.host,
        time=stamp.text if stamp else None,
    )


def signature_evidence(ws: Workspace, found: LogPass, wrong: Failures) -> Iterator[Evidence]:
    """Each kept hit of each signature, and its named captures; none within an exception that was caught."""
    for name, hits in sorted(found.hits.items()):
        shown: set[tuple[str, int]] = set()
        of_peers = name.startswith("sig.dist.")
        for hit in sorted(hits, key=lambda h: (h.number, h.file.name, h.line.number)):
            where = (hit.file.name, hit.line.number)
            if wrong.is_survived(*where) or (of_peers and wrong.is_outside(*where, hit.body)):
                continue
            if where not in shown and len(shown) < SIGNATURE_LINES:
                shown.add(where)
                value: Any = {k: typed(v) for k, v in hit.captures.items()} or True
                yield _hit(ws, found, hit, name, value)
            if where in shown:
                for k, v in hit.captures.items():
                    yield _hit(ws, found, hit, f"{name}.{k}", typed(v))


def _hit(ws: Workspace, found: LogPass, hit: Hit, key: str, value: Any) -> Evidence:
    attempt = (
        hit.file.attempt if hit.file.attempt is not None else attempt_at(found.files[hit.file.name], hit.line.number)
    )
    return ws.cite(hit.file, hit.line, key, value, rank=hit.rank, host=hit.host, time=hit.time, attempt=attempt)


def warning_evidence(ws: Workspace, found: LogPass) -> Iterator[Evidence]:
    """Distinct warnings, the first line of each; of what libraries say in general those that a signature names."""
    count, named = 0, signed(found.hits)
    for summary in found.files.values():
        for slot in summary.harvest.warnings.values():
            if count >= WARNINGS:
                return
            first = slot.first[0]
            s = first.stripped
            if (summary.file.name, first.number) not in named and of_library(ws, summary.file, s.body, s.level):
                continue
            count += 1
            line = Line(first.number, first.offset, first.data, first.cut)
            rank = s.rank if s.rank is not None else summary.file.rank
            yield ws.cite(summary.file, line, "log.warning", s.body.strip()[:300], rank=rank)


def ending_evidence(ws: Workspace, found: LogPass, wrong: Failures) -> Iterator[Evidence]:
    """How each log ends, whether the run reached its end, and where it was restarted."""
    ends = endings(ws, found, wrong)
    for end in ends.files:
        if end.last is not None:
            yield ws.cite(end.file, end.last, "run.last_line", end.state)
        if end.finished is not None:
            yield ws.cite(end.file, end.finished, "run.finished")
        if end.silent and end.last is not None:
            yield ws.cite(end.file, end.last, "run.silent_end", end.file.name)
            if _missed(end.file, wrong):
                yield ws.cite(end.file, end.last, "run.vanished", end.file.name)
    for summary in found.files.values():
        for line, attempt in restarts(summary):
            yield ws.cite(summary.file, line, "run.restarted", attempt, attempt=attempt)
        if ends.state == "died" and (line := stillborn(summary)) is not None:
            yield ws.cite(summary.file, line, "run.restart_stillborn")
    yield from planned_steps(ws)
    decides = ends.decides
    if decides is not None:
        file, line = decides
        yield ws.cite(file, line, "run.state", ends.state)
        if ends.healthy:
            yield ws.cite(file, line, "run.healthy_end")
        if ends.recovered:
            yield ws.cite(file, line, "run.recovered")


def planned_steps(ws: Workspace) -> Iterator[Evidence]:
    """`run.finished` where the furthest state that a trainer saved has all steps that were planned."""
    states: list[tuple[int, int, RunFile]] = []
    for file in (f for f in ws.files if f.path.name == "trainer_state.json" and not f.good):
        numbers = {m[1]: int(m[2]) for m in _COUNTS.finditer(ws.text(file, STATE))}
        states.append((numbers.get("global_step", 0), numbers.get("max_steps", 0), file))
    made, planned, file = max(states, key=lambda s: s[:2], default=(0, 0, None))
    if file is not None and 0 < planned <= made:
        line = next((x for x in ws.lines(file) if b'"global_step"' in x.data), None)
        if line is not None:
            yield ws.cite(file, line, "run.finished", f"{made} of {planned} steps")


def _missed(file: RunFile, wrong: Failures) -> bool:
    """Whether something else tells of the death of a process whose log merely stops: copied early, it stops too."""
    return any(u.file.name != file.name for u in wrong.units) or any(
        n.kind != "error" and n.value != "teardown" and n.file.name != file.name for n in wrong.notes
    )


# ----------
# The logs of a run on one screen, for a model to read: capped, with exact counts and where to read on.

CAP = 12_000  # characters
FILES, OUTLOOK_GROUPS, NOTES, SIGNATURES = 24, 12, 16, 24


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
    for group in wrong.groups[:OUTLOOK_GROUPS]:
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
    if len(wrong.groups) > OUTLOOK_GROUPS:
        shown.append(f"... and {len(wrong.groups) - OUTLOOK_GROUPS} more failures")
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
