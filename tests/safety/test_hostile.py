"""Bad input: one clear line, nothing lost, the rest goes on. Beside every oddity lies a real failure to be found."""

import gzip
import os
import socket
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import NothingReadable, ToolError, UsageError
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.logs.log_tools import grep_logs, list_files, read_lines, scan_logs
from traindoctor.agent.tools.logs.ranks_tools import rank_roster

FAILURE = b"step 7 loss 2.0\nValueError: the real failure\n"


def _fifo(folder: Path) -> None:
    os.mkfifo(folder / "train.out")


def _socket(folder: Path) -> None:
    here = Path.cwd()
    os.chdir(folder)  # a socket's path is short
    try:
        s = socket.socket(socket.AF_UNIX)
        s.bind("control.log")
        s.close()
    finally:
        os.chdir(here)


def _device(folder: Path) -> None:
    (folder / "zero.log").symlink_to("/dev/zero")


def _loop(folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "a" / "again").symlink_to(folder)
    (folder / "one.log").symlink_to(folder / "two.log")
    (folder / "two.log").symlink_to(folder / "one.log")


def _out(folder: Path) -> None:
    (folder / "secrets.log").symlink_to("/etc/passwd")


def _dangling(folder: Path) -> None:
    (folder / "gone.log").symlink_to(folder / "nowhere")


def _truncated(folder: Path) -> None:
    packed = gzip.compress(b"".join(b"step %d\n" % i for i in range(200_000)))
    (folder / "old.log.gz").write_bytes(packed[: len(packed) // 2])


def _bomb(folder: Path) -> None:
    (folder / "bomb.log.gz").write_bytes(gzip.compress(b"\0" * (300 << 20), 1))


def _not_gzip(folder: Path) -> None:
    (folder / "fake.log.gz").write_bytes(b"\x1f\x8b\x08\x00 this is no archive" * 10)


def _unreadable(folder: Path) -> None:
    (folder / "private.log").write_bytes(b"x\n")
    (folder / "private.log").chmod(0)


TOLD: dict[Callable[[Path], None], str] = {
    _fifo: "named pipe",
    _socket: "socket",
    _device: "out of the run",
    _loop: "loop",
    _out: "out of the run",
    _dangling: "cannot be read",
    _truncated: "cut off",
    _bomb: "more than allowed",
    _not_gzip: "broken",
    _unreadable: "permission",
}


def found(folder: Path) -> tuple[list[str], Workspace]:
    ws = Workspace([folder])
    r = scan_logs(ws)
    return [str(e.value) for e in r.evidence if e.key == "error.first"], ws


@pytest.mark.timeout(30)
@pytest.mark.parametrize("make", TOLD, ids=lambda f: f.__name__.strip("_"))
def test_what_cannot_be_read_is_named_and_the_failure_beside_it_found(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    if make is _unreadable and os.geteuid() == 0:
        pytest.skip("root reads everything")
    make(tmp_path)
    (tmp_path / "train.log").write_bytes(FAILURE)
    first, ws = found(tmp_path)
    assert first == ["ValueError: the real failure"]
    assert any(TOLD[make] in why for _, why in ws.skipped)
    assert TOLD[make] in list_files(ws).text


def _files(folder: Path) -> dict[str, bytes]:
    return {
        "nul.log": b"\0" * 5000 + b"\n" + FAILURE,
        "latin.log": "böse Ünicode\n".encode("latin-1") * 50 + FAILURE,
        "crlf.log": FAILURE.replace(b"\n", b"\r\n"),
        "utf16.log": FAILURE.decode().encode("utf-16"),
        "utf16be.log": ("\ufeff" + FAILURE.decode()).encode("utf-16-be"),
        "empty.log": b"",
        "newline.log": b"\n" * 5000,
        "binary.log": bytes(range(256)) * 400,
        "escapes.log": b"\x1b]52;c;AAAA\x07\x1b[2J\x9b31m" * 500 + b"\n" + FAILURE,
        "bars.log": b"".join(b"\r%3d%%|#| %d/100 [00:01<00:09, 1it/s]" % (i, i) for i in range(100)) * 200
        + b"\n"
        + FAILURE,
        "brackets.json": b"[" * 100_000,
        "digits.json": b'{"lr": ' + b"9" * 6000 + b"}",
        "nan.json": b'{"loss": NaN}',
        "bomb.yaml": b"a: &a [x,x]\n"
        + b"".join(b"%c: &%c [*%c,*%c]\n" % (98 + i, 98 + i, 97 + i, 97 + i) for i in range(20)),
        "broken.yaml": b"a: [1, 2\n  b: }",
        "wide.csv": b"step," + b"x," * 200_000 + b"\n1," + b"2," * 200_000 + b"\n",
        "regex.log": b"a" * 100_000 + b"\n" + b"(" * 20_000 + b"\n" + b"[rank" * 20_000 + b"\n",
        "file.log": b'  File "x", line 1, in f\n' * 20_000,
        "spaces.log": b" " * 200_000 + b"[repeated 3x across cluster]\n",
    }


@pytest.mark.timeout(60)
def test_every_odd_file_at_once(tmp_path: Path) -> None:
    for name, data in _files(tmp_path).items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "odd\nname\x1b[31m.log").write_bytes(FAILURE)
    (tmp_path / os.fsdecode(b"bytes\xff\xfe.log")).write_bytes(FAILURE)
    ws = Workspace([tmp_path])
    r = scan_logs(ws)
    rank_roster(ws)
    files = {e.file for e in r.evidence if e.key == "error.message"}
    assert {"nul.log", "latin.log", "crlf.log", "utf16.log", "utf16be.log", "bars.log"} <= files
    assert all("\n" not in f.name for f in ws.files)
    assert any("bytes\\xff\\xfe" in f.name for f in ws.files)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("where", ["before", "behind"])
def test_a_line_of_a_hundred_megabytes(tmp_path: Path, where: str) -> None:
    with (tmp_path / "train.log").open("wb") as f:
        if where == "behind":
            f.write(FAILURE)
        for _ in range(100):
            f.write(b"x" * (1 << 20))
        f.write(b"\n")
        if where == "before":
            f.write(FAILURE)
    ws = Workspace([tmp_path])
    r = scan_logs(ws)
    (first,) = [e for e in r.evidence if e.key == "error.first"]
    assert first.line == (3 if where == "before" else 2)
    assert len(read_lines(ws, file="train.log", start=1, count=4).text) < 60_000


@pytest.mark.timeout(30)
def test_a_failure_within_a_huge_overwritten_line(tmp_path: Path) -> None:
    bar = b"\r 10%|#   | 1/10 [00:01<00:09, 1it/s]" * 1000
    with (tmp_path / "train.log").open("wb") as f:
        for _ in range(300):
            f.write(bar)
        f.write(b"\rValueError: the real failure\n")
    assert scan_logs(Workspace([tmp_path])).outcome == "finding"


@pytest.mark.real
@pytest.mark.timeout(60)
def test_twenty_thousand_small_files(tmp_path: Path) -> None:
    for i in range(200):
        (tmp_path / f"d{i}").mkdir()
        for j in range(100):
            (tmp_path / f"d{i}" / f"part{j}.log").write_bytes(b"step 1 loss 2\n")
    (tmp_path / "d77" / "train.log").write_bytes(FAILURE)
    first, ws = found(tmp_path)
    assert first == ["ValueError: the real failure"]
    assert len(ws.files) == 20_001


@pytest.mark.timeout(60)
def test_a_thousand_rank_logs(tmp_path: Path) -> None:
    for rank in range(1024):
        text = (
            b"2024-01-01 10:00:%02d ERROR x: RuntimeError: peer\n" % (10 + rank % 40)
            if rank != 513
            else b"2024-01-01 10:00:01 ERROR x: ValueError: origin\n"
        )
        (tmp_path / f"rank{rank}.log").write_bytes(b"step 1 loss 2\n" + text)
    ws = Workspace([tmp_path])
    r = scan_logs(ws)
    (first,) = [e for e in r.evidence if e.key == "error.first"]
    assert (first.value, first.rank) == ("ValueError: origin", 513)
    assert len(r.evidence) < 20_000 and len(r.text) < 13_000
    assert [e.value for e in rank_roster(ws).evidence if e.key == "rank.first_failed"] == [513]


@pytest.mark.real
@pytest.mark.timeout(60)
def test_memory_does_not_grow_with_what_is_hit(tmp_path: Path) -> None:
    line = b"2024-01-01 10:00:00 ERROR root: ValueError: the same again and again\n"
    with (tmp_path / "train.log").open("wb") as f:
        for _ in range(10):
            f.write(line * 5000)
    ws = Workspace([tmp_path])
    tracemalloc.start()
    scan_logs(ws)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60 << 20


def test_a_file_that_shrinks_or_vanishes(tmp_path: Path) -> None:
    for name in ("gone.log", "short.log", "train.log"):
        (tmp_path / name).write_bytes(b"x\n" * 100_000 if name != "train.log" else FAILURE)
    ws = Workspace([tmp_path])
    (tmp_path / "gone.log").unlink()
    (tmp_path / "short.log").write_bytes(b"x\n")
    r = scan_logs(ws)
    assert [e.value for e in r.evidence if e.key == "error.first"] == ["ValueError: the real failure"]
    assert any(n == "gone.log" and "cannot open" in why for n, why in ws.skipped)
    assert grep_logs(ws, pattern="real failure").summary.startswith("1 lines")


def test_a_folder_that_is_called_like_a_log(tmp_path: Path) -> None:
    (tmp_path / "train.log").mkdir()
    (tmp_path / "train.log" / "stderr").write_bytes(FAILURE)
    assert found(tmp_path)[0] == ["ValueError: the real failure"]


def test_links_within_the_run_and_what_also_admits_are_followed(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    for folder in (run, other):
        folder.mkdir()
    (other / "train.log").write_bytes(FAILURE)
    (run / "latest.log").symlink_to(other / "train.log")
    with pytest.raises(NothingReadable):
        Workspace([run])
    assert scan_logs(Workspace([run], also=[other])).outcome == "finding"


def test_no_such_path_and_nothing_readable(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such path"):
        Workspace([tmp_path / "none"])
    with pytest.raises(UsageError, match="no such path"):
        Workspace([Path("a\0b")])
    with pytest.raises(NothingReadable, match="nothing readable"):
        Workspace([tmp_path])


def test_doctors_own_reports_are_no_part_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "doctor-report.md").write_bytes(FAILURE)
    (tmp_path / "train.log").write_bytes(b"step 1 loss 2\n")
    assert [f.name for f in Workspace([tmp_path]).files] == ["train.log"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import io
    import sys

    class _In:
        buffer = io.BytesIO(FAILURE)

    monkeypatch.setattr(sys, "stdin", _In)
    ws = Workspace([Path("-")])
    assert [f.name for f in ws.files] == ["stdin"]
    assert ws.files[0].path.stat().st_mode & 0o077 == 0
    assert scan_logs(ws).outcome == "finding"


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("pattern", "outcome"), [("(a+)+$", "clean"), ("(a|a)*b", "clean"), ("(.*a){20}", "finding")])
def test_a_users_pattern_never_backtracks(tmp_path: Path, pattern: str, outcome: str) -> None:
    (tmp_path / "a.log").write_bytes(b"a" * 60_000 + b"!\n")
    assert grep_logs(Workspace([tmp_path]), pattern=pattern).outcome == outcome


def test_a_users_pattern_that_would_take_all_memory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"a\n")
    with pytest.raises(ToolError, match="position 9"):
        grep_logs(Workspace([tmp_path]), pattern="a{1,1000}{1,1000}")
