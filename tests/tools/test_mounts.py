"""Where the data lie: captures of mounts against the paths that flags and configs name."""

from __future__ import annotations

from pathlib import Path

import pytest
from captured import look
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.machine import host_tools
from traindoctor.agent.tools.machine.host_tools import data_mounts

LUSTRE = (
    "10.2.0.1@o2ib:/fs on /lustre type lustre (rw,flock,lazystatfs)\n/dev/md0 on /lustre/local type xfs (rw,noatime)\n"
)


@pytest.mark.parametrize(
    "capture",
    [
        "filer:/vol/sets on /sets type nfs4 (rw,relatime,vers=4.2)\n",
        "filer:/vol/sets /sets nfs rw,relatime,vers=3 0 0\n",
        "Filesystem      Type  1K-blocks     Used Available Use% Mounted on\nfiler:/vol/sets nfs4  9000000  4000000   5000000  45% /sets\n",
        "s3fs /sets fuse.s3fs rw,nosuid,nodev,relatime,user_id=0 0 0\n",
    ],
)
def test_data_on_a_network_file_system(capture: str, tmp_path: Path) -> None:
    script = "python train.py --data-dir /sets/coco --output-dir /sets/out --workers 8\n"
    seen = look(data_mounts, tmp_path, mounts_txt=capture, run_sh=script)
    assert seen.result.outcome == "finding" and seen.result.text.count("mounts.txt:") == 1
    assert {v.split(" on ")[0] for v in seen.values("storage.data_on_network")} == {"/sets/coco"}


def test_the_longest_place_decides(tmp_path: Path) -> None:
    script = "python train.py --train_dir /lustre/local/train --output-dir /lustre/out\n"
    seen = look(data_mounts, tmp_path, mounts_txt=LUSTRE, run_sh=script)
    assert (
        not seen.values("storage.data_on_network") and seen.one("storage.data_on_local") == "/lustre/local/train on xfs"
    )


def test_sentences_about_mounts_are_none(tmp_path: Path) -> None:
    seen = look(
        data_mounts, tmp_path, train_log="data /sets on nfs is slow\nmounted on /sets type unknown\nstep 1 loss 2\n"
    )
    assert seen.result.outcome == "not_applicable" and not seen.evidence


def test_logs_without_a_word_of_it_are_not_read_by_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_tools, "lines", lambda _: pytest.fail("read by the line"))
    seen = look(data_mounts, tmp_path, train_log="step 1 loss 2.1 path /sets/a\n" * 90_000)
    assert seen.result.outcome == "not_applicable"


def test_a_log_that_is_too_large_is_told(tmp_path: Path) -> None:
    with (tmp_path / "train.log").open("wb") as log:
        log.write(b"step 1 loss 2.1\n" * 1000)
        log.truncate((64 << 20) + 1)
    result = data_mounts(Workspace([tmp_path]))
    assert "1 file(s) over 64 MiB not searched" in result.summary
