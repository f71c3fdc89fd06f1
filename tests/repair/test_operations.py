"""Commands with the names and paths of a run filled in: only what is known and safe, each as one word of a shell."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.playbook import causes, playbooks
from traindoctor.agent.core.report import ReportFix
from traindoctor.agent.core.shell import Completed
from traindoctor.agent.core.types import Evidence
from traindoctor.agent.reading.machine.host_state import facts as host_facts
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.repair.operations import BLANK, Scene, fill, filled, names, operations, table
from traindoctor.agent.tools.data.dataset_tools import check_data_files
from traindoctor.agent.tools.tool import all_tools
from traindoctor.agent.tools.weights.checkpoint_tools import verify_checkpoint
from traindoctor.agent.verdict.predicates import Facts

from tests.reading.checkpoints.makers import copy

XID = "NVRM: Xid (PCI:0000:8b:00): 79, pid=4242, GPU has fallen off the bus."


def lost(host: str | None = "n12", text: str = XID) -> Evidence:
    return Evidence(key="gpu.xid_culprit", value=79, file="dmesg.n12", line=3, text=text, host=host, id="E1")


def commands(fix: str, *evidence: Evidence, scene: Scene | None = None) -> list[str]:
    proof = list(evidence)
    return filled(ReportFix(title="t", commands=[fix]), proof, Facts.of(proof), scene).commands


def following(cause: str, *evidence: Evidence, scene: Scene | None = None, said: tuple[str, ...] = ()) -> list[str]:
    found = operations(cause, list(evidence), Facts.of(evidence), scene, said)
    return [c for fix in found for c in fix.commands]


def test_what_the_evidence_knows_is_filled_in() -> None:
    drain = 'scontrol update nodename=<node> state=drain reason="GPU lost"'
    assert commands(drain, lost()) == ['scontrol update nodename=n12 state=drain reason="GPU lost"']
    assert commands("sudo nvidia-smi --gpu-reset -i <index>", lost()) == ["sudo nvidia-smi --gpu-reset -i 0000:8b:00.0"]
    held = Evidence(key="gpu.other_process", value="4711 python 30211 MiB", kind="command", id="E2")
    assert commands("ps -o cmd -p <pid>", held) == ["ps -o cmd -p 4711"]
    full = Evidence(key="host.disk_full", value="/data 100%", file="df.txt", line=2, id="E3")
    assert commands("df -h <folder>; df -i <folder>", full) == ["df -h /data; df -i /data"]
    ended = Evidence(key="slurm.state", value="FAILED", file="log", line=9, text="slurmstepd: *** JOB 815 ON n1 ***")
    assert commands("sacct -j <job> -o State", ended) == ["sacct -j 815 -o State"]
    hub = Evidence(key="error.first", text="403 for url: https://huggingface.co/org/m-7b/resolve/main/config.json")
    assert commands("hf download <repo> --local-dir <dir>", hub) == ["hf download org/m-7b --local-dir <dir>"]
    assert commands("hf download --repo-type dataset <dataset>", hub) == ["hf download --repo-type dataset <dataset>"]
    assert commands("doctor tool list-checkpoints <run>", lost(), scene=Scene({"r1": "/runs/a b"})) == [
        "doctor tool list-checkpoints '/runs/a b'"
    ]


def test_beside_a_healthy_run_paths_are_those_of_the_one_that_failed() -> None:
    both = Scene({"r1": "/runs/bad", "r2": "/runs/good"})
    assert commands("doctor tool list-checkpoints <run>", lost(), scene=both) == [
        "doctor tool list-checkpoints /runs/bad"
    ]
    assert commands("doctor tool list-checkpoints <run>", scene=both) == ["doctor tool list-checkpoints <run>"]
    e = Evidence(key="checkpoint.truncated", kind="binary", file="r1/checkpoint-4/optimizer.pt", member="m", id="E1")
    assert commands("ls -l <checkpoint>", e, scene=both) == ["ls -l /runs/bad/checkpoint-4"]


def test_what_is_not_surely_one_stays_open() -> None:
    other = replace(lost("n3"), text=XID.replace("8b", "0a"), id="E2")
    assert commands("nvidia-smi -i <index>", lost(), other) == ["nvidia-smi -i <index>"]
    assert commands("kubectl describe node <node>", replace(lost(), kind="absent")) == ["kubectl describe node <node>"]
    asked = replace(lost(), key="error.first")  # a peer that only reports it
    assert commands("kubectl describe node <node>", asked) == ["kubectl describe node <node>"]
    assert commands("ping <peer>", lost()) == ["ping <peer>"]


def test_several_nodes() -> None:
    two = Scene(nodes=["n3", "n12"])
    assert commands("sbatch --exclude=<node> ...", scene=two) == ["sbatch --exclude=n3,n12 ..."]
    assert commands("kubectl cordon <node>", scene=two) == ["kubectl cordon n3", "kubectl cordon n12"]
    assert commands("kubectl cordon <node>", lost(), scene=Scene(nodes=[])) == ["kubectl cordon <node>"]


@pytest.mark.parametrize("name", ["n1;reboot", "$(id)", "-rf", "n1\nn2", "a b", "n1'", "", "n" * 80, "n1-"])
def test_no_free_text_becomes_a_node(name: str) -> None:
    assert commands("kubectl cordon <node>", lost(name)) == ["kubectl cordon <node>"]
    assert commands("kubectl cordon <node>", scene=Scene(nodes=[name])) == ["kubectl cordon <node>"]


TEXT = st.text(st.sampled_from("abZ09 /.-_:'\"`$();&|<>\\\n\x1b*~#!{}\u202eé"), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None)
@given(TEXT)
def test_whatever_a_path_holds_it_is_one_word(name: str) -> None:
    """As bash itself takes the command apart; within quotes a path that is not plain is left out."""
    name = name.strip("/") or "x"
    for template, words in (("f <run>", 1), ("f -o <run>.kept", 2), ("f 'x<run>'", 1), ('f "<run>"', 1)):
        [command] = fill(template, {"run": [f"/r/{name}"]})
        assert command.isprintable() or "é" in command
        argv = subprocess.run(
            ["bash", "-c", f"f() {{ printf '%s\\0' \"$@\"; }}; {command}"], capture_output=True, check=True
        )
        found = argv.stdout.decode().split("\0")[:-1]
        assert len(found) == words
        assert found[-1] in (f"/r/{name}", f"/r/{name}.kept", f"x/r/{name}", "x<run>", "<run>")


@given(
    st.text(max_size=60),
    st.sampled_from(["gpu.xid", "gpu.other_process", "host.disk_full", "slurm.state", "error.first"]),
)
def test_no_text_of_a_log_reaches_a_shell_but_by_a_strict_pattern(text: str, key: str) -> None:
    e = Evidence(key=key, value=text, text=text, file="log", line=1, host=text[:20])
    known = names([e], Facts.of([e]), Scene())
    for values in known.values():
        assert all(re.fullmatch(r"[A-Za-z0-9/][\w./:@%+=-]*", v, re.ASCII) for v in values)


def test_every_placeholder_of_a_playbook_is_one_word() -> None:
    odd = re.compile(r"<(?!<)[^<>|&;\n'\"]*[A-Za-z][^<>|&;\n'\"]*>")
    wrong = [
        (p.slug, m[0])
        for p in playbooks() for f in p.fixes for c in f.commands for m in odd.finditer(c)
        if not BLANK.fullmatch(m[0]) and not m[0].endswith(".whl>")
    ]  # fmt: skip
    assert not wrong


def test_the_table_names_what_exists() -> None:
    emitted = list(all_tools().values())
    rows = [*table()["operations"], *(s for sources in table()["names"].values() for s in sources)]
    keys = [k for row in rows for k in row.get("keys", [])] + [k for group in table()["trouble"] for k in group]
    for key in [*keys, *table()["records"], *table()["not_bad"]]:
        family = key.removesuffix("*")
        assert any(t.allows(key) for t in emitted) or any(e.startswith(family) for t in emitted for e in t.emits), key
    for row in table()["operations"]:
        for pattern in row.get("causes", ["*"]):
            assert any(fnmatch.fnmatchcase(c, pattern) for c in causes()), pattern


def test_a_node_is_kept_off_as_its_scheduler_does_it() -> None:
    slurm = Evidence(key="slurm.state", value="NODE_FAIL", file="log", line=1, text="slurmstepd: error: *** JOB 815")
    pod = Evidence(
        key="error.first", value="x", file="log", line=1, text="kubelet: Back-off restarting failed container"
    )
    drain = ['scontrol update nodename=n12 state=drain reason="hw.gpu_fell_off_bus"', "sbatch --exclude=n12 ..."]
    assert following("hw.gpu_fell_off_bus", lost(), slurm) == drain
    assert following("hw.gpu_fell_off_bus", lost(), pod) == ["kubectl cordon n12"]
    assert following("hw.gpu_fell_off_bus", lost()) == [
        "doctor salvage hostfile <hostfile> --without n12 -o <new-hostfile>"
    ]
    assert following("loss.lr_too_high", lost(), slurm) == []
    assert following("hw.gpu_fell_off_bus", lost(None), slurm) == []
    said = ('scontrol update  nodename=n12 state=drain reason="GPU lost"',)
    assert following("hw.gpu_fell_off_bus", lost(), slurm, said=said) == ["sbatch --exclude=n12 ..."]


def probed(*lines: dict) -> list[Evidence]:
    done = Completed(["probe"], 0, "".join(json.dumps(line) + "\n" for line in lines), "")
    return [Evidence(key=f"host.{k}", value=v, kind="command", text=line.text) for k, v, line in host_facts(done)]


def test_leftovers_of_an_earlier_job() -> None:
    segments = [
        {"path": "/dev/shm/psm_a1", "bytes": 1 << 27, "age": 9},
        {"path": "/dev/shm/x; rm -rf ~", "bytes": 5, "age": 9},
    ]
    left = probed(
        {"fact": "shared_memory", "files": 2, "bytes": 1 << 27, "left": 2, "left_bytes": 1 << 27, "owner": "u",
         "segments": segments},
        {"fact": "zombie", "pid": 77, "name": "pt_worker", "parent": 70, "parent_name": "python"},
        {"fact": "zombie", "pid": 78, "name": "x", "parent": 1, "parent_name": "init"},
    )  # fmt: skip
    found = following("data.loader_crash", *left)
    assert found == [
        "ps -o user,pid,ppid,stat,etime,cmd -p 77,70", "kill 70", "fuser -v /dev/shm/psm_a1", "rm -- /dev/shm/psm_a1",
    ]  # fmt: skip
    assert following("loss.overfitting", *left) == []
    held = [
        Evidence(key="gpu.other_process", value=v, kind="command") for v in ("4711 python 99 MiB", "4712 python 5 MiB")
    ]
    assert following("memory.other_process", *held)[:2] == [
        "ps -o user,pid,ppid,etime,cmd -p 4711", "ps -o user,pid,ppid,etime,cmd -p 4712",
    ]  # fmt: skip


def numbered(evidence: list[Evidence]) -> list[Evidence]:
    return [e.with_(id=f"E{n}") for n, e in enumerate(evidence, 1)]


def test_a_damaged_checkpoint_leads_to_a_command_that_works(tmp_path: Path, doctor) -> None:
    run = copy("megatron", tmp_path / "my runs")
    weights = run / "iter_0000004" / "mp_rank_01" / "model_optim_rng.pt"
    os.truncate(weights, weights.stat().st_size // 2)
    evidence = numbered(verify_checkpoint(Workspace([tmp_path / "my runs"], live=False)).evidence)
    proof = [e for e in evidence if e.key == "checkpoint.truncated"]
    assert proof
    [fix] = operations("ckpt.truncated", proof, Facts.of(evidence), Scene({"r1": str(tmp_path / "my runs")}))
    [command] = fix.commands
    assert command == f"doctor salvage rollback '{run}' -o '{run}'-rollback"
    done = doctor(*shlex.split(command)[1:])
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "my runs" / "megatron-rollback" / "latest_checkpointed_iteration.txt").read_text() == "2"
    assert subprocess.run(["bash", "-c", fix.verify], check=False, capture_output=True).returncode == 0


def test_before_the_first_trouble_of_the_curves(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    held = numbered(verify_checkpoint(Workspace([run], live=False)).evidence)
    nan = Evidence(key="loss.first_nan_step", value=3, step=3, file="log", line=1, id="E90")
    spike = Evidence(key="loss.spike_step", value=1, step=1, file="log", line=1, id="E91")
    found = following("loss.gradient_explosion", nan, spike, *held, scene=Scene({"r1": str(run)}))
    assert found == [f"doctor salvage rollback {run} -o {run}-rollback --before 3"]
    assert following("loss.gradient_explosion", *held, scene=Scene({"r1": str(run)})) == []


def test_bad_records_lead_to_a_command(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"text": "words"}\n{"text": ""}\n')
    ws = Workspace([tmp_path], live=False)
    assert check_data_files(ws).evidence
    bad = Evidence(key="sample.empty", value="text", file="train.jsonl", line=2, id="E1")
    scene = Scene({"r1": str(tmp_path)}, session="20261122-101010-abcdef")
    [command] = following("loss.bad_batch", bad, scene=scene)
    new = tmp_path / "train-kept.jsonl"
    assert command == (
        f"doctor salvage exclude-samples {tmp_path}/train.jsonl -o {new} --from-report 20261122-101010-abcdef"
    )
    assert following("data.empty_samples", replace(bad, key="data.empty_fields"), scene=scene) == [command]
    outlier = replace(bad, key="sample.loss_outlier")
    assert following("loss.bad_batch", outlier, scene=scene) == []
    assert following("loss.bad_batch", bad, replace(bad, file="other.jsonl"), scene=scene) == []
    assert (
        "train.parquet-excluded.json"
        in following("data.empty_samples", replace(bad, file="train.parquet"), scene=scene)[0]
    )


def test_a_damaged_download_is_named_a_save_of_the_run_is_not(tmp_path: Path) -> None:
    scene = Scene({"r1": str(tmp_path)})
    e = Evidence(
        key="checkpoint.truncated", value="x", kind="binary", file="hub/model.safetensors", member="m", id="E1"
    )
    assert following("ckpt.truncated", e, scene=scene) == [
        f"doctor salvage refetch {tmp_path}/hub/model.safetensors --run {tmp_path}"
    ]
    assert following("ckpt.truncated", replace(e, file="checkpoint-4/model.safetensors"), scene=scene) == []
