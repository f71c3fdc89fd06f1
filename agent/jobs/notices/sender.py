"""The process that sends notices: `python -m traindoctor.agent.jobs.notices.sender FOLDER`. One is at work at a time.

A notice leaves the folder when each target has it, or after a day. A target hears at most one message a minute and
twelve an hour; what waits meanwhile is put together into one. What is sent is written down after it arrived, so a
sender that is killed between the two sends that one message again: at least once, never lost.

With `--check` or `--test` it reads URLs as JSON from standard input, and answers there which of them nothing can be
sent to, or what came of a message to each.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from .announce import KEPT, locked, log, read, replace, waiting
from .delivery import NotSent, NotTaken, deliver, service, shown
from .notice_words import counted, worded

FIRST, LONGEST = 5.0, 600.0  # seconds until a message is tried again, doubled each time
A_MINUTE, AN_HOUR = 60.0, 12
LIFE = KEPT + 3600.0
PAUSE = 5.0  # seconds between looks into the folder for what came meanwhile
TOGETHER = 12  # subjects told one by one in a message made of many


def main(arguments: list[str]) -> int:
    """Send what is in a folder, or answer about URLs."""
    if arguments[:1] in (["--check"], ["--test"]):
        urls = json.loads(sys.stdin.read())
        answer = _wrong(urls) if arguments == ["--check"] else _tested(urls)
        sys.stdout.write(json.dumps(answer))
        return 0
    folder = Path(arguments[0])
    os.nice(10)
    end = time.monotonic() + LIFE
    while time.monotonic() < end and waiting(folder):
        with locked(folder / "sender.lock", 0.0) as held:
            if not held:
                return 0  # whoever holds it looks once more after it let go
            try:
                _work(folder, end)
            except Exception as e:  # noqa: BLE001 - nobody reads what a process without a terminal says
                log(folder, f"stopped: {type(e).__name__} (a fault of doctor's)")
                return 1
    return 0


def _work(folder: Path, end: float) -> None:
    """Send until nothing waits."""
    _sweep(folder)
    while time.monotonic() < end and (paths := waiting(folder)):
        due = _round(folder, paths)
        if waiting(folder):
            time.sleep(min(max(due - time.time(), 0.2), PAUSE))


def _round(folder: Path, paths: list[Path]) -> float:
    """Try what is due. Returns when something will be due next (seconds since 1970)."""
    notices = {path: data for path in paths if (data := _sound(path)) is not None}
    soonest = time.time() + LONGEST
    tries = {url: how["tries"] for notice in notices.values() for url, how in notice["left"].items()}
    for url in sorted(tries, key=lambda url: tries[url]):  # whoever takes messages does not wait for who does not
        mine = {path: n for path, n in notices.items() if url in n["left"]}
        allowed = max(_allowed(folder, url), min(n["left"][url]["due"] for n in mine.values()))
        if allowed <= time.time():
            allowed = _send(folder, url, mine)
        soonest = min(soonest, allowed)
    return soonest


def _sound(path: Path) -> dict[str, Any] | None:
    """A notice that may still be sent, in words; what is damaged or a day old is taken away."""
    notice = read(path)
    try:
        made = float(notice["made"])
        left = {str(url): {"tries": int(how["tries"]), "due": float(how["due"])} for url, how in notice["left"].items()}
        if "facts" in notice:
            again = counted(int(notice["count"]), str(notice["since"]))
            notice |= worded(notice.pop("facts"), again)
            notice["report"] |= {"count": notice["count"]}
        if not all(isinstance(notice[key], str) for key in ("schema", "subject", "text")):
            raise TypeError
    except (TypeError, ValueError, KeyError, AttributeError):
        if path.exists():
            path.unlink(missing_ok=True)
            log(path.parent, "a notice could not be read")
        return None
    if left and abs(time.time() - made) < KEPT:
        return {**notice, "left": left}
    path.unlink(missing_ok=True)
    log(path.parent, "given up after a day")
    return None


def _send(folder: Path, url: str, mine: dict[Path, dict[str, Any]]) -> float:
    """Send a target all that waits for it, as one message, and write down what came of it.

    Returns when it may be sent something again.
    """
    tries = 1 + max(n["left"][url]["tries"] for n in mine.values())
    again = time.time() + A_MINUTE
    try:
        deliver(url, together(list(mine.values())))
        _count(folder, url)
        log(folder, f"sent to {shown(url)}: {len(mine)}")
        sent = True
    except NotTaken:
        log(folder, f"nothing can be sent to {shown(url)}: left out")
        sent = True
    except NotSent as e:
        again = time.time() + min(FIRST * 2 ** min(tries - 1, 20), LONGEST)
        log(folder, f"{shown(url)}: {e}; try {tries}")
        sent = False
    for path, notice in mine.items():
        if sent:
            del notice["left"][url]
        else:
            notice["left"][url] = {"tries": tries, "due": again}
        if notice["left"]:
            _keep(path, notice)
        else:
            path.unlink(missing_ok=True)
    return again


def _keep(path: Path, notice: dict[str, Any]) -> None:
    """Write down what is left of a notice; on a full disk it stays as it was, and may be sent twice."""
    try:
        if path.exists():  # not where it gave way to newer ones
            replace(path, notice)
    except OSError as e:
        log(path.parent, f"cannot be written down: {e.strerror}")


def together(notices: list[dict[str, Any]]) -> dict[str, Any]:
    """Several notices as one; a single one as it is."""
    if len(notices) == 1:
        return notices[0]
    lines = [f"- {n['subject']}" for n in notices[:TOGETHER]]
    if len(notices) > TOGETHER:
        lines.append(f"and {len(notices) - TOGETHER} more")
    newest = notices[-1]
    return {
        "schema": newest["schema"],
        "subject": f"doctor: {len(notices)} notices",
        "text": "\n".join(lines)[:1200],
        "report": {"notices": [n.get("report") for n in notices[:TOGETHER]]},
    }


def _allowed(folder: Path, url: str) -> float:
    """When a target may hear something again."""
    sent = _sent(folder).get(_name(url), [])
    within = [t for t in sent if time.time() - t < 3600]
    minute = within[-1] + A_MINUTE if within else 0.0
    return max(minute, within[-AN_HOUR] + 3600 if len(within) >= AN_HOUR else 0.0)


def _count(folder: Path, url: str) -> None:
    sent = {k: [t for t in times if time.time() - t < 3600] for k, times in _sent(folder).items()}
    sent = {k: times for k, times in sent.items() if times}
    sent[_name(url)] = [*sent.get(_name(url), []), time.time()][-AN_HOUR:]
    try:
        replace(folder / "sent.data", sent)
    except OSError as e:
        log(folder, f"cannot be written down: {e.strerror}")


def _sent(folder: Path) -> dict[str, list[float]]:
    """When each target heard something; times ahead of the clock, which was set back, do not count."""
    data = read(folder / "sent.data")
    if not isinstance(data, dict):
        return {}
    now = time.time()
    return {
        str(k): [t for t in times if isinstance(t, int | float) and t <= now]
        for k, times in data.items() if isinstance(times, list)
    }  # fmt: skip


def _name(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:24]


def _sweep(folder: Path) -> None:
    """Files that were half written when their process was killed."""
    for path in folder.glob(".*.json.*"):
        if time.time() - path.lstat().st_mtime > 3600:
            path.unlink(missing_ok=True)


def _wrong(urls: list[str]) -> list[int]:
    """Which of them nothing can be sent to."""
    wrong = []
    for number, url in enumerate(urls):
        try:
            service(url)
        except NotTaken:
            wrong.append(number)
    return wrong


def _tested(urls: list[str]) -> list[str]:
    """What came of a message to each; nothing where it arrived."""
    notice = {
        "schema": "traindoctor.notice/1", "subject": "doctor: a test of the notices",
        "text": "Someone asked doctor to send this. No job failed.", "report": {"test": True},
    }  # fmt: skip
    answers = []
    for url in urls:
        try:
            deliver(url, notice)
            answers.append("")
        except NotTaken:
            answers.append("nothing can be sent to it")
        except NotSent as e:
            answers.append(str(e))
    return answers


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
