"""The history's file: many writers, damage, kills, paths that cannot be written, and never a long wait."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from traindoctor.agent.session.history import diagnoses, history_database
from traindoctor.agent.session.history.diagnoses import Entry, Wanted
from traindoctor.agent.session.history.history_database import MIGRATIONS, Place, Unusable, file_mode, reading, writing

WRITER = """
import sys
import tempfile
from pathlib import Path
from traindoctor.agent.session.history import diagnoses, history_database
from traindoctor.agent.session.history.history_database import Place
place, number, locks = Place(Path(sys.argv[1]), shared=True), int(sys.argv[2]), sys.argv[3] == "locks"
if not locks:
    history_database._knows_locks = lambda folder: False
for i in range(15):
    entry = diagnoses.Entry(f"s{number}-{i}", diagnoses.now(), "u", "h", "/runs/a", "/runs/a", "hw.gsp_timeout",
                            "likely", f"f{number}-{i}", nodes=[f"n{number}"])
    history_database.writing(place, lambda base: diagnoses.put(base, entry), 30.0)
"""


def entry(session: str = "s1", **changes: object) -> Entry:
    fields: dict[str, object] = {
        "session": session, "time": "2026-03-04T10:00:00Z", "user": "ada", "host": "login1", "folder": "/runs/a",
        "root": "/runs/a", "cause": "hw.gsp_timeout", "status": "likely", "failure": session,
    }  # fmt: skip
    return Entry(**{**fields, **changes})  # pyright: ignore[reportArgumentType]


def put(place: Place, *entries: Entry) -> None:
    for e in entries:
        writing(place, lambda base, e=e: diagnoses.put(base, e))


def all_of(place: Place) -> list[Entry]:
    return reading(place, lambda base: diagnoses.found(base, Wanted(limit=10_000)), [])


@pytest.mark.parametrize("locks", ["locks", "none"])
def test_many_processes_write_and_nothing_is_lost(tmp_path: Path, locks: str) -> None:
    arguments = [sys.executable, "-c", WRITER, str(tmp_path / "shared")]
    running = [subprocess.Popen([*arguments, str(n), locks], stderr=subprocess.PIPE) for n in range(4)]
    for child in running:
        assert child.wait(60) == 0, child.stderr.read() if child.stderr else ""
    place = Place(tmp_path / "shared")
    assert len(all_of(place)) == 60
    with closing(sqlite3.connect(place.database)) as base:
        assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert base.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert base.execute("SELECT count(*) FROM nodes").fetchone() == (60,)


def test_a_writer_killed_within_its_transaction_leaves_what_was_there(tmp_path: Path) -> None:
    place = Place(tmp_path)
    put(place, entry("kept"))
    holding = (
        "import sqlite3, sys, time\n"
        "base = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "base.execute('PRAGMA cache_size=1'); base.execute('BEGIN IMMEDIATE')\n"
        "for i in range(3000): base.execute('INSERT INTO nodes VALUES (?, ?)', (str(i) * 50, 'x' * 400))\n"
        "print('ready', flush=True); time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", holding, str(place.database)], stdout=subprocess.PIPE, text=True)
    assert child.stdout and child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert [e.session for e in all_of(place)] == ["kept"]
    put(place, entry("next"))
    assert len(all_of(place)) == 2


@pytest.mark.parametrize("damage", ["text", "middle"])
def test_a_damaged_file_is_set_aside_and_begun_anew(tmp_path: Path, damage: str) -> None:
    place = Place(tmp_path)
    put(place, *(entry(f"s{i}", root="/x" * 300) for i in range(20)))
    data = bytearray(place.database.read_bytes())
    data = bytearray(b"no database at all " * 300) if damage == "text" else data
    if damage == "middle":
        data[4096 : len(data)] = b"\xa5" * (len(data) - 4096)
    place.database.write_bytes(data)
    with pytest.raises(Unusable, match=r"damaged: begun anew, the old file is history\.sqlite\.damaged-"):
        put(place, entry("after"))
    aside = [p for p in tmp_path.iterdir() if ".damaged-" in p.name]
    assert len(aside) == 1 and aside[0].read_bytes() == bytes(data)
    assert [e.session for e in all_of(place)] == ["after"]
    put(place, entry("more"))
    assert len(all_of(place)) == 2


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with closing(sqlite3.connect(place.database)) as base:
        base.execute("CREATE TABLE recipes (name TEXT)")
        base.commit()
    before = place.database.read_bytes()
    for work in (lambda: all_of(place), lambda: put(place, entry())):
        with pytest.raises(Unusable, match="another program"):
            work()
    assert place.database.read_bytes() == before


def test_a_newer_schema_is_neither_read_nor_written(tmp_path: Path) -> None:
    place = Place(tmp_path)
    put(place, entry())
    with closing(sqlite3.connect(place.database)) as base:
        base.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    for work in (lambda: all_of(place), lambda: put(place, entry("s2"))):
        with pytest.raises(Unusable, match="newer release"):
            work()


def test_a_history_of_the_first_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with closing(sqlite3.connect(place.database, isolation_level=None)) as base:
        base.executescript(MIGRATIONS[0])
        base.execute(f"PRAGMA application_id = {history_database.APPLICATION}")
        base.execute("PRAGMA user_version = 1")
        diagnoses.put(base, entry("old"))
    assert [e.session for e in all_of(place)] == ["old"]
    with closing(sqlite3.connect(place.database)) as base:
        assert base.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert base.execute("SELECT count(*) FROM corrections").fetchone() == (0,)


def test_a_locked_history_is_waited_for_no_longer_than_its_time(tmp_path: Path) -> None:
    place = Place(tmp_path)
    put(place, entry())
    with closing(sqlite3.connect(place.database, isolation_level=None)) as base:
        base.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        with pytest.raises(Unusable, match="locked"):
            writing(place, lambda base: diagnoses.put(base, entry("s2")), 0.4)
        assert time.monotonic() - began < 4  # SQLite's own patience is 5 s


def test_a_history_that_hangs_is_given_up(tmp_path: Path) -> None:
    put(Place(tmp_path), entry())
    began = time.monotonic()
    with pytest.raises(Unusable, match="does not answer"):
        reading(Place(tmp_path), lambda base: time.sleep(8), None, 0.2)
    assert time.monotonic() - began < 6


def _as_nobody(work: Callable[[], None]) -> int:
    """Do the work as somebody without rights; the exit status."""
    pid = os.fork()
    if pid == 0:
        status = 9
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_shared_path_that_is_read_only_is_read_and_the_write_is_told(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with tempfile.TemporaryDirectory(prefix="doctor-history-") as name:  # where nobody may come by
        folder = Path(name)
        place = Place(folder, shared=True)
        put(place, entry())
        place.database.chmod(0o444)
        folder.chmod(0o555)

        def work() -> None:
            assert len(all_of(place)) == 1
            with pytest.raises(Unusable, match=r"readonly|read-only|denied"):
                put(place, entry("s2"))

        assert _as_nobody(work) == 0
        folder.chmod(0o755)


def test_a_path_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    place = Place(tmp_path / "file" / "history", shared=True)
    assert all_of(place) == []
    with pytest.raises(Unusable) as caught:
        put(place, entry())
    assert "\n" not in str(caught.value) and str(place.folder) in str(caught.value)


@pytest.mark.parametrize(("bits", "expected"), [(0o700, 0o600), (0o755, 0o600), (0o770, 0o660), (0o2775, 0o660)])
def test_the_file_is_open_to_whom_a_shared_folder_is(tmp_path: Path, bits: int, expected: int) -> None:
    tmp_path.chmod(bits)
    shared, own = Place(tmp_path, shared=True), Place(tmp_path)
    assert file_mode(own) == 0o600
    put(shared, entry())
    assert shared.database.stat().st_mode & 0o777 == expected


def test_the_same_session_replaces_its_row(tmp_path: Path) -> None:
    place = Place(tmp_path)
    put(place, entry(nodes=["n1", "n2"]), entry(cause="dist.ib_link", nodes=["n3"], gpus=["GPU-1"], step=7))
    (row,) = all_of(place)
    assert (row.cause, row.nodes, row.gpus, row.step) == ("dist.ib_link", ["n3"], ["GPU-1"], 7)
