"""What to read next: the user's own documents first, by name and heading; nothing where nothing bears on it."""

from traindoctor.agent.session.conclude import passages
from traindoctor.index import documents


def test_a_users_document_is_named_with_its_heading(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCTOR_STATE", str(tmp_path / "state"))
    page = tmp_path / "runbook.md"
    page.write_text("# Cluster blue\n\n## Fabric manager restarts\n\nAfter a restart of the fabric manager reset all GPUs "
                    "of the NVSwitch machine, otherwise NVLS multicast allocation fails.\n")  # fmt: skip
    documents.add([page])
    notes: list[str] = []
    found = passages("fabric manager restart NVLS multicast allocation fails", "NVLink errors", "hw.nvlink_error",
                     settled=True, notes=notes)  # fmt: skip
    assert found[0].startswith("Read: runbook.md > ") and "Fabric manager restarts" in found[0]
    assert notes == []


def test_an_unrelated_question_names_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCTOR_STATE", str(tmp_path / "state"))
    assert passages("how do I cook rice", "", "loss.bad_batch", settled=True, notes=[]) == []


def test_a_document_bound_to_a_cause_is_named_for_it_and_for_no_other(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCTOR_STATE", str(tmp_path / "state"))
    page = tmp_path / "switches.md"
    page.write_text("---\ncause: dist.ib_link\n---\n# Blue cluster\n\n## Ports\n\nCall the network team.\n")
    documents.add([page])
    found = passages("the job died", "InfiniBand trouble", "dist.ib_link", settled=True, notes=[])
    assert found[0] == "Read: switches.md > Blue cluster > Ports"
    others = passages("call the network team", "A rank died", "dist.rank_died", settled=True, notes=[])
    assert not any("switches.md" in line for line in others)
