"""An incident of the team's own: what a corrected session looked at, labelled with the truth, for `doctor eval`."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ..report import CitedEvidence, Report
from .place import Place, file_mode, new_folder

MARKS = 4
MARK_LENGTH = 200
_NAME = re.compile(r"[\w-]{1,80}", re.ASCII)


def name_of(session: str) -> str:
    """The folder of a session's incident: never a path."""
    return session if _NAME.fullmatch(session) else f"session-{hashlib.sha256(session.encode()).hexdigest()[:16]}"


def labels(report: Report, truth: str, note: str, files: Mapping[str, bytes], question: str) -> str:
    """`incident.yaml`: the truth, and the lines that decide, as far as they stand in the files.

    Args:
        files: texts by name below `files/`, with secrets taken out.
        question: with secrets taken out, like `note`.
    """
    marks = [
        {"file": e.file, "text": text}
        for e in _decisive(report, truth)
        if e.file and (text := e.text.strip()[:MARK_LENGTH].strip()) and text.encode() in files.get(e.file, b"")
    ]
    rows: dict[str, object] = {
        "id": name_of(report.session), "source": "feedback of this team", "family": truth.partition(".")[0],
        "difficulty": "own", "question": " ".join(question.split()) or "What is wrong with this run?",
        "expected": [truth], "acceptable": [], "evidence": _once(marks)[:MARKS], "confirmed_by": "feedback",
        "why": note,
    }  # fmt: skip
    return "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in rows.items())


def keep(place: Place, session: str, yaml: str, files: Mapping[str, bytes]) -> Path:
    """Write the incident whole, in place of an earlier one of the same session; its folder.

    Raises:
        OSError: the place cannot be written.
    """
    new_folder(place.incidents, place)
    target = place.incidents / name_of(session)
    with tempfile.TemporaryDirectory(dir=place.incidents, prefix=".making-") as scratch:
        made = Path(scratch) / "made"
        (made / "files").mkdir(parents=True)
        (made / "incident.yaml").write_text(yaml, encoding="utf-8")
        for name, data in files.items():
            path = made / "files" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        _open_to_group(made, place)
        if target.is_dir():
            target.rename(Path(scratch) / "before")
        made.rename(target)
    return target


def relabel(place: Place, session: str, yaml: str) -> Path | None:
    """Write new labels for an incident whose run is gone; None where there is no incident."""
    target = place.incidents / name_of(session)
    if not (target / "files").is_dir():
        return None
    with tempfile.NamedTemporaryFile("w", dir=target, delete=False, encoding="utf-8") as f:
        f.write(yaml)
    Path(f.name).chmod(file_mode(place))
    Path(f.name).replace(target / "incident.yaml")
    return target


def kept_files(place: Place, session: str) -> dict[str, bytes]:
    """The texts of an incident, by name."""
    folder = place.incidents / name_of(session) / "files"
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def drop(place: Place, session: str) -> bool:
    """Remove the incident of a session; whether there was one."""
    target = place.incidents / name_of(session)
    if not target.is_dir():
        return False
    with tempfile.TemporaryDirectory(dir=place.incidents, prefix=".gone-") as scratch:
        target.rename(Path(scratch) / "gone")
    return True


def _decisive(report: Report, truth: str) -> list[CitedEvidence]:
    """What speaks for the truth, and what the report is about where that is not known, most telling first."""
    by_id = {e.id: e for e in report.evidence}
    ids = [i for d in report.differential if d.id == truth for i in d.supported_by]
    if report.root_cause.id == truth:
        ids += [link.evidence for link in report.chain if link.role == "cause"]
    found = [by_id[i] for i in dict.fromkeys(ids) if i in by_id]
    return [e for e in found if e.kind == "line"]


def _once(marks: list[dict[str, str]]) -> list[dict[str, str]]:
    return [m for number, m in enumerate(marks) if m not in marks[:number]]


def _open_to_group(folder: Path, place: Place) -> None:
    """The bits of the history's other files, instead of those of a temporary folder."""
    mode = file_mode(place)
    for path in (folder, *folder.rglob("*")):
        path.chmod((mode | (mode >> 2) & 0o110) if path.is_dir() else mode)
