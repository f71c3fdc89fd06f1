"""Other programs on the same incidents: the mapping, what an answer is worth, the table, and the programs themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from traindoctor.agent.core.errors import UsageError
from traindoctor.evals.case import find
from traindoctor.evals.peers import __main__ as peers
from traindoctor.evals.peers import results
from traindoctor.evals.peers.programs import PROGRAMS, installed
from traindoctor.evals.peers.verdicts import judge, mapping

ROOT = Path(__file__).resolve().parents[2]


def incident(folder: Path, expected: str, log: str) -> Path:
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "train.log").write_text(log)
    labels = {"id": folder.name, "family": "memory", "difficulty": "easy", "question": "Why?", "expected": [expected]}
    (folder / "incident.yaml").write_text(yaml.safe_dump(labels))
    return folder


def test_every_answer_maps_to_causes_that_there_are() -> None:
    families = yaml.safe_load((ROOT / "knowledge" / "causes.yaml").read_text(encoding="utf-8"))
    known = {cause for family in families.values() for cause in family}
    said = {c for p in mapping()["peers"].values() for causes in p["answers"].values() for c in causes}
    assert said <= known
    assert set(mapping()["silent"]) <= known


def test_every_program_has_a_row_in_the_mapping() -> None:
    assert {p.name for p in PROGRAMS} == set(mapping()["peers"])


def test_an_answer_that_fits_several_causes_is_right_for_each(tmp_path: Path) -> None:
    [case] = find([incident(tmp_path / "heron", "memory.fragmentation", "CUDA out of memory")])
    first = judge("runmedic", case, ["log:cuda_oom", "overfitting"], 0.1)
    assert first.right
    assert first.in_scope
    later = judge("runmedic", case, ["overfitting", "log:cuda_oom"], 0.1)
    assert (later.right, later.among) == (False, True)
    assert not judge("runmedic", case, [], 0.1).right  # silence on a fault


def test_silence_is_right_on_a_sound_run_and_an_answer_is_a_blame(tmp_path: Path) -> None:
    [case] = find([incident(tmp_path / "acorn", "none.healthy", "step 1 loss 2.0")])
    assert judge("grep", case, [], 0.1).right
    said = judge("grep", case, ["memory.host_oom"], 0.1)
    assert said.blamed
    assert not said.right


def test_an_error_is_never_right(tmp_path: Path) -> None:
    [case] = find([incident(tmp_path / "acorn", "none.healthy", "step 1 loss 2.0")])
    assert not judge("runmedic", case, [], 60.0, "no answer in time").right


def test_a_page_keeps_what_stands_around_the_table() -> None:
    page = f"before\n{results.BEGIN}\nold\n{results.END}\nafter\n"
    assert results.put_into(page, "new\n") == f"before\n{results.BEGIN}\nnew\n{results.END}\nafter\n"
    with pytest.raises(UsageError, match="in the page"):
        results.put_into("no marks", "new\n")


def test_the_whole_way_with_whichever_are_installed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    incident(tmp_path / "ours" / "heron", "memory.host_oom", "Out of memory: Killed process 77 (python)\n")
    incident(tmp_path / "ours" / "acorn", "none.healthy", "step 1 loss 2.0\n")
    doctor = tmp_path / "doctor.json"
    doctor.write_text(json.dumps({"incidents": [{"id": "heron", "exact": True}, {"id": "acorn", "exact": True}]}))
    kept = tmp_path / "peers.json"
    assert peers.main([str(tmp_path / "ours"), "--doctor", str(doctor), "--json", str(kept), "--markdown"]) == 0
    data = json.loads(kept.read_text())
    rows = {r["peer"]: r for r in data["rows"]}
    assert (rows["grep"]["right"], rows["grep"]["faults"], rows["grep"]["blamed"]) == (1, 1, 0)
    assert rows["grep"]["doctor"] == [1, 1]
    if "gpualert" in rows:
        assert rows["gpualert"]["right"] == 1
    told = capsys.readouterr()
    assert "NVRx restart agent" in told.out
    assert all((p.name in rows) != (f"{p.name} is not installed" in told.err) for p in PROGRAMS)


@pytest.mark.skipif(not installed("runmedic"), reason="runmedic is not installed in build/peers")
def test_runmedic_says_what_it_sees_in_the_output(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    text = "step 1 loss 2.0\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    (tmp_path / "run" / "train.log").write_text(text)
    (tmp_path / "all.log").write_text(text)
    ask = next(p.ask for p in PROGRAMS if p.name == "runmedic")
    assert ask(tmp_path / "run", tmp_path / "all.log")[0] == "log:cuda_oom"


def test_an_evaluation_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}")
    assert peers.main([str(tmp_path), "--doctor", str(path)]) == 2
    assert "no " in capsys.readouterr().err
