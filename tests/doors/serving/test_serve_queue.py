"""The queue of triages and the list of what was heard: their ends, limits, and what is looked at again."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from traindoctor.agent.doors.serving.alert_server import Server
from traindoctor.agent.doors.serving.alerts import HEARD_MOST, Heard, Malformed, Places, alerts_of
from traindoctor.agent.doors.serving.triages import WAITING, Triages

from tests.doors.serving.servers import alert, message
from tests.sample import sample

FOREVER = "import os, sys, time; open(sys.argv[3] + '/pid', 'w').write(str(os.getpid())); time.sleep(600)"


class Told(list[dict[str, Any]]):
    def of(self, kind: str) -> list[dict[str, Any]]:
        return [e for e in self if e["event"] == kind]


async def worked(triages: Triages, told: Told, count: int) -> None:
    """Let it work until so many triages ended."""
    worker = asyncio.create_task(triages.work())
    async with asyncio.timeout(120):
        while sum(triages.counts.values()) < count:
            await asyncio.sleep(0.02)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


def test_a_full_queue_asks_to_send_again_and_loses_nothing(tmp_path: Path) -> None:
    from aiohttp.test_utils import TestClient, TestServer

    told, heard, places = Told(), Heard(tmp_path / "state"), Places([tmp_path.resolve()])
    triages = Triages(places, heard, told.append, [])
    sent = []
    for n in range(WAITING + 2):
        (tmp_path / f"r{n}").mkdir()
        sent.append(alert(f"f{n}", run_dir=str(tmp_path / f"r{n}")))
    sent.append(alert("again", run_dir=str(tmp_path / "r0")))  # a run that waits already needs no place

    async def send() -> list[int]:
        app = Server(places, heard, triages, told.append, "").application()
        async with TestClient(TestServer(app)) as client:
            many = [alert(f"m{n}", other="x", alertname="\x1b[31m" * 9) for n in range(2_000)]
            answers = [await client.post("/alertmanager", json=m) for m in (message(*sent), message(*many))]
            began = time.monotonic()
            answers.append(await client.post("/alertmanager", json=message(*many[:1000])))
            assert time.monotonic() - began < 60
            return [a.status for a in answers]

    try:
        assert asyncio.run(send()) == [503, 400, 200] and triages.waiting == WAITING
        assert [e["run"] for e in told.of("turned away")] == [str(tmp_path / f"r{n}") for n in (WAITING, WAITING + 1)]
        assert len(json.loads((tmp_path / "state" / "alerts.data").read_text())) == WAITING + 1 + 1_000
    finally:
        heard.close()


def test_a_triage_that_takes_too_long_is_ended_and_the_next_one_runs(tmp_path: Path) -> None:
    told, heard, places = Told(), Heard(tmp_path / "state"), Places([tmp_path.resolve()])
    first, second = tmp_path / "slow", tmp_path / "next"
    for folder in (first, second):
        folder.mkdir()
    report = f"print({sample().to_json()!r})"
    program = f"import sys\nif sys.argv[3].endswith('slow'): exec({FOREVER!r})\n{report}"
    triages = Triages(places, heard, told.append, [], program=program, seconds=3.0)
    for folder in (first, second):
        triages.add(folder.name, [str(folder)])
    try:
        asyncio.run(worked(triages, told, 2))
    finally:
        heard.close()
    assert told.of("failed")[0]["why"] == "no report after 3 s" and told.of("triaged")[0]["run"] == str(second)
    if (first / "pid").exists():
        assert not Path(f"/proc/{(first / 'pid').read_text()}").exists()


def test_a_run_is_looked_at_again_before_it_is_triaged(tmp_path: Path) -> None:
    """Between an alert and its triage a folder may vanish or lead elsewhere, and a new server has roots of its own."""
    runs, state, told = tmp_path / "runs", tmp_path / "state", Told()
    for name in ("vanishes", "turns"):
        (runs / name).mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    heard, places = Heard(state), Places([runs.resolve()], slurm=True)
    triages = Triages(places, heard, told.append, [], program="raise SystemExit('started')")
    for name in ("vanishes", "turns"):
        [alert_] = alerts_of(json.dumps(message(alert(name, run_dir=str(runs / name)))).encode())
        triages.add(name, places.of(alert_))
    triages.add("job", ["--slurm", "7"])
    heard.save()
    heard.close()
    heard = Heard(state)
    shutil.rmtree(runs / "vanishes")
    (runs / "turns").rmdir()
    (runs / "turns").symlink_to(tmp_path / "elsewhere")
    triages = Triages(Places([runs.resolve()]), heard, told.append, [], program="raise SystemExit('started')")
    for key, run in heard.waiting():
        triages.add(key, run)
    try:
        asyncio.run(worked(triages, told, 3))
    finally:
        heard.close()
    assert [e["why"] for e in told.of("failed")] == ["it may not be looked at any more"] * 3


def test_what_was_heard_survives_damage_and_forgets_the_oldest(tmp_path: Path) -> None:
    for broken in ("", '{"a": {"state": "done"', "[1]", '{"a": 1, "b": {"state": 1, "at": "x", "run": 0}}', "[" * 9999):
        (tmp_path / "alerts.data").write_text(broken)
        Heard(tmp_path).close()
    heard = Heard(tmp_path)
    heard.keep("waits", "waiting", ["/r"])
    for n in range(HEARD_MOST + 9):
        heard.keep(f"k{n}", "done")
    heard.save()
    heard.close()
    heard = Heard(tmp_path)
    assert heard.waiting() == [("waits", ["/r"])] and not heard.knows("k0")
    assert heard.knows(f"k{HEARD_MOST + 8}")
    heard.close()
    assert not (tmp_path / "alerts.data").stat().st_mode & 0o077


@pytest.mark.parametrize("value", [None, 7, [], {}, "", "x", [[]], {"a": {"b": []}}, True, 1e308])
def test_wrong_types_anywhere_are_told_and_nothing_breaks(value: Any) -> None:
    sound = message(alert())
    places = [("version",), ("alerts",), ("alerts", 0)]
    places += [("alerts", 0, k) for k in ("status", "labels", "annotations", "startsAt", "fingerprint", "endsAt")]
    places += [("alerts", 0, "labels", "alertname"), ("groupLabels",), ("truncatedAlerts",)]
    for place in places:
        data = json.loads(json.dumps(sound))
        inner = data
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
        try:
            alerts_of(json.dumps(data).encode())
        except Malformed as e:
            assert "\n" not in str(e)
    for whole in (value, [value], {"version": "4", "alerts": [value] * 3}):
        with pytest.raises(Malformed):
            alerts_of(json.dumps(whole).encode())


def test_a_long_description_costs_no_alert() -> None:
    [heard] = alerts_of(json.dumps(message({**alert(), "annotations": {"description": "x" * 9_000}})).encode())
    assert heard.name == "TrainingStopped" and "description" not in heard.said and os.sep not in heard.key
