"""A report that a command is given: a session, `last`, a file, a folder that holds one, or standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from ..applying.targets import Root
    from ..report import Report

STDIN, LAST, FILE = "-", "last", "doctor-report.json"
_MOST = 256 << 20


def report_of(named: str, state: Path) -> tuple[Report, Path | None]:
    """A report, and the file it stands in where it is not one of the state folder.

    Raises:
        UsageError: there is none, or it is not one that this version reads.
    """
    from ..store import load_report, newest

    if named == STDIN:
        return _read(sys.stdin.read(_MOST), "standard input"), None
    path = Path(named)
    if named == LAST:
        session = newest(state)
        if session is None:
            raise UsageError("there is no report yet", "`doctor ask` makes one")
        return load_report(state, session), None
    if "/" in named or named.endswith(".json") or _exists(path):
        return _of_file(path / FILE if path.is_dir() else path)
    return load_report(state, named), None


def _of_file(path: Path) -> tuple[Report, Path]:
    from ..small_file import OddFile, small_file

    try:
        data = small_file(path, _MOST)[0]
        return _read(data.decode(), str(path)), path
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no report of doctor", "it is not text") from None
    except OddFile as e:
        raise UsageError(f"{path} {e}") from None
    except (OSError, ValueError) as e:
        raise UsageError(f"no report {path}: {getattr(e, 'strerror', None) or 'no such name'}") from None


def _read(text: str, where: str) -> Report:
    import json

    from pydantic import ValidationError

    from ..report import SCHEMA, Report

    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"{where} is no report of doctor", "it is not JSON: --json prints a report as such") from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema is None:
        raise UsageError(f"{where} is no report of doctor", "it names no schema")
    if schema != SCHEMA:
        raise UsageError(f"{where} is a report of another version ({str(schema)[:60]})", "diagnose the run again")
    try:
        return Report.model_validate(data)
    except ValidationError as e:
        first = e.errors()[0]
        at = ".".join(str(part) for part in first["loc"])[:100]
        raise UsageError(f"{where} is damaged or of another version", f"{at}: {first['msg'].lower()[:100]}") from None


def roots_of(report: Report, path: Path | None, state: Path, named: list[str] | None) -> list[Root]:
    """Where the runs of a report are.

    Args:
        path: the file of the report.
        named: what --run says, in the order of the report's runs.

    Raises:
        UsageError: a run is gone, or as many as there are were not named.
    """
    from ..applying.targets import Root
    from ..store import is_kept, session_roots

    bad = [r for r in report.runs if not r.good]
    if not bad:
        raise UsageError("the report is about no run", "nothing can be applied")
    if named:
        if len(named) != len(bad):
            raise UsageError(
                f"the report is about {len(bad)} runs, --run names {len(named)}", "name each once, in order"
            )
        own = iter(_named(n) for n in named)
        return [Root(r.id, Path(r.root) if r.good else next(own), r.good) for r in report.runs]
    if path is None and is_kept(state, report.session):
        runs, good = (iter(found) for found in session_roots(state, report.session))
        return [Root(r.id, next(good if r.good else runs, Path(r.root)), r.good) for r in report.runs]
    return [Root(r.id, Path(r.root) if r.good else _found(r.root, path), r.good) for r in report.runs]


def _named(run: str) -> Path:
    if not _exists(Path(run)):
        raise UsageError(f"no such path: {run}", "--run names the folder of the run")
    return Path(run)


def _found(root: str, path: Path | None) -> Path:
    """A run as a report names it: as it is, from the current folder, or from the report's own."""
    if root == STDIN:
        raise UsageError("the report is about standard input", "--run names the folder of the run")
    tried = [Path(root), *([path.absolute().parent / root] if path else [])]
    for found in tried:
        if _exists(found):
            return found
    raise UsageError(f"the run of the report is not here: {root}", "--run names where it is now")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
