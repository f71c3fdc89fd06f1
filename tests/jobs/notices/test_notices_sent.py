"""Notices arrive: by webhook and e-mail, after failures of the server, as one for one event, without secrets."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from traindoctor.agent.core.report import RunSummary
from traindoctor.agent.jobs.notices import announce as announcing
from traindoctor.agent.jobs.notices import delivery, notice_words
from traindoctor.agent.jobs.notices.announce import (
    KEPT,
    announce,
    announce_alarm,
    delivered,
    put,
    send_again,
    spool_folder,
    waiting,
)
from traindoctor.agent.jobs.notices.notice_words import LONGEST, counted, worded

from tests.jobs.notices.receivers import free_port, mailbox, until, webhook
from tests.sample import sample

KEY = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567"


def senders() -> list[int]:
    """Senders at work on this test's folder."""
    folder, found = str(spool_folder()).encode(), []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if folder in line.read_bytes().split(b"\0"):
                found.append(int(line.parent.name))
    return found


@pytest.fixture(autouse=True)
def _no_sender_stays() -> Iterator[None]:
    yield
    for path in waiting(spool_folder()):
        path.unlink(missing_ok=True)
    for pid in senders():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Senders that look and try again soon; the others are started as they are."""
    code = "import sys, traindoctor.agent.jobs.notices.sender as s; s.FIRST = s.PAUSE = 0.4; s.main(sys.argv[1:])"
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    monkeypatch.setattr(
        announcing, "_start_sender", lambda folder: subprocess.Popen([sys.executable, "-c", code, str(folder)], **quiet)
    )


def run_of(tmp_path: Path, name: str = "exp 42") -> Path:
    folder = tmp_path / name
    (folder / "doctor-run").mkdir(parents=True)
    (folder / "doctor-report.md").write_text("a report\n")
    (folder / "doctor-report.html").write_text("a report\n")
    return folder


def test_a_webhook_gets_the_verdict_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCTOR_REPORT_URL", "https://files.example/")
    run = run_of(tmp_path)
    with webhook() as hook:
        for _ in range(3):
            assert announce(sample(), run, [f"http://me:pw@127.0.0.1:{hook.port}/in?a=b&+X-Team=llm"]) == ""
        assert until(lambda: hook.heard) and until(lambda: not senders())
    assert len(hook.heard) == 1
    [said], [headers] = hook.heard, hook.headers
    assert said["schema"] == "traindoctor.notice/1"
    assert said["subject"] == "doctor: loss.fp16_overflow (confirmed, 87%) in exp 42"
    assert "First failure: rank 3, host n7, step 4012" in said["text"] and "logs/rank3.log:812" in said["text"]
    assert str(run / "doctor-report.md") in said["text"]
    assert said["text"].splitlines()[-1] == f"https://files.example{run}/doctor-report.html".replace(" ", "%20")
    assert said["report"]["cause"] == "loss.fp16_overflow" and headers["X-Team"] == "llm"
    assert headers["Authorization"].startswith("Basic ") and hook.paths == ["/in?a=b"]


def test_a_mail_is_sent_by_smtp(tmp_path: Path) -> None:
    with mailbox() as (port, mails):
        url = f"mailto://127.0.0.1:{port}?from=doctor@site.example&to=team@site.example&mode=insecure"
        assert announce(sample(), run_of(tmp_path, "exp\r\nBcc: all@site.example\r\n\r\nx"), [url]) == ""
        assert until(lambda: mails), (spool_folder() / "sender.log").read_text()
        assert delivered(20)
    assert mails[0]["Bcc"] is None and mails[0]["To"] == "team@site.example"
    subject = str(mails[0]["Subject"])
    assert "loss.fp16_overflow" in subject
    bodies = [str(p.get_payload(decode=True)) for p in mails[0].walk() if not p.is_multipart()]
    assert all("First failure" in b for b in bodies)
    assert not any(
        "<script>" in b for p, b in zip(mails[0].walk(), bodies, strict=False) if p.get_content_subtype() == "html"
    )


def test_a_server_that_fails_or_is_not_there_is_tried_again(tmp_path: Path, eager: None) -> None:
    port = free_port()
    with webhook(500) as hook:
        urls = [f"json://127.0.0.1:{hook.port}/", f"json://127.0.0.1:{port}/"]
        assert announce(sample(), run_of(tmp_path), urls) == ""
        assert until(
            lambda: (spool_folder() / "sender.log").exists() and "try 1" in (spool_folder() / "sender.log").read_text()
        )
        with webhook(port=port) as late:
            assert delivered(60) and len(hook.heard) == len(late.heard) == 1
    log = (spool_folder() / "sender.log").read_text()
    assert "HTTP 500; try 1" in log and "sent to" in log


def test_a_sender_that_is_killed_loses_nothing(tmp_path: Path, eager: None) -> None:
    port = free_port()
    assert announce(sample(), run_of(tmp_path), [f"json://127.0.0.1:{port}/"]) == ""
    assert until(lambda: (spool_folder() / "sender.log").exists())
    for pid in senders():
        os.kill(pid, signal.SIGKILL)
    assert until(lambda: not senders()) and len(waiting(spool_folder())) == 1
    with webhook(port=port) as hook:
        send_again()
        assert delivered(60) and len(hook.heard) == 1


def test_many_that_say_the_same_at_once_are_one_message(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    code = (
        "import os, sys; from pathlib import Path; from tests.sample import sample;"
        "from traindoctor.agent.jobs.notices.announce import announce\n"
        "for n in range(16):\n"
        "    if not os.fork():\n"
        "        os.environ['DOCTOR_STATE'] = sys.argv[3 + n % 2]\n"
        "        os._exit(bool(announce(sample(), Path(sys.argv[1]), [sys.argv[2]])))\n"
        "sys.exit(any([os.wait()[1] for _ in range(16)]))"
    )
    with webhook() as hook:
        url = f"json://127.0.0.1:{hook.port}/"
        # Each second one has a state of its own, as on another machine: they share the folder of the run alone.
        states = (os.environ["DOCTOR_STATE"], str(tmp_path / "other"))
        subprocess.run([sys.executable, "-c", code, str(run), url, *states], check=True, timeout=120)
        assert until(lambda: hook.heard) and delivered(30) and len(hook.heard) == 1


def test_a_job_that_fails_again_and_again_is_told_ever_more_seldom(tmp_path: Path) -> None:
    run, port = run_of(tmp_path), free_port()
    for n in range(1, 18):
        assert announce(sample(), run, [f"json://127.0.0.1:{port}/"], again=f"try_{n}") == ""
    kept = [json.loads(p.read_text()) for p in waiting(spool_folder())]
    assert [k["count"] for k in kept] == [1, 2, 4, 8, 16]
    notice = worded(notice_words.of_report(sample(), run), counted(2, "02:10"))
    assert notice["subject"].startswith("again, 2nd time since 02:10: doctor: loss.fp16")
    assert len(notice["subject"]) <= 80 and len(notice["text"]) <= 1200


def test_a_failure_that_is_diagnosed_twice_is_told_once(tmp_path: Path) -> None:
    """By the job's end and a hook, or by hand a week later; once its log went on, it is another failure."""
    run, log, port = tmp_path / "plain", tmp_path / "plain" / "logs" / "rank3.log", free_port()
    log.parent.mkdir(parents=True)
    log.write_text("it broke\n")
    report = sample(runs=[RunSummary(id="r1", root=str(run), state="died")])
    for _ in range(2):
        assert announce(report, run, [f"json://127.0.0.1:{port}/"]) == ""
    events = spool_folder() / "events.data"
    known = {k: e | {"last": e["last"] - 3_600} for k, e in json.loads(events.read_text()).items()}
    events.write_text(json.dumps(known))
    assert announce(report, run, [f"json://127.0.0.1:{port}/"]) == ""
    assert [e["count"] for e in json.loads(events.read_text()).values()] == [1]
    os.utime(log, (1, 4_000_000_000))
    assert announce(report, run, [f"json://127.0.0.1:{port}/"]) == ""
    assert [e["count"] for e in json.loads(events.read_text()).values()] == [2]
    (run / "doctor-run" / "try_1").mkdir(parents=True)  # under `doctor run` the attempt is what counts
    os.utime(log, (1, 4_100_000_000))
    assert announce(report, run, [f"json://127.0.0.1:{port}/"], again="try_1") == ""
    assert announce(report, run, [f"json://127.0.0.1:{port}/"]) == ""
    assert [e["count"] for e in json.loads(events.read_text()).values()] == [3]


def test_limits_of_a_day_and_an_hour_and_what_cannot_be_read(tmp_path: Path) -> None:
    """Real files as they would be by then: a notice a day old, twelve messages within the hour, and damage."""
    with webhook() as hook:
        url = f"json://127.0.0.1:{hook.port}/"
        now, folder = time.time(), spool_folder()
        sound = {"schema": "s", "subject": "new", "text": "t", "report": {}}
        left = {url: {"tries": 0, "due": 0.0}}
        put(folder, sound | {"subject": "old", "made": now - KEPT - 60, "left": left})
        for damaged in ({"left": {url: 3}, "made": now}, {"facts": 1, "made": now, "left": left}, [1], {"made": "x"}):
            put(folder, damaged)
        put(folder, sound | {"made": now, "left": left})
        hour = [now - 3598.0, *(now - 3000.0 + n for n in range(11))]
        (folder / "sent.data").write_text(json.dumps({hashlib.sha256(url.encode()).hexdigest()[:24]: hour}))
        send_again()
        assert until(lambda: hook.heard, 90)
        assert time.time() >= hour[0] + 3600  # the thirteenth message waited for the first to be an hour ago
        assert delivered(60)
    assert [n["subject"] for n in hook.heard] == ["new"]
    log = (folder / "sender.log").read_text()
    assert "given up after a day" in log and log.count("could not be read") == 4


def test_a_server_that_never_answers_is_left_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    notice = {"schema": "s", "subject": "s", "text": "t", "report": {}}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"json://127.0.0.1:{silent.getsockname()[1]}/"
        monkeypatch.setattr(delivery, "_CONNECT", 0.2)
        with pytest.raises(delivery.NotSent):
            delivery.deliver(url, notice)

    def drip() -> None:  # each byte in time, the whole never
        with suppress(OSError):
            one = dripping.accept()[0]
            while True:
                one.sendall(b"H" if one.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) else b"")
                time.sleep(0.02)

    monkeypatch.setattr(delivery, "_CONNECT", 60.0)
    monkeypatch.setattr(delivery, "SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as dripping:
        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        with pytest.raises(delivery.NotSent):
            delivery.deliver(f"json://127.0.0.1:{dripping.getsockname()[1]}/", notice)
        thread.join(30)


def test_what_comes_too_fast_is_put_together(tmp_path: Path, eager: None) -> None:
    with webhook() as hook:
        url = f"json://127.0.0.1:{hook.port}/"
        assert announce(sample(), run_of(tmp_path), [url]) == "" and until(lambda: hook.heard)
        assert until(lambda: not senders())
        for n in range(4):
            alarm = {"kind": "loss.nan", "text": f"rank {n} has no number", "rank": n, "file": "r.log", "line": 4}
            assert announce_alarm(alarm, str(tmp_path / "exp"), [url]) == ""
        assert until(lambda: len(waiting(spool_folder())) == 4) and len(hook.heard) == 1
        stamps = spool_folder() / "sent.data"
        stamps.write_text(json.dumps({k: [t - 60 for t in v] for k, v in json.loads(stamps.read_text()).items()}))
        assert delivered(60) and len(hook.heard) == 2
    assert hook.heard[1]["subject"] == "doctor: 4 notices" and len(hook.heard[1]["report"]["notices"]) == 4


def test_no_secret_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = sample()
    report.evidence[0].text = f"token={KEY} @channel see https://evil.example/x <!here> <!channel> [x](http://y)"
    # Text that shrinks when it is cleaned must not bring half a secret into what is shown.
    report.evidence[1].text = "start" + " " * (LONGEST - 20) + f"token={KEY}"
    monkeypatch.setenv("DOCTOR_REPORT_URL", "https://files.example")
    with webhook() as hook:
        run = run_of(tmp_path, f"exp\nSubject: x\udcff <@U1> {KEY}")
        assert announce(report, run, [f"json://u:topsecretpw@127.0.0.1:{hook.port}/"]) == ""
        assert until(lambda: hook.heard) and delivered(30)
    whole = json.dumps(hook.heard)
    assert "hf_" not in whole and hook.heard[0]["report"]["link"] is None
    assert "\n" not in hook.heard[0]["subject"] and "<!" not in whole and "<@" not in whole
    assert "](http" not in whole and "<SECRET:" in whole and "@channel" not in whole
    assert "https://evil" not in whole and "topsecretpw" not in (spool_folder() / "sender.log").read_text()
    assert not spool_folder().stat().st_mode & 0o077


def test_where_nothing_can_be_kept_the_caller_is_told_in_one_line(tmp_path: Path) -> None:
    (spool_folder() / "events.lock").mkdir()
    said = announce(sample(), run_of(tmp_path), ["json://127.0.0.1:9/"])
    assert said.startswith("notices: ") and "\n" not in said and announce(sample(), tmp_path, []) == ""
