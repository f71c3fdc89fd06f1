"""Questions that ask for no diagnosis: knowledge, a fit, a preflight."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.core.playbook import KNOWLEDGE, causes, playbook_files
from traindoctor.agent.core.report import Report, Sentence
from traindoctor.agent.core.types import Evidence
from traindoctor.agent.doors.cli import main
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.settings.catalogue import entries, named_paths
from traindoctor.agent.session.answers import preflight_calls
from traindoctor.agent.session.conclude import conclude
from traindoctor.agent.session.session import diagnose
from traindoctor.agent.telling.render import as_page, as_plain
from traindoctor.agent.tools.tool import all_tools
from traindoctor.agent.verdict.planner import Diagnosis
from traindoctor.agent.verdict.predicates import Facts


def asked(question: str, state: Path, run: Path | None = None, intent: str = "") -> Report:
    ws = Workspace([run] if run else [], question=question, may_be_empty=True, live=False)
    *_, last = diagnose(ws, question, state=state, intent=intent)
    assert isinstance(last, ReportReady)
    return last.report


def test_a_knowledge_question_is_answered_with_citations_and_blames_nothing(tmp_path: Path) -> None:
    report = asked("what does Xid 79 mean", tmp_path)
    assert (report.status, report.root_cause.id, report.differential) == ("answer", None, [])
    assert "fallen off the bus" in report.summary[0].text and "reboot" in report.summary[0].text
    by_id = {e.id: e for e in report.evidence}
    assert by_id[report.summary[0].cites[0]].file == "knowledge/xid.yaml"
    assert any(e.file == "playbook hw/gpu_fell_off_bus" for e in report.evidence)
    assert [c.tool for c in report.checked] == ["look_up"]
    assert "knowledge/xid.yaml" in as_page(report) and "an answer" in as_plain(report)


def test_what_nobody_knows_is_said(tmp_path: Path) -> None:
    report = asked("what is the capital of France?", tmp_path)
    assert report.status == "answer" and not report.summary and not report.evidence
    assert report.root_cause.title.startswith("Nothing in the playbooks")


def test_a_question_that_only_sounds_like_knowledge_is_diagnosed_where_there_is_a_log(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "train.log").write_text("step 1 loss 2.0\nRuntimeError: zorblax quux is not frobbed\n")
    report = asked("what is zorblax quux frobbing", tmp_path, run)
    assert report.root_cause.id is not None
    assert {"scan_logs", "look_up"} <= {c.tool for c in report.checked}


def test_a_follow_up_on_knowledge_keeps_the_session(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "train.log").write_text("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n")
    first = asked("why did it die?", tmp_path, run)
    ws = Workspace([run], live=False)
    *_, last = diagnose(ws, "what does Xid 79 mean", state=tmp_path, session=first.session)
    assert isinstance(last, ReportReady)
    assert (first.root_cause.id, last.report.status) == ("hw.gpu_fell_off_bus", "answer")


def test_each_answer_of_a_session_is_its_own(tmp_path: Path) -> None:
    first = asked("What is MFU?", tmp_path)
    for question, title in (("Will Qwen2.5-7B fit on 8 x 80 GB?", "It does not fit."), ("What does Xid 79 mean", "Xid 79")):
        ws = Workspace([], question=question, may_be_empty=True, live=False)
        *_, last = diagnose(ws, question, state=tmp_path, session=first.session)
        assert isinstance(last, ReportReady) and last.report.root_cause.title == title


def test_a_preflight_of_nothing_gives_no_all_clear(tmp_path: Path) -> None:
    assert "stops it" not in asked("What can go wrong with zzqx qwvvv florble?", tmp_path).root_cause.title


def test_a_fit_is_estimated_from_the_question(tmp_path: Path) -> None:
    report = asked("will Qwen2.5-7B fit on 8 x 80 GB", tmp_path)
    assert (report.status, report.root_cause.title) == ("answer", "It does not fit.")
    assert any("ZeRO" in s.text for s in report.summary), "says what makes it fit"
    assert asked("will Qwen2.5-7B fit on 8 x 640 GB", tmp_path).root_cause.title == "It fits."
    assert "nothing to estimate" in asked("will it fit on 8 x 80 GB", tmp_path).root_cause.title


def test_a_document_bears_out_no_diagnosis() -> None:
    book = Evidence(id="E1", key="knowledge.passage", kind="document", file="playbook hw/x", text="the card fell off the bus")
    said = Diagnosis("none.insufficient_evidence", [], [Sentence(text="The card fell off the bus.", cites=["E1"])])
    concluded = conclude(said, Facts.of([book]), [], causes())
    assert concluded.dropped and not concluded.report.evidence


JOB = """#!/bin/bash
export NCCL_TIMEOUT=3600
export CUDA_VISIBLE_DEVICES=0,1,2,3
torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-7B --deepspeed ds.json \\
  --train_file data/train.jsonl --per_device_train_batch_size 4 --learning_rate 2e-5 --warmup_ratio 0.03 --bf16 True
"""
DEEPSPEED = {
    "train_batch_size": 60, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4,
    "zero_optimization": {"stage": 3}, "bf16": {"enabled": True}, "gradient_clipping": 1.0,
}  # fmt: skip


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A launch script that names a DeepSpeed config and data beside it; four things are wrong."""
    folder = tmp_path / "job"
    (folder / "data").mkdir(parents=True)
    (folder / "launch.sh").write_text(JOB)
    (folder / "ds.json").write_text(json.dumps(DEEPSPEED))
    (folder / "data" / "train.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n{"text": "\n')
    return folder / "launch.sh"


def test_preflight_finds_what_will_go_wrong_also_in_the_files_it_names(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["preflight", str(job), "--files-only", "--gpu", "24", "--json", "--strict"]) == 1
    report = Report.model_validate_json(capsys.readouterr().out)
    assert report.status == "answer" and report.root_cause.id is None
    stops = " ".join(s.text for s in report.summary if s.level == "stops")
    assert "does not fit" in stops and "global batch 60" in stops and "8 processes are started" in stops
    look = " ".join(s.text for s in report.summary if s.level == "look")
    assert "NCCL_TIMEOUT" in look and "cut off" in look
    assert report.fixes and all(s.cites for s in report.summary)


def test_preflight_of_a_sound_job_stops_nothing(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace("export NCCL_TIMEOUT=3600\n", "").replace("0,1,2,3", "0,1,2,3,4,5,6,7"))
    (job.parent / "ds.json").write_text(json.dumps({**DEEPSPEED, "train_batch_size": 128}))
    (job.parent / "data" / "train.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    assert main(["preflight", str(job), "--files-only", "--gpu", "H200", "--json", "--strict"]) == 0
    report = Report.model_validate_json(capsys.readouterr().out)
    assert report.root_cause.title.startswith("Nothing found that stops it")
    assert not [s.text for s in report.summary if s.level == "stops"]


def test_preflight_without_a_job_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", str(tmp_path / "nothing.yaml")]) == 2
    (tmp_path / "empty").mkdir()
    assert main(["preflight", str(tmp_path / "empty")]) == 3
    assert all(line.startswith("doctor: ") for line in capsys.readouterr().err.strip().splitlines())


def test_other_jobs_configs_beside_a_named_model_are_not_this_jobs(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = job.parent / "base"
    base.mkdir()
    (base / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
                                                  "num_attention_heads": 4, "vocab_size": 128}))  # fmt: skip
    (base / "ds_config.json").write_text(json.dumps({"train_batch_size": 7, "gradient_accumulation_steps": 3}))
    job.write_text(JOB.replace("Qwen/Qwen2.5-7B", str(base)))
    (job.parent / "ds.json").write_text(json.dumps({**DEEPSPEED, "train_batch_size": 128}))
    main(["preflight", str(job), "--files-only", "--json"])
    report = Report.model_validate_json(capsys.readouterr().out)
    assert not [s.text for s in report.summary if "batch" in s.text and s.level == "stops"]
    assert any("config.json" in str(e.file) for e in report.evidence), "the model itself is described there"


def test_only_inputs_of_a_job_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "train.jsonl").write_text("{}\n")
    config = tmp_path / "job" / "run.yaml"
    config.write_text(
        f"train_file: {tmp_path}/d/train.jsonl\nrandom_note: /etc/hostname\ndata_dir: /usr/share\n"
        f"model_name_or_path: /etc\noutput_dir: {tmp_path}/d\ncache_dir: {tmp_path}/d\nlogging_path: ./\n"
    )
    assert named_paths(Workspace([config], live=False)) == ([tmp_path / "d" / "train.jsonl"], 0)
    many = "".join(f"  - {tmp_path}/many/{n}.jsonl\n" for n in range(300))
    (tmp_path / "many").mkdir()
    for n in range(300):
        (tmp_path / "many" / f"{n}.jsonl").write_text("{}\n")
    config.write_text(f"data_files:\n{many}")
    found, more = named_paths(Workspace([config], live=False))
    assert len(found) == 40 and more > 100, "what is left out is told"


def test_the_table_of_the_preflight_names_what_exists() -> None:
    table = yaml.safe_load((KNOWLEDGE / "preflight.yaml").read_text(encoding="utf-8"))
    rows = [row for level in ("stops", "look", "known") for row in table[level]]
    tools = all_tools()
    assert {row["cause"] for row in rows if "cause" in row} <= set(causes())
    assert {row["playbook"] for row in rows if "playbook" in row} <= {slug for slug, _ in playbook_files(KNOWLEDGE)}
    assert all(call.tool in tools for call in preflight_calls({}))
    keys = [row["key"] for row in rows if not row["key"].endswith("*")] + table["ordinary"]
    assert not [key for key in keys if not any(t.allows(key) for t in tools.values())]


def test_the_glossary_points_at_playbooks_that_exist() -> None:
    table = yaml.safe_load((KNOWLEDGE / "glossary.yaml").read_text(encoding="utf-8"))
    slugs = {slug for slug, _ in playbook_files(KNOWLEDGE)}
    assert {entry["see"] for entry in table.values() if "see" in entry} <= slugs
    for term, entry in table.items():
        for name in (term, *entry.get("also", ())):
            assert entry["says"][:40] in " ".join(e.text for e in entries(f"what is {name}?")), name


def test_catalogues_know_xids_exit_codes_settings_folklore_and_versions() -> None:
    def said(question: str) -> str:
        return " ".join(e.text for e in entries(question))

    assert "Xid 45" in said("is XID 45 bad") and "names no culprit" in said("is XID 45 bad")
    assert entries("what is Xid 999") == [] or "Xid 999" not in said("what is Xid 999")
    assert "killed by SIGKILL" in said("what does exit code 137 mean")
    assert "clip_grad" in said("what does max_grad_norm do")
    assert "no such NCCL variable" in said("should I set NCCL_COMM_ID_TIMEOUT?")
    assert "weights_only" in said("does torch 2.6 work with deepspeed 0.15?")
    assert entries("how do I bake bread") == []


def test_the_xid_catalogue_says_all_it_was_given() -> None:
    table = yaml.safe_load((KNOWLEDGE / "xid.yaml").read_text(encoding="utf-8"))
    known = {"name", "action", "investigate", "blame", "cause", "consequence"}
    for code, entry in table["codes"].items():
        assert set(entry) <= known, f"{code}: a comma outside of quotes cuts the text: {set(entry) - known}"
        assert entry["action"] in table["actions"] and all(isinstance(entry[k], str) for k in ("name", "investigate"))
    assert "PCIe slot" in entries("what does Xid 79 mean")[0].text
