"""What is not in a log: a dead mount, a full disk, processes, silent ranks, checkpoints that do not come, notices."""

from __future__ import annotations

import ctypes
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from traindoctor.agent.jobs.watching.alarm import KINDS
from traindoctor.agent.jobs.watching.following import Following, runs_of
from traindoctor.agent.jobs.watching.trouble import KernelLog, Process, Steps
from traindoctor.agent.jobs.watching.watched_folder import Checkpoints, Seen

from tests.jobs.watching.live import job, until, watching


def _mount(source: str, target: Path, kind: str, data: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), str(target).encode(), kind.encode(), 0, data.encode()):
        pytest.skip(f"no {kind} can be mounted here: {os.strerror(ctypes.get_errno())}")


def _unmount(target: Path) -> None:
    ctypes.CDLL(None).umount2(str(target).encode(), 2)


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[Path]:
    """A mount whose server never answers: whoever asks it anything waits."""
    target = tmp_path / "dead"
    target.mkdir()
    try:
        server = os.open("/dev/fuse", os.O_RDWR)
    except OSError as e:
        pytest.skip(f"no FUSE here: {e}")
    try:
        _mount("dead", target, "fuse", f"fd={server},rootmode=40000,user_id=0,group_id=0")
        yield target
    finally:
        os.close(server)  # whoever waits is let go
        _unmount(target)


def test_a_dead_mount_is_told_and_holds_up_nothing(dead: Path, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    alive.mkdir()
    (alive / "train.log").write_text("step 1 loss 2.0\nstep 2 loss nan\n")
    following = Following(runs_of([dead / "run", alive], frozenset(KINDS), 300, ()), 0.1, unreachable=1.0)
    following.start()
    kinds: set[tuple[str, str]] = set()
    until(
        lambda: (
            kinds.update((a.kind, a.run) for a in following.alarms(0.05))
            or {("unreachable", str(dead / "run")), ("loss_nan", str(alive))} <= kinds
        ),
        "not both",
    )
    following.stop()
    assert ("unreachable", str(alive)) not in kinds


def test_a_checkpoint_place_that_is_full_is_told_though_the_run_lies_elsewhere(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    _mount("small", place, "tmpfs", "size=4m")
    try:
        (place / "filled.bin").write_bytes(bytes(4_000_000))
        run = tmp_path / "run"
        run.mkdir()
        (run / "train.log").write_text("step 1 loss 2.0\n")
        (run / "checkpoints").symlink_to(place)
        following = Following(runs_of([run], frozenset(("disk_filling",)), 300, ()), once=True)
        following.start()
        said: list[str] = []
        until(lambda: said.extend(a.file for a in following.alarms(0.05)) or following.done, "no end")
        following.stop()
    finally:
        _unmount(place)
    assert str(run / "checkpoints") in said


def test_a_process_that_grows_and_one_that_is_gone() -> None:
    script = (
        "import sys\nheld = []\nfor _ in sys.stdin:\n  held.append(bytearray(b'x' * 3_000_000))\n"
        "  print(len(held), flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin
        assert child.stdout
        process, found = Process(child.pid), []
        for _ in range(110):
            child.stdin.write("more\n")
            child.stdin.flush()
            child.stdout.readline()
            found += process.look()
        child.stdin.close()
        child.wait(60)
        found += process.look()
    assert [f.kind for f in found] == ["memory_growth"]
    assert not process.alive


def test_an_xid_of_the_kernel_log(tmp_path: Path) -> None:
    pipe = tmp_path / "kmsg"
    os.mkfifo(pipe)
    log = KernelLog(str(pipe))
    with pipe.open("w") as kernel:
        assert list(log.look()) == []
        kernel.write("4,1234,567,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n")
        kernel.flush()
        (found,) = log.look()
    log.close()
    assert (found.kind, found.value) == ("xid", 79.0)
    assert found.file.startswith("kernel log of ")


def test_a_rank_that_falls_silent_while_the_others_go_on() -> None:
    pace, found = Steps(300), []
    for second in range(400):
        for rank in range(4):
            if rank != 2 or second < 100:
                pace.step_of(float(second), float(second + 1), False, rank, f"rank_{rank}.log")
        found += pace.judge(float(second + 1), False)
    assert [(f.kind, f.rank, f.step, f.file) for f in found] == [("rank_silent", 2, 99.0, "rank_2.log")]


def test_a_checkpoint_that_does_not_come() -> None:
    began = time.time()
    checkpoints = Checkpoints()
    walked = [Seen(f"checkpoint-{n}/model.safetensors", 5000, began + n) for n in (100, 200, 300, 400)]
    for step, told in ((450.0, 0), (690.0, 0), (750.0, 1), (800.0, 0)):
        found = [f.kind for f in checkpoints.look(walked, began + step, step, True)]
        assert found == ["checkpoint_overdue"] * told
    walked.append(Seen("checkpoint-800/model.safetensors", 5000, began + 810))
    assert not list(checkpoints.look(walked, began + 900, 900.0, True))


def test_an_alarm_is_sent_where_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[str] = []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("DOCTOR_NOTIFY", f"json://127.0.0.1:{server.server_address[1]}/")
    monkeypatch.setenv("DOCTOR_STATE", str(tmp_path / "state"))
    run = tmp_path / "run"
    run.mkdir()
    (run / "old.log").write_text("step 5000 loss 2.0\nstep 5001 loss nan\n")
    try:
        with job("wait()\nstep(1)\nstep(2, float('nan'))\nstay()", run), watching(run, "--only", "loss_nan") as watch:
            assert watch.first("loss_nan")["earlier"]  # which is not sent
            (run / "go").touch()
            until(lambda: got, "nothing was sent")
            assert watch.end() == 1
    finally:
        server.shutdown()
        server.server_close()
    assert "loss is nan" in json.dumps(json.loads(got[0]))
    assert "5001" not in got[0]
