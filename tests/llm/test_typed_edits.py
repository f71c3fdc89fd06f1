"""Edits that a model proposes become patches of the run's own text files, or one line that says why not."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from traindoctor.agent.core.report import Patch
from traindoctor.agent.core.types import Evidence
from traindoctor.agent.core.unified import applied
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.repair.treatment.proposed import Refused, breaks, place, proposed, unseen
from traindoctor.agent.verdict.planner import ProposedEdit

LOOP = "import torch\nfor batch in loader:\n    loss = model(batch).loss\n    loss.backward()\n    optimizer.step()\n"
STEP = ProposedEdit("train.py", "    optimizer.step()\n", "    optimizer.step()\n    optimizer.zero_grad()\n")


def offered(tmp_path: Path, *edits: ProposedEdit, **evidence: Evidence) -> tuple[list[Patch], list[str]]:
    (tmp_path / "train.log").write_text("step 1 loss 2.0\n")
    return proposed(edits, Workspace([tmp_path]), evidence=evidence)


def refusal(tmp_path: Path, edit: ProposedEdit) -> str:
    patches, wrong = offered(tmp_path, edit)
    assert not patches and len(wrong) == 1 and "\n" not in wrong[0], (patches, wrong)
    return wrong[0]


def test_an_edit_becomes_a_marked_patch(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP)
    [patch], wrong = offered(tmp_path, STEP)
    assert not wrong
    assert (patch.id, patch.file, patch.by, patch.title) == ("P1", "train.py", "model", "proposed by the model")
    assert patch.sha256 == hashlib.sha256(LOOP.encode()).hexdigest()
    assert applied(patch.diff, LOOP, "train.py") == LOOP + "    optimizer.zero_grad()\n"
    assert patch.risk.startswith("Runs code") and patch.edits == ["train.py:5: 1 line becomes 2"]
    assert (tmp_path / "train.py").read_text() == LOOP


def test_settings_are_not_said_to_run_and_packages_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("lr: 1e-3\n")
    (tmp_path / "requirements.txt").write_text("torch==2.5.0\n")
    (tmp_path / "launch.sh").write_text("torchrun train.py --lr 1e-3\n")
    patches, wrong = offered(
        tmp_path, ProposedEdit("config.yaml", "1e-3", "1e-4"), ProposedEdit("requirements.txt", "2.5.0", "2.6.0"),
        ProposedEdit("launch.sh", "1e-3", "1e-4"),
    )  # fmt: skip
    assert not wrong and [p.id for p in patches] == ["P1", "P2", "P3"]
    said = {p.file: p.risk.split(".")[0] for p in patches}
    assert said["config.yaml"] == "No recipe stands behind it: read it before you apply it"
    assert said["requirements.txt"] == "Decides which packages are installed"
    assert said["launch.sh"].startswith("Runs code")
    assert patches[0].edits == ["config.yaml:1: 1e-3 becomes 1e-4"]


def test_several_edits_of_a_file_are_one_patch_and_those_that_overlap_are_not(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP)
    head = ProposedEdit("train.py", "import torch\n", "import torch\n\noptimizer = make()\n")
    [patch], wrong = offered(tmp_path, STEP, head, STEP)
    new = applied(patch.diff, LOOP, "train.py")
    assert not wrong and new.startswith("import torch\n\nopt") and new.endswith("zero_grad()\n")
    [patch], wrong = offered(tmp_path, STEP, ProposedEdit("train.py", "optimizer.step()", "scaler.step(optimizer)"))
    assert "edit 2 (train.py) is left out: it overlaps" in wrong[0] and "scaler" not in patch.diff


FAULTS = {
    "stands there several times": ("loss", "x"), "does not stand there": ("nothing like it", "x"),
    "to find is empty": (" \n", "x"), "changes nothing": ("import torch", "import torch"),
    "characters that do not show": ("torch", "torch  # \u202e"), "do not show": ("torch", "torch\x1b[2K"),
    "not show": ("torch", "to\u200brch"), "that do not": ("torch", "t\u00adorch\ufe0f"), "do not sho": ("torch", "a\rb"),
    "no Python any more": ("import torch", "import (torch"), "hides what follows": ("torch", f"torch{' ' * 90}; x()"),
    "hides what": ("torch", "torch" + "\n" * 90 + "x()"), "a secret, or the mark": ("torch", "torch  # <SECRET:hf:1>"),
    "holds a secret": ("torch", "torch  # hf_" + "QmZ7vK2xT9pLr4WnBd8sYc1GfHj5Ea3U"),
    "more than 200": ("torch", "torch\n" + "import os\n" * 200), "not shown whole": ("torch", f"torch  # {'x ' * 200}"),
    "longer than": ("torch", "x" * 20_001), "a control token as it was shown": ("torch", "torch  # <\\|im_start|>"),
}  # fmt: skip


@pytest.mark.parametrize("why", FAULTS)
def test_what_no_one_can_judge_is_refused(why: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP)
    assert why in refusal(tmp_path, ProposedEdit("train.py", *FAULTS[why]))


def test_code_that_looks_like_a_broken_token_is_code(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP)
    code = (
        'import re, torch\nTEMPLATE = "<|im_start|>user [INST] {x} [/INST]"\nWORD = re.compile(r"[\\w]+<\\\\?(?!\\[)")'
    )
    [patch], wrong = offered(tmp_path, ProposedEdit("train.py", "import torch", code))
    assert not wrong and "+TEMPLATE" in patch.diff


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [("a.json", '{"a": 1}', '{"a": 1'), ("a.yaml", "a: 1\n", "a: [1\n"), ("a.toml", "a = 1\n", "a = = 1\n"),
     ("a.py", "a = 1\n", "a = \n"), ("a.ipynb", '{"cells": []}', "{")],
)  # fmt: skip
def test_what_was_read_before_must_be_read_after(name: str, good: str, bad: str) -> None:
    assert breaks(name, good, bad) and not breaks(name, bad, bad) and not breaks(name, good, good)
    assert not breaks("a.sh", "if", "fi")


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.yaml", "[" * 500_000), ("a.yaml", "{a: " * 250_000), ("a.toml", "a" + ".a" * 300_000 + " = 1"),
     ("a.json", "[" * 500_000), ("a.py", "-" * 500_000 + "1"), ("a.py", "1+" * 200_000 + "1")],
    ids=["yaml", "flow", "toml", "json", "minus", "sum"],
)  # fmt: skip
def test_a_text_made_to_cost_minutes_costs_little(name: str, text: str) -> None:
    assert breaks(name, text, text) == ""
    assert breaks(name, "[]" if name != "a.toml" else "", text) != ""


def test_only_text_files_that_people_write_are_edited(tmp_path: Path) -> None:
    words = {
        "metrics.jsonl": '{"step": 1, "loss": 2.0}\n', "out.log": "step 1 loss 2\n", "trainer_state.json": '{"log_history": []}',
        "data.jsonl": '{"prompt": "x", "completion": "y"}\n', "README.md": "step\n", "dmesg.txt": "[    1.000000] NVRM\n",
        "wandb/run-20250101_000000-abc/files/config.yaml": "lr: 1\n",
    }  # fmt: skip
    for name, text in words.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        assert "is left out" in refusal(tmp_path, ProposedEdit(name, text.strip()[:6], "x"))
    odd = {"nul.py": b"a = 1\0\n", "latin.py": b"a = '\xe4'\n", "wide.py": "a = 1\n".encode("utf-16")}
    for name, data in (*odd.items(), ("big.py", b"a = 1\n" + b"b = 2\n" * 200_000)):
        (tmp_path / name).write_bytes(data)
        assert "(" + name in refusal(tmp_path, ProposedEdit(name, "a = 1", "a = 2"))


def test_names_that_lead_elsewhere_lead_nowhere(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside.py"
    (run / ".git" / "hooks").mkdir(parents=True)
    outside.write_text("a = 1\n")
    for name in (".git/config", ".git/hooks/post-checkout", "real.py", "-rf.py", "pl\nain.py", "tu\u202ern.py"):
        (run / name).write_text("a = 1\n")
    (run / "out.py").symlink_to(outside)
    (run / "hook.sh").symlink_to(".git/hooks/post-checkout")
    (run / "loop.py").symlink_to("loop.py")
    (run / "folder").symlink_to(tmp_path)
    os.mkfifo(run / "pipe.py")
    (run / "alias.py").symlink_to("real.py")
    reach = ("../outside.py", str(outside), "/etc/passwd", "folder/outside.py", "out.py", ".git/config", "loop.py", "",
             ".", "./real.py", "hook.sh", ".git/hooks/post-checkout", "pipe.py", "r1/real.py", "real.py/", "pl\nain.py",
             "pl\\nain.py", "tu\u202ern.py", "folder/run/real.py", "REAL.PY", "real.py\0")  # fmt: skip
    for name in reach:
        assert "is left out" in refusal(run, ProposedEdit(name, "a = 1", "a = 2")), name
    [patch], _ = offered(run, ProposedEdit("-rf.py", "a = 1", "a = 2"))
    assert patch.diff.startswith("--- a/-rf.py\n")
    both, wrong = offered(run, ProposedEdit("alias.py", "a", "b"), ProposedEdit("real.py", "1", "2"))
    assert len(both) == 1 and not wrong and "+b = 2" in both[0].diff  # one file by two names is one patch
    outside_now = {p: p.read_bytes() for p in (outside, run / ".git/config")}
    assert set(outside_now.values()) == {b"a = 1\n"}


def test_a_good_run_is_not_touched_and_a_file_may_be_the_run(tmp_path: Path) -> None:
    for name in ("bad", "good"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text("a = 1\n")
    ws = Workspace([tmp_path / "bad"], good=[tmp_path / "good"])
    edits = [ProposedEdit("r1/train.py", "a = 1", "a = 2"), ProposedEdit("r2/train.py", "a = 1", "a = 2")]
    [patch], wrong = proposed(edits, ws)
    assert patch.file == "r1/train.py" and "the good run" in wrong[0]
    [patch], wrong = proposed([ProposedEdit("train.py", "1", "2")], Workspace([tmp_path / "bad" / "train.py"]), 7)
    assert (patch.id, patch.file, wrong) == ("P7", "train.py", [])


def test_a_file_that_is_gone_or_changed_into_something_else_is_refused(tmp_path: Path) -> None:
    for name in ("gone.py", "turned.py", "linked.py"):
        (tmp_path / name).write_text("a = 1\n")
    ws = Workspace([tmp_path])
    (tmp_path / "gone.py").unlink()
    (tmp_path / "turned.py").unlink()
    os.mkfifo(tmp_path / "turned.py")
    (tmp_path / "linked.py").unlink()
    (tmp_path / "linked.py").symlink_to("/etc/hostname")
    patches, wrong = proposed([ProposedEdit(n, "a = 1", "a = 2") for n in ("gone.py", "turned.py", "linked.py")], ws)
    assert not patches and len(wrong) == 3


def test_line_ends_are_those_of_the_file(tmp_path: Path) -> None:
    old = LOOP.replace("\n", "\r\n")
    (tmp_path / "train.py").write_bytes(old.encode())
    [patch], _ = offered(tmp_path, STEP)
    assert applied(patch.diff, old, "train.py") == old + "    optimizer.zero_grad()\r\n"
    mixed = "a = 1\r\nb = 2\nc = 3"
    (tmp_path / "train.py").write_bytes(b"\xef\xbb\xbf" + mixed.encode())
    [patch], _ = offered(tmp_path, ProposedEdit("train.py", "c = 3", "c = 4"))
    assert applied(patch.diff, "\ufeff" + mixed, "train.py") == "\ufeff" + mixed.replace("3", "4")


# --- reasons


def test_a_reason_stands_on_what_it_cites_and_on_the_edit(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOOP)
    seen = Evidence(key="log.line", kind="line", file="train.log", line=3, text="grad norm 812.5", id="E4")

    def why(text: str, *cites: str) -> tuple[str, list[str]]:
        edit = ProposedEdit(STEP.file, STEP.find, STEP.replace, text, cites)
        [patch], wrong = offered(tmp_path, edit, E4=seen)
        return patch.why, wrong

    stands = "The norm grows to 812.5 (E4), as train.py:5 steps without optimizer.zero_grad()."
    assert why(stands, "E4") == (f"The model says: {stands}", [])
    for text, *cites in (
        ("The norm grows to 999 (E4).", "E4"), ("It was tested on 64 cards.",), ('The log says "all is well".', "E4"),
        ("It is proven (E77).", "E77"), ("See /etc/shadow.",),
    ):  # fmt: skip
        shown, wrong = why(text, *cites)
        assert shown == "" and "the reason for the edit of train.py is left out" in wrong[0]


# --- properties

TEXTS = st.text(st.sampled_from("ab \n\t\r=\u00e4\u4e2d\U0001f525"), max_size=60)


@given(TEXTS, TEXTS, TEXTS)
def test_an_edit_is_placed_where_its_text_stands_alone_or_refused(text: str, find: str, replace: str) -> None:
    try:
        span = place(find, replace, text)
    except Refused:
        return
    new = text[: span.start] + span.text + text[span.end :]
    assert text[span.start : span.end] == span.old and new != text
    assert text.find(span.old) == text.rfind(span.old) == span.start


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=4), st.booleans(), st.booleans())
def test_a_patch_does_what_its_edits_say(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int]], ends: bool, windows: bool
) -> None:
    eol = "\r\n" if windows else "\n"
    lines = [f"key_{n} = {n}" for n in range(10)]
    old = eol.join(lines) + (eol if ends else "")
    assume(len({a for a, _ in pairs}) == len(pairs))
    folder = tmp_path_factory.mktemp("run")
    (folder / "train.py").write_bytes(old.encode())
    edits = [ProposedEdit("train.py", f"key_{a} = {a}", f"key_{a} = {b} + 100") for a, b in pairs]
    patches, wrong = proposed(edits, Workspace([folder]))
    assert not wrong and len(patches) == bool(pairs)
    for patch in patches:
        for a, b in pairs:
            lines[a] = f"key_{a} = {b} + 100"
        assert applied(patch.diff, old, "train.py") == eol.join(lines) + (eol if ends else "")


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_what_is_let_through_shows(text: str) -> None:
    assert unseen(text + "\u2066") and unseen(f"\x00{text}")
    if not unseen(text):
        assert all(c.isprintable() or c.isspace() for c in text)
