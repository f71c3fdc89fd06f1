"""A bug report and a ticket say what is known, with its place, mark what is not, and hand nothing dangerous over."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest
from traindoctor.agent.doors.cli import main
from traindoctor.agent.reading.logs.failures import failures
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.telling.collect.issue_paper import addressee
from traindoctor.agent.telling.collect.ticket import cards, short

DEMO = Path(__file__).parent.parent.parent.parent / "evals" / "demo" / "files"
QUERY = """==============NVSMI LOG==============
Driver Version                            : 550.90.07
GPU 00000000:AB:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Serial Number                         : 1652922012345
    GPU UUID                              : GPU-0a1b2c3d-0000-1111-2222-333344445555
    Minor Number                          : 5
    VBIOS Version                         : 96.00.74.00.01
"""


@pytest.fixture
def lost_card(tmp_path: Path) -> Path:
    """A run whose GPU fell off the bus twice, with a capture that numbers the card."""
    job = tmp_path / "job"
    shutil.copytree(DEMO, job)
    kernel = job / "dmesg_node17.txt"
    again = "[Wed Mar  4 03:10:02 2026] NVRM: Xid (PCI:0000:ab:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    kernel.write_text(kernel.read_text() + again)
    (job / "nvidia-smi-q_node17.txt").write_text(QUERY)
    (job / "slurm-88121.out").write_text("SLURM_JOB_ID=88121\n")
    return job


def test_a_ticket_names_node_card_events_and_what_is_asked(lost_card, capsys):
    assert main(["collect", str(lost_card), "--no-machine", "--ticket", "-", "--quiet"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("# node17: Xid 79: GPU has fallen off the bus (GPU 0000:ab:00)\n")
    assert "| node17 | 5 | 0000:ab:00 | GPU-0a1b2c3d-0000-1111-2222-333344445555 | 1652922012345 |" in text
    row = next(line for line in text.splitlines() if line.startswith("| Xid 79"))
    assert "| 2 | Mar  4 02:43:49 2026 | Mar  4 03:10:02 2026 |" in row and "dmesg\\_node17.txt:4" in row
    assert "- Driver: 550.90.07" in text and "VBIOS: 96.00.74.00.01" in text and "- Job: 88121" in text
    assert "drain the node and reboot it" in text and "`dcgmi diag -r 3`" in text and "nodename=node17" in text
    assert "- Name:\n" in text and "Reset, reboot, another node: not known" in text
    assert not list(lost_card.parent.glob("*.tar.gz")) and not list(Path.cwd().glob("doctor-bundle-*"))


def test_a_ticket_tells_of_earlier_diagnoses_of_the_node(lost_card, capsys):
    order = ["collect", str(lost_card), "--no-machine", "--ticket", "-", "--quiet"]
    assert main(order) == 0 and main(order) == 0  # collecting adds nothing to the history
    assert "no earlier diagnosis of these nodes" in capsys.readouterr().out.split("## Impact")[1]
    assert main(["triage", str(lost_card), "--quiet"]) == 0
    capsys.readouterr()
    assert main(order) == 0
    told = capsys.readouterr().out.split("## Seen before")[1].split("## Impact")[0]
    assert "hw.gpu\\_fell\\_off\\_bus (confirmed) (node node17, an earlier look at this run)" in told


def test_a_ticket_is_refused_where_the_machines_are_not_at_fault(tmp_path, capsys):
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.log").write_text("step 1 loss 2.0\nModuleNotFoundError: No module named 'flash_attn'\n")
    out, bundle = tmp_path / "t.md", tmp_path / "b.tar.gz"
    order = ["collect", str(tmp_path / "job"), "--no-machine", "--ticket", str(out), "--quiet"]
    assert main([*order, "-o", str(bundle)]) == 2 and not out.exists() and not bundle.exists()
    assert (said := capsys.readouterr().err).count("\n") == 1 and "does not point at the machines but at:" in said
    assert main([*order, "--force"]) == 0
    assert "asked for all the same" in out.read_text() and stat.S_IMODE(out.stat().st_mode) == 0o600


def library_failure(folder: Path) -> None:
    folder.mkdir()
    (folder / "train.log").write_text(
        "PyTorch version: 2.6.0+cu124\nPython version: 3.11.9\ntransformers==4.48.1\ndeepspeed==0.16.3\nstep 1 loss 2.0\n" "Traceback (most recent call last):\n" '  File "/home/alice/exp/train.py", line 88, in <module>\n    trainer.train()\n' '  File "/opt/lib/python3.11/site-packages/transformers/trainer.py", line 2171, in train\n    return inner()\n' '  File "/opt/lib/python3.11/site-packages/deepspeed/runtime/engine.py", line 2145, in step\n    self._step()\n' '  File "/opt/lib/python3.11/site-packages/torch/optim/adamw.py", line 220, in step\n    raise RuntimeError("x")\n' "RuntimeError: state `exp_avg` of @alice is <b>odd</b> ~~~~ | 3\n"
    )  # fmt: skip
    (folder / "run.sh").write_text("#!/bin/bash\nexport NCCL_DEBUG=WARN\ntorchrun --nproc_per_node 8 train.py \\\n  --learning_rate 1e-4 --bf16\n")


def test_a_bug_report_is_filled_from_what_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library_failure(tmp_path / "job")
    assert main(["collect", str(tmp_path / "job"), "--no-machine", "--issue", "-", "--quiet"]) == 0
    text = capsys.readouterr().out
    title = text.splitlines()[0]
    assert title == "# RuntimeError: state \\`exp\\_avg\\` of \\@alice is \\<b\\>odd\\</b\\> \\~\\~\\~\\~ \\| 3"
    assert "Project: deepspeedai/DeepSpeed" in text and "the error itself is raised in torch" in text
    for row in ("| python | 3.11.9 | train.log:2 |", "| torch | 2.6.0+cu124 | train.log:1 |", "| cuda | 12.4 (torch was built with it) | train.log:1 |",
                "| driver | not known | nowhere |", "| transformers | 4.48.1 | train.log:3 |", "| deepspeed | 0.16.3 | train.log:4 |"):  # fmt: skip
        assert row in text
    assert "torchrun --nproc_per_node 8 train.py \\\n  --learning_rate 1e-4 --bf16\n" in text
    assert "| learning\\_rate | 0.0001 | run.sh:4 |" in text
    assert "\n~~~~~text\nTraceback (most recent call last):" in text  # longer than what the trace holds
    assert "Expected: not known; to be filled in" in text and "Other versions, other settings: not known" in text


def test_the_addressee_is_told_by_the_frames(tmp_path: Path) -> None:
    library_failure(tmp_path / "job")
    found = addressee(failures(Workspace([tmp_path / "job"])).first)
    assert found and (found.package, found.below) == ("deepspeed", "torch")
    own = tmp_path / "own"
    own.mkdir()
    (own / "a.log").write_text('Traceback (most recent call last):\n  File "/opt/lib/python3.11/site-packages/torch/nn/x.py", line 1, in f\n    g()\n  File "/home/a/model.py", line 3, in g\n    1 / 0\nZeroDivisionError: division by zero\n')
    assert addressee(failures(Workspace([own])).first) is None
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "a.log").write_text('Traceback (most recent call last):\n  File "/home/a/train.py", line 3, in <module>\n    f()\n  File "/v/site-packages/torch/nn/x.py", line 1, in f\n    raise ValueError\nValueError: bad\n')
    found = addressee(failures(Workspace([alone])).first)
    assert found and (found.package, found.below) == ("torch", "")


def test_papers_overwrite_nothing_and_contradictions_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library_failure(tmp_path / "job")
    mine = tmp_path / "mine.md"
    mine.write_text("mine")
    run = ["collect", str(tmp_path / "job"), "--no-machine", "--quiet"]
    for options in (
        ["--issue", str(mine)], ["--ticket", str(mine), "--force"], ["--issue", "-", "--ticket", "-"],
        ["--issue", str(tmp_path / "a"), "-o", str(tmp_path / "a")], ["--issue", str(tmp_path / "no" / "a.md")],
        ["--no-report", "--issue", "-"], ["--max-size", "3"], ["--max-size", "9G"], ["--session", "nonsense"],
    ):  # fmt: skip
        assert main([*run, *options]) == 2, options
        assert (said := capsys.readouterr()).err.count("\n") == 1 and not said.out, options
    assert mine.read_text() == "mine" and sorted(p.name for p in tmp_path.iterdir()) == ["job", "mine.md"]


def test_a_session_gives_the_report(lost_card: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    assert main(["ask", "is it the network?", "--run", str(lost_card), "--json", "--quiet"]) == 0
    session = json.loads(capsys.readouterr().out)["session"]
    assert main(["collect", "--session", session, "--no-machine", "--issue", "-", "--quiet"]) == 0
    assert "Asked: is it the network?" in capsys.readouterr().out


def test_cards_are_read_from_every_listing(tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi-q_n1.txt").write_text(QUERY)
    (tmp_path / "nvidia-smi-L_n2.txt").write_text("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-11111111-0000-1111-2222-333344445555)\n")
    (tmp_path / "nvidia-smi_n3.csv").write_text("index, uuid, pci.bus_id, temperature.gpu\n3, GPU-22222222-0000-1111-2222-333344445555, 00000000:18:00.0, 40\n")
    found = {(c.index, c.uuid[4:8], short(c.pci)) for c in cards(Workspace([tmp_path]))}
    assert found == {("5", "0a1b", "ab:00"), ("0", "1111", ""), ("3", "2222", "18:00")}
