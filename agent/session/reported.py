"""A report that a command is given: a session, `last`, a file, a folder that holds one, or standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import UsageError

if TYPE_CHECKING:
    from ..core.report import Report
    from ..repair.applying.patch_targets import Root

STDIN, LAST, FILE = "-", "last", "doctor-report.json"
_MOST = 256 << 20


def report_of(named: str, state: Path) -> tuple[Report, Path | None]:
    """A report, and the file it stands in where it is not one of the state folder.

    Raises:
        UsageError: there is none, or it is not one that this version reads.
    """
    from .store import load_report, newest

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
    from ..core.own_files import OddFile, small_file

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

    from ..core.report import SCHEMA, Report

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


def is_ours(report: Report, state: Path) -> bool:
    """Whether this very report, in every word, is one that was made here and kept under its session.

    One that is not may say anything, also about where its run is and whose idea a patch was.
    """
    from .store import is_kept, load_report, turns

    if not is_kept(state, report.session):
        return False
    if report in turns(state, report.session):
        return True
    try:
        return load_report(state, report.session) == report
    except UsageError:
        return False


def roots_of(report: Report, path: Path | None, state: Path, named: list[str] | None) -> list[Root]:
    """Where the runs of a report are.

    A report that was made here is believed. Any other one can only be about what lies beside it, or what --run names.

    Args:
        path: the file of the report.
        named: what --run says, in the order of the report's runs.

    Raises:
        UsageError: a run is gone, leads elsewhere now, or as many as there are were not named.
    """
    from ..repair.applying.patch_targets import Root

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
    if is_ours(report, state):
        return _kept_roots(report, path, state, len(bad))
    return [Root(r.id, Path(r.root) if r.good else _beside(r.root, path, len(bad)), r.good) for r in report.runs]


def refuse_moved(report: Report, state: Path) -> None:
    """Refuse a report that was made here where a path of its runs leads to another place now.

    Raises:
        UsageError: a link on it was made or changed since.
    """
    from .store import moved_roots

    for root, led, now in moved_roots(state, report.session):
        if _exists(root):
            raise UsageError(
                f"{root} leads to {now} now, and led to {led} when the report was made", "--run names where the run is"
            )


def _kept_roots(report: Report, path: Path | None, state: Path, count: int) -> list[Root]:
    """The runs of a report that was made here: where they were, or beside the report where they are gone from there."""
    from ..repair.applying.patch_targets import Root
    from .store import session_roots

    refuse_moved(report, state)
    try:
        runs, good = (iter(found) for found in session_roots(state, report.session))
        return [Root(r.id, next(good if r.good else runs, Path(r.root)), r.good) for r in report.runs]
    except UsageError as gone:
        try:
            return [Root(r.id, Path(r.root) if r.good else _beside(r.root, path, count), r.good) for r in report.runs]
        except UsageError:
            raise gone from None


def _named(run: str) -> Path:
    if not _exists(Path(run)):
        raise UsageError(f"no such path: {run}", "--run names the folder of the run")
    return Path(run)


def _is_beside(path: Path, runs: int) -> bool:
    """Whether a report lies where `triage --write` puts it: in the folder of its one run."""
    return path.name == FILE and runs == 1


def _beside(root: str, path: Path | None, runs: int) -> Path:
    """The run of a report that was not made here: in its own folder, wherever the report says that it is.

    Raises:
        UsageError: it is not there, or the folder holds all that is the user's.
    """
    if root == STDIN:
        raise UsageError("the report is about standard input", "--run names the folder of the run")
    hint = "it was not made here: --run names the folder of its run"
    if path is None:
        raise UsageError("the report does not lie beside its run", hint)
    try:
        folder = path.absolute().parent.resolve()
        if not Path.home().resolve().is_relative_to(folder):
            for found in (Path(root).absolute(), folder / root):
                if found.exists() and found.resolve().is_relative_to(folder):
                    return found
            if _is_beside(path, runs):
                return folder
    except (OSError, RuntimeError, ValueError):  # a loop of links, a NUL, no home
        pass
    raise UsageError(f"the run of the report is not here: {root}", hint)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
