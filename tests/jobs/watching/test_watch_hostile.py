"""What files do that nobody meant: each is followed by the reader itself, look by look."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from traindoctor.agent.jobs.watching.alarm import KINDS, Alarm
from traindoctor.agent.jobs.watching.followed_run import Run
from traindoctor.agent.jobs.watching.point_readers import masked

_KINDS = frozenset(KINDS) - {"disk_filling", "xid"}


def looked(run: Run) -> list[Alarm]:
    run.search()
    said = run.look()
    while run.more:
        said += run.look()
    return said


def told(alarms: list[Alarm]) -> list[tuple[str, float | None, int | None]]:
    return [(a.kind, a.step, a.rank) for a in alarms]


@pytest.mark.parametrize(
    ("name", "text", "step"),
    [
        ("a.jsonl", '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": null}\n{"step": 3, "loss": "nan"}\n', 3.0),
        ("b.jsonl", '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": "Infinity"}\n', 2.0),
        ("c.log", "step 1 loss 2.0\r\nstep 2 loss NaN\r\n", 2.0),
        ("d.csv", "step,loss\n1,2.0\n2,\n3,NaN\n", 3.0),
    ],
)
def test_what_is_not_a_number_however_it_is_spelt(name: str, text: str, step: float, tmp_path: Path) -> None:
    run = Run(tmp_path, _KINDS)
    (tmp_path / name).write_text(text)
    assert told(looked(run)) == [("loss_nan", step, None)]


def test_ranks_that_share_a_line(tmp_path: Path) -> None:
    run = Run(tmp_path, _KINDS)
    (tmp_path / "a.log").write_text("[rank0]: step 7 loss 2.0[rank1]: step 7 loss nan\n")
    assert told(looked(run)) == [("loss_nan", 7.0, 1)]


def test_lines_without_end_and_bytes_without_sense(tmp_path: Path) -> None:
    run = Run(tmp_path, _KINDS)
    with (tmp_path / "wide.log").open("wb") as out:
        for _ in range(40):
            out.write(b"loss " * 200_000)
        out.write(b"\n")
    (tmp_path / "noise.log").write_bytes(b"step 1 loss 2.0\n" + bytes(range(256)) * 4000 + b"\nstep 2 loss nan\n")
    (tmp_path / "bad\x1b]0;x\x07\n.log").write_text("step 1 loss 2.0\nstep 3 loss nan\n")
    assert {(a.file, a.step) for a in looked(run)} <= {("noise.log", 2.0), ("bad\x1b]0;x\x07\n.log", 3.0)}
    assert run.followed == 3


def test_a_log_that_becomes_a_folder_a_pipe_and_a_loop(tmp_path: Path) -> None:
    run, log = Run(tmp_path, _KINDS), tmp_path / "a.log"
    log.write_text("step 1 loss 2.0\n")
    assert looked(run) == []
    log.unlink()
    log.mkdir()
    assert looked(run) == []
    log.rmdir()
    os.mkfifo(log)
    assert looked(run) == []
    log.unlink()
    log.symlink_to(log)
    assert looked(run) == []
    log.unlink()
    log.write_text("step 2 loss nan\n")
    assert told(looked(run)) == [("loss_nan", 2.0, None)]


def test_a_folder_that_is_deleted_and_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = Run(folder, _KINDS)
    for step in (1, 2):
        folder.mkdir()
        (folder / "a.log").write_text(f"step {step} loss 2.0\n")
        assert looked(run) == []
        shutil.rmtree(folder)
        assert looked(run) == []
        assert not run.state.there
    folder.mkdir()
    (folder / "a.log").write_text("step 9 loss nan\n")
    (alarm,) = looked(run)
    assert (alarm.step, alarm.earlier) == (9.0, False)


def test_a_line_that_comes_in_pieces_and_is_cut_in_its_middle(tmp_path: Path) -> None:
    run, log = Run(tmp_path, _KINDS), tmp_path / "a.log"
    log.write_text("step 1 loss 2.0\nstep 2 loss 1")
    assert looked(run) == []
    os.truncate(log, 10)
    assert looked(run) == []
    with log.open("a") as out:
        out.write("\nstep 3 loss n")
        out.flush()
        assert looked(run) == []
        out.write("an\n")
    assert told(looked(run)) == [("loss_nan", 3.0, None)]


def test_what_is_old_when_it_is_found_late_is_earlier(tmp_path: Path) -> None:
    run = Run(tmp_path, _KINDS)
    assert looked(run) == []
    late = tmp_path / "sub" / "old.log"
    late.parent.mkdir()
    late.write_text("step 4 loss nan\n")
    os.utime(late, (1.7e9, 1.7e9))
    (tmp_path / "new.log").write_text("step 9000 loss nan\n")
    assert {(a.file, a.earlier) for a in looked(run)} == {("sub/old.log", True), ("new.log", False)}


def _record(step: int, value: bytes) -> bytes:
    """A TensorBoard record of `loss`, by the format's own description."""
    tag = b"\x0a\x04loss" + b"\x15" + value  # Value: tag 1, simple_value 2
    summary = b"\x0a" + bytes([len(tag)]) + tag
    event = b"\x09" + bytes(8) + b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary
    length = len(event).to_bytes(8, "little")
    return length + masked(length) + event + masked(event)


_TWO, _NAN = b"\x00\x00\x00\x40", b"\x00\x00\xc0\x7f"


def test_records_half_written_or_wrong(tmp_path: Path) -> None:
    run, file = Run(tmp_path, _KINDS), tmp_path / "events.out.tfevents.1.n.1.0"
    whole = _record(1, _TWO)
    wrong = bytearray(_record(2, _NAN))
    wrong[20] ^= 1
    file.write_bytes(whole + wrong + whole[:9])
    assert looked(run) == []
    assert run.state.step == 1.0
    with file.open("r+b") as out:  # a file system that shows zeros where bytes have not come yet
        out.seek(len(whole) + len(wrong))
        out.write(bytes(30))
        out.flush()
        assert looked(run) == []
        out.seek(len(whole) + len(wrong))
        out.write(_record(3, _NAN))
    assert told(looked(run)) == [("loss_nan", 3.0, None)]


def test_the_checksum_is_the_known_one() -> None:
    known = 0xE3069283  # CRC-32C of these nine digits
    assert masked(b"123456789") == ((known >> 15 | known << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")


def test_thousands_of_files_beside(tmp_path: Path) -> None:
    for n in range(3000):
        (tmp_path / f"sample_{n}.txt").touch()
    run = Run(tmp_path, _KINDS)
    (tmp_path / "a.log").write_text("step 1 loss 2.0\nstep 2 loss nan\n")
    assert told(looked(run)) == [("loss_nan", 2.0, None)]
