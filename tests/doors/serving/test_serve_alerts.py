"""`doctor serve --alertmanager`, started as people start it and sent what Alertmanager sends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.doors.serving.servers import Serving, alert, message
from tests.jobs.notices.receivers import until, webhook

Doctor = Callable[..., subprocess.CompletedProcess[str]]
Begin = Callable[..., Serving]
TOKEN = "opensesame"
KEY = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def serving() -> Iterator[Begin]:
    begun: list[Serving] = []

    def begin(*options: object, **environment: str) -> Serving:
        begun.append(Serving(*options, **environment))
        return begun[-1]

    yield begin
    for one in begun:
        one.process.kill()
        one.process.wait(60)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name in ("exp 1", "exp 2", "exp 3"):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "train.log").write_text("step 1 loss 2.0\nModuleNotFoundError: No module named 'apex'\n")
    return tmp_path / "runs"


def child_of(process: int) -> int:
    """A triage that the server has at work and that has come to its own modules, stopped; 0 if there is none."""
    server = Path(f"/proc/{process}/cmdline").read_bytes()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            ours = int(entry.read_text().rpartition(")")[2].split()[1]) == process
            begun = entry.with_name("cmdline").read_bytes() != server  # before that it is a copy of the server
            if ours and begun and "pydantic_core" in entry.with_name("maps").read_text():
                os.kill(int(entry.parent.name), signal.SIGSTOP)
                return int(entry.parent.name)
    return 0


def gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_an_alert_is_triaged_once_whatever_becomes_of_the_server(runs: Path, serving: Begin, doctor: Doctor) -> None:
    """It is killed at work: its child goes too, the next server takes up the work, tells it, and hears it once."""
    options = ("--root", runs, "--map", "run_dir=exp_path")
    first = serving(*options)
    done = doctor("serve", "--alertmanager", "--port", "0", "--root", runs)
    assert done.returncode == 2 and "another `doctor serve`" in done.stderr
    for number, name in enumerate(
        ("exp 1", "exp 2", "exp 3"), 1
    ):  # a child that ended before we saw it is no test of this
        sent = message(alert(name, exp_path=str(runs / name)))
        assert first.send(sent) == 200 and until(lambda n=number: len(first.of("heard")) == n)
        child = until(lambda n=number: child_of(first.process.pid) or len(first.of("triaged")) == n, 90)
        if child is not True:
            break
    else:
        pytest.skip("each triage ended before it could be stopped")
    assert not (runs / name / "doctor-report.json").exists()
    first.process.kill()
    first.process.wait(60)
    try:
        assert until(lambda: gone(child), 60), "the child outlived its server"
    finally:
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
    (Path(os.environ["DOCTOR_STATE"]) / "serving" / ".alerts.half").write_text('{"half')
    with webhook() as hook:
        second = serving(*options, "--notify", f"http://127.0.0.1:{hook.port}/", DOCTOR_NOTIFY="none")
        assert until(lambda: second.of("triaged") or second.of("failed"), 120)
        assert [e["run"] for e in second.of("triaged")] == [str(runs / name)], second.events
        assert (runs / name / "doctor-report.json").is_file() and second.send(sent) == 200
        assert until(lambda: hook.heard, 90) and len(hook.heard) == 1
        assert second.of("triaged")[0]["cause"] in hook.heard[0]["subject"]
    assert 'doctor_alerts_total{kind="repeated"} 1' in second.get("/metrics")
    assert second.send(message(alert(name, status="resolved"))) == 200 and until(lambda: second.of("resolved"))
    assert second.end() == 0 and not second.of("heard")
    assert not list((Path(os.environ["DOCTOR_STATE"]) / "serving").glob(".alerts.*"))


def raw(port: int, data: bytes, family: int = socket.AF_INET6) -> socket.socket:
    """A connection that has said this much."""
    host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    one = socket.socket(family)
    one.settimeout(90)
    one.connect((host, port))
    with suppress(OSError):
        one.sendall(data)
    return one


def answered(one: socket.socket) -> bytes:
    """What it says until it ends the connection."""
    data = b""
    with one, suppress(ConnectionError):
        while piece := one.recv(65536):
            data += piece
    return data


def test_who_may_not_talk_and_who_talks_forever(runs: Path, tmp_path: Path, serving: Begin) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (runs / "link").symlink_to(outside)
    (runs / "file").write_text("x")
    server = serving("--root", runs, "--host", "::1", DOCTOR_SERVE_TOKEN=TOKEN)
    assert server.url.startswith("http://[::1]:") and server.send(message()) == 401
    assert server.send(message(), Authorization="Bearer wrong") == 401
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "[::1].evil.example:80"):
        assert server.send(message(), Host=host, **KEY) == 403
    assert server.send(message(), Origin="http://evil.example", **KEY) == 403
    assert server.send(message(), Content_Type="text/plain", **KEY) == 415
    assert server.send(message(), Content_Encoding="gzip", **KEY) == 415
    assert server.send(b"{" + b" " * (1 << 20) + b"}", **KEY) == 413
    assert server.send(message(), path="/../etc/passwd", **KEY) == 404

    head = (
        f"POST /alertmanager HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/json\r\n"
    ).encode()
    endless = raw(server.port, head + b"Transfer-Encoding: chunked\r\n\r\n" + b"10000\r\n" + b" " * 65536 + b"\r\n")
    with suppress(OSError):  # it goes on until somebody has enough
        for _ in range(64):
            endless.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
    held = [raw(server.port, head[:n]) for n in range(150)]
    slow = raw(server.port, head + b"Content-Length: 100\r\n\r\n{")
    try:
        assert server.send(message(alert("f0", run_dir=str(runs / "gone"))), **KEY) == 200
        assert b" 408 " in answered(slow)  # it said no more for as long as Alertmanager would
        assert answered(held[0]) == b""  # the oldest gave way
    finally:
        for one in (*held, endless, slow):
            one.close()

    named = [
        str(outside),
        str(runs / "link"),
        f"{runs}/../outside", "exp",
        str(runs / "file"),
        "/a\0b", f"{runs}/\ud800",
    ]  # fmt: skip
    named += [f"{runs}/" + "x" * 4000, "--help", "\x1b]0;title\x07"]
    for n, path in enumerate(named):
        assert server.send(message(alert(f"n{n}", run_dir=path)), **KEY) == 200
    assert (
        server.send(message(alert("j", slurm_job_id="1"), alert("k", other="1"), alert("l", run_dir="x" * 9999))) == 401
    )
    assert server.send(message(alert("j", slurm_job_id="1"), alert("k", other="1")), **KEY) == 200
    assert until(lambda: len(server.of("refused")) == len(named) + 3), server.events
    assert not server.of("heard") and "\x1b" not in str(server.events) and server.end() == 0


@pytest.mark.parametrize(("options", "said"), [
    ([], "doctor serve --alertmanager"),
    (["--alertmanager"], "--root DIR"),
    (["--alertmanager", "--root", ".", "--host", "0.0.0.0"], "only 127.0.0.1"),
    (["--alertmanager", "--root", "/no/such"], "no such folder"),
    (["--alertmanager", "--root", ".", "--map", "x"], "not of the form"),
    (["--alertmanager", "--root", ".", "--notify", "x"], "is not SCHEME"),
])  # fmt: skip
def test_wrong_usage_is_one_line(doctor: Doctor, options: list[str], said: str) -> None:
    done = doctor("serve", *options)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1
