"""Jobs as Slurm accounts for them: output recorded from a real cluster, and a real cluster where one is up.

To have one: any slurmctld with accounting that `sinfo` reaches; without it the last tests are skipped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.errors import ToolError
from traindoctor.agent.core.shell import Recorded
from traindoctor.agent.reading.machine.slurm_accounts import Row, json_rows, rows, seconds, size_bytes, verdicts
from traindoctor.agent.reading.run.files import Line
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.machine.job_tools import FIELDS, slurm_job

from tests.tools.captured import Seen, look

REAL = Path(__file__).parent / "machine"
SACCT, JOBS, NODE, JSON = (
    (REAL / n).read_text() for n in ("sacct.txt", "scontrol_jobs.txt", "scontrol_node.txt", "sacct.json")
)


def of_job(found: list[Row], job: str) -> dict[str, object]:
    return {v.key: v.value for v in verdicts([r for r in found if r.kind == "node" or r.job == job])}


def lines(text: str) -> list[Line]:
    return [Line(i + 1, 0, t.encode()) for i, t in enumerate(text.split("\n"))]


TEXT, DATA = list(rows(lines(SACCT))), json_rows(JSON)


@pytest.mark.parametrize(
    ("job", "key", "value"),
    [
        ("1", "state", "COMPLETED"), ("2", "failed", "FAILED"), ("3", "out_of_memory", 1.206), ("3", "signal", 9),
        ("4", "time_limit", "TIMEOUT"), ("4", "time_share", 1.283), ("5", "state", "CANCELLED"), ("7", "node_fail", "NODE_FAIL"),
    ],
)  # fmt: skip
def test_real_jobs_in_text_and_json(job: str, key: str, value: object) -> None:
    assert of_job(TEXT, job)[key] == value and of_job(DATA, job)[key] == value


ARRAY = """JobID|State|ExitCode|ReqMem|MaxRSS|TimelimitRaw
8_0|FAILED|1:0|4G||60
8_0.batch|FAILED|1:0||1G|
8_1|COMPLETED|0:0|4G||60
8_1.batch|COMPLETED|0:0||3G|
9|NODE_FAIL|1:0|4G||60
9.batch|CANCELLED|0:15||2G|
9|COMPLETED|0:0|4G||60
9.batch|COMPLETED|0:0||1G|
"""


def test_a_task_of_an_array_and_an_attempt_have_steps_of_their_own() -> None:
    found = list(verdicts(list(rows(lines(ARRAY)))))
    rss = [(v.row.id, v.value >> 30) for v in found if v.key == "max_rss_bytes"]
    assert rss == [("8_0.batch", 1), ("8_1.batch", 3), ("9.batch", 2), ("9.batch", 1)]
    assert [v.value for v in found if v.key == "signal"] == [15], "the second attempt was not killed"


@pytest.mark.parametrize(
    ("state", "bad"),
    [
        ("IDLE", False), ("IDLE+CLOUD", False), ("MIXED+PLANNED", False), ("ALLOCATED", False), ("IDLE~", False), ("", False),
        ("IDLE*", True), ("IDLE+DRAIN", True), ("DOWN*", True), ("IDLE+DRAIN*", True), ("DOWN+NOT_RESPONDING", True),
    ],
)  # fmt: skip
def test_states_of_nodes(state: str, bad: bool) -> None:
    row = Row("node", "n1", {"state": state}, Line(1, 0, f"NodeName=n1 State={state}".encode()))
    assert [v.key for v in verdicts([row])] == (["node_state"] if bad else [])


def test_a_count_of_restarts_that_is_none_is_passed() -> None:
    row = Row("job", "5", {"jobstate": "RUNNING", "restarts": "N/A"}, Line(1, 0, b"JobId=5 Restarts=N/A"))
    assert not [v for v in verdicts([row]) if v.key == "requeued"]


def test_recorded_text(tmp_path: Path) -> None:
    seen = look(slurm_job, tmp_path, sacct_txt=SACCT, node_txt=NODE, scontrol_txt=JOBS)
    assert seen.result.outcome == "finding"
    assert 1.206 in seen.values("slurm.out_of_memory")
    assert seen.values("slurm.node_reason") == ["vm: gpu 3: Xid 79 [root@2026-11-20T17:21:27]"]
    assert seen.one("slurm.node_state") == "vm IDLE+DRAIN" and seen.lines("slurm.node_state")[0].startswith("   State=")
    assert "0" in seen.values("slurm.cancelled_by")


def test_recorded_json(tmp_path: Path) -> None:
    seen = look(slurm_job, tmp_path, sacct_json=JSON)
    oom = seen.of("slurm.out_of_memory")[0]
    assert (
        oom.kind == "binary"
        and oom.member == "jobs[2].steps[1]"
        and "74068K" not in oom.text
        and "75845632" in oom.text
    )


def test_only_the_jobs_that_the_run_names(tmp_path: Path) -> None:
    (tmp_path / "slurm-4.out").write_text("step 1 loss 2\n")
    seen = look(slurm_job, tmp_path, sacct_txt=SACCT)
    assert seen.values("slurm.state") == ["TIMEOUT"]


def test_the_plain_table_and_newer_versions(tmp_path: Path) -> None:
    text = (
        "$ sacct -j 77\nJobID           JobName      State ExitCode     MaxRSS     ReqMem \n"
        "------------ ---------- ---------- -------- ---------- ---------- \n"
        "77                train OUT_OF_ME+    0:125                   4Gn \n"
        "77.0             python OUT_OF_ME+    0:125   4192000K            \n"
    )
    seen = look(slurm_job, tmp_path, accounts_txt=text)
    assert seen.told("slurm.exit")[0] == "0:125" and seen.told("slurm.memory_share") == ["0.999"]
    newer = {"jobs": [{"job_id": 5, "state": {"current": ["TIMEOUT"]}, "time": {"elapsed": 60, "limit": {"set": True, "infinite": False, "number": 1}},
                       "exit_code": {"return_code": {"set": True, "infinite": False, "number": 1}, "signal": {"id": {"set": True, "number": 15}}}}]}  # fmt: skip
    assert of_job(json_rows(json.dumps(newer)), "5") == {
        "state": "TIMEOUT", "exit": "1:15", "time_limit": "TIMEOUT", "signal": 15, "time_share": 1.0,
    }  # fmt: skip


def test_requeues_and_sizes() -> None:
    twice = lines("JobID|State|Start\n9|REQUEUED|2026-01-01T00:00:00\n9|COMPLETED|2026-01-01T01:00:00\n")
    assert of_job(list(rows(twice)), "9")["requeued"] == 1
    assert size_bytes("2Gc") is None and size_bytes("1.5K") == 1536
    assert seconds("1-02:03:04") == 93784 and seconds("UNLIMITED") is None


@pytest.mark.parametrize("text", ["step 1 of JobID 7", "JobID|State\nnonsense|FAILED\n", "| 4 | FAILED |"])
def test_other_text_says_nothing(text: str, tmp_path: Path) -> None:
    assert look(slurm_job, tmp_path, train_log=text + "\n").result.outcome == "not_applicable"


def test_without_slurm(tmp_path: Path) -> None:
    (tmp_path / "slurm-12.out").write_text("step 1 loss 2\n")
    (tmp_path / "shell.json").write_text("[]")
    shell = Recorded(tmp_path / "none.json")
    result = slurm_job(Workspace([tmp_path], live=True, shell=shell))
    assert result.outcome == "failed" and "not recorded" in result.summary
    with pytest.raises(ToolError, match="no Slurm job id"):
        slurm_job(Workspace([tmp_path], live=True, shell=shell), job="1;rm")


def test_a_recorded_cluster(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "slurm-3.out").write_text("slurmstepd: error: Exceeded job memory limit\n")
    answers = [
        {"argv": ["sacct", "-P", "-D", "-j", "3", "-o", FIELDS], "code": 0, "stdout": SACCT},
        {"argv": ["scontrol", "show", "node", "vm"], "code": 0, "stdout": NODE},
    ]
    (tmp_path / "shell.json").write_text(json.dumps(answers))
    ws = Workspace([tmp_path / "run"], live=True, shell=Recorded(tmp_path / "shell.json"))
    seen = Seen(slurm_job(ws), tmp_path)
    assert 1.206 in seen.values("slurm.out_of_memory") and seen.values("slurm.node_reason")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text(max_size=60) | st.sampled_from((SACCT + NODE + JOBS).splitlines()), max_size=20))
def test_any_mixture_of_lines(texts: list[str]) -> None:
    list(verdicts(list(rows(lines("\n".join(texts))))))
    json_rows("\n".join(texts))


def cluster() -> bool:
    if shutil.which("sbatch") is None or shutil.which("sinfo") is None:
        return False
    try:
        return subprocess.run(["sinfo", "-h"], capture_output=True, timeout=5, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


@pytest.mark.skipif(not cluster(), reason="no Slurm cluster is up")
@pytest.mark.parametrize(
    ("script", "end", "key", "value"),
    [
        ("python3 -c \"raise SystemExit(3)\"", "", "slurm.exit", "3:0"),
        ("sleep 60", "scancel", "slurm.state", "CANCELLED"),
        ("echo done", "", "slurm.state", "COMPLETED"),
        ("srun python3 -c 'import time; x = [bytearray(20 << 20) for _ in range(20)]; time.sleep(20)'", "", "slurm.signal", "9"),
    ],
)  # fmt: skip
def test_a_real_job(script: str, end: str, key: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(f"#!/bin/bash\n#SBATCH --mem=60M -c1\n{script}\n")
    said = subprocess.run(["sbatch", "--parsable", "job.sh"], cwd=tmp_path, capture_output=True, text=True, check=True)
    job = said.stdout.strip()
    if end:
        time.sleep(2)
        subprocess.run([end, job], check=True)
    for _ in range(60):
        seen = Seen(slurm_job(Workspace([tmp_path], live=True), job=job), tmp_path)
        if not {"PENDING", "RUNNING"} & set(seen.values("slurm.state")) and seen.told(key):
            break
        time.sleep(1)
    assert value in seen.told(key), seen.result.text
