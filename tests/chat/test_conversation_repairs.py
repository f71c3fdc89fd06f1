"""Repairs in a conversation: as careful as `doctor apply`, on the run that the conversation was opened on."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from traindoctor.agent.chat.offered_repairs import Repairs
from traindoctor.agent.chat.talk import Conversation
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.core.report import Report
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.repair.applying.journal import BEGUN, Journal
from traindoctor.agent.session.store import save_report, usable_state

from tests.repair.applying.makers import patch, report, tree

DS = '{\n  "fp16": {"enabled": true}\n}\n'
YAML = "# ours\r\nlr: 1e-4\r\nsteps: 10\r\n"  # of another system


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with two settings files."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "ds.json").write_text(DS)
    (folder / "train.yaml").write_bytes(YAML.encode())
    (folder / "train.log").write_text("step 1 loss 2.0\nstep 2 loss nan\n")
    return folder


def opened(run: Path, ours: bool = True, **more: Any) -> tuple[Repairs, Report]:
    """The repairs of a conversation about a run with two of them: P1 and P2 together, P3 by itself."""
    patches = [
        patch("P1", "ds.json", DS, DS.replace("true", "false"), why="Half overflows.", risk="Slower.", **more),
        patch("P2", "train.yaml", YAML, YAML.replace("1e-4", "5e-5"), verify="watch the scale"),
        patch("P3", "train.yaml", YAML, YAML.replace("10", "20")),
    ]
    made = Report.model_validate(report([run], patches, ["P1", "P2"], ["P3"]))
    talk = Conversation(Workspace([run], live=False), usable_state()[0])
    if ours:
        save_report(talk.state, made)
    return Repairs(talk), made


def test_a_repair_is_shown_written_and_put_back_byte_for_byte(run: Path) -> None:
    repairs, made = opened(run)
    before = tree(run)
    assert [o.ids for o in repairs.of(made)] == [["P1", "P2"], ["P3"]]
    change = repairs.prepare(made, ["P1"])
    assert tree(run) == before and change.ids == ("P1", "P2") and change.marks == ()
    assert change.question == "Write these changes to 2 files?"
    assert "P2 belongs to P1 and is applied with it" in change.warnings
    assert [w.partition(": ")[2] for w in change.where] == [
        f"{run}/ds.json (+1 -1 lines)", f"{run}/train.yaml (+1 -1 lines)"
    ]  # fmt: skip
    shown = [row.text for row in change.rows]
    assert '+  "fp16": {"enabled": false}' in shown and "risk: Slower." in shown and "(lines end in CRLF)" in shown
    assert "+lr: 5e-5" in shown  # told once, not at each line
    done = repairs.carry_out(change)
    assert done.lines[-1] == "watch the scale"
    assert (run / "train.yaml").read_bytes() == YAML.replace("1e-4", "5e-5").encode()
    (applied,) = repairs.applied()
    assert applied.ident == done.ident and applied.whole and applied.holds(repairs.of(made)[0])
    assert not applied.holds(repairs.of(made)[1]) and repairs.prepare(made, ["P1"]).already == ("P1", "P2")
    back = repairs.prepare_undo()
    assert back.ident == done.ident and "+lr: 1e-4" in [row.text for row in back.rows]
    assert repairs.undo(back).lines[-1] == f"undone: {done.ident} (P1, P2)"
    assert tree(run) == before and repairs.applied() == []
    with pytest.raises(UsageError, match="nothing to undo"):
        repairs.prepare_undo()


def test_what_changed_meanwhile_is_left(run: Path) -> None:
    repairs, made = opened(run)
    change = repairs.prepare(made)
    (run / "train.yaml").write_text("lr: mine\n")
    before = tree(run)
    with pytest.raises(UsageError, match="changed meanwhile"):
        repairs.carry_out(change)
    with pytest.raises(UsageError, match="was changed since the report was made"):
        repairs.prepare(made)
    assert tree(run) == before and repairs.applied() == []
    (run / "train.yaml").write_bytes(YAML.encode())
    repairs.carry_out(repairs.prepare(made))
    (run / "ds.json").write_text("{}")
    before = tree(run)
    with pytest.raises(UsageError, match="was changed since"):
        repairs.prepare_undo()
    assert tree(run) == before


def test_a_model_and_a_foreign_report_are_marked(run: Path) -> None:
    repairs, made = opened(run, ours=False, by="model")
    change = repairs.prepare(made)
    assert len(change.marks) == 2 and "model" in change.marks[1] and "not made here" in change.marks[0]
    assert repairs.standing(made).foreign
    save_report(usable_state()[0], made)
    assert repairs.prepare(made).marks == change.marks[1:]
    forged = made.model_copy(update={"question": "another"})  # one word is another: it is not ours
    assert len(repairs.prepare(forged).marks) == 2


def test_a_run_that_leads_elsewhere_or_is_gone_is_refused(run: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(run)
    repairs, made = opened(link)
    other = tmp_path / "other"
    other.mkdir()
    (other / "ds.json").write_text(DS)
    link.unlink()
    link.symlink_to(other)
    with pytest.raises(UsageError, match=r"leads to .* now") as refused:
        repairs.prepare(made)
    assert "--run" not in refused.value.hint and (other / "ds.json").read_text() == DS
    link.unlink()
    with pytest.raises(UsageError, match="no such path"):
        repairs.prepare(made)


def test_changes_of_another_run_are_not_of_this_one(run: Path, tmp_path: Path) -> None:
    repairs, made = opened(run)
    repairs.carry_out(repairs.prepare(made))
    second = tmp_path / "second"
    second.mkdir()
    (second / "ds.json").write_text(DS)
    (second / "train.yaml").write_bytes(YAML.encode())
    other, _ = opened(second)
    assert other.applied() == []
    with pytest.raises(UsageError, match="nothing to undo"):
        other.prepare_undo()
    both = Conversation(Workspace([run, second], live=False), usable_state()[0])
    with pytest.raises(UsageError, match="about 1 runs, this conversation about 2"):
        Repairs(both).prepare(made)


def test_repairs_of_one_file_are_applied_and_taken_back_one_after_the_other(run: Path) -> None:
    repairs, made = opened(run)
    before = tree(run)
    first = repairs.carry_out(repairs.prepare(made, ["P1"]))
    change = repairs.prepare(made, ["P3"])
    assert change.ids == ("P3",) and "+steps: 20" in [r.text for r in change.rows]
    second = repairs.carry_out(change)
    assert (run / "train.yaml").read_bytes() == YAML.replace("1e-4", "5e-5").replace("10", "20").encode()
    with pytest.raises(UsageError, match="a later apply changed the same file"):
        repairs.prepare_undo(first.ident)
    assert repairs.prepare_undo().ident == second.ident
    repairs.undo(repairs.prepare_undo())
    repairs.undo(repairs.prepare_undo(first.ident[:20]))
    assert tree(run) == before


def test_an_interrupted_apply_comes_first(run: Path) -> None:
    repairs, made = opened(run)
    done = repairs.carry_out(repairs.prepare(made))
    journal = Journal(usable_state()[0])
    journal.mark(journal.entries()[0], BEGUN)  # as a kill between the two renames leaves it
    (run / "ds.json").write_text(DS)
    assert repairs.interrupted() == [done.ident] and not repairs.applied()[0].whole
    (word,) = repairs._talk.recalled().told
    assert f"{done.ident} was cut short" in word, "told when the run is opened"
    with pytest.raises(UsageError, match="interrupted"):
        repairs.prepare(made, ["P3"])
    back = repairs.prepare_undo(done.ident)
    assert "interrupted" in back.warnings[0] and len(back.where) == 1
    repairs.undo(back)
    assert (run / "train.yaml").read_bytes() == YAML.encode() and repairs.interrupted() == []


def test_local_changes_under_git_are_told(run: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e@x.org", *words], cwd=run, check=True)

    git("init", "-q")
    git("add", "ds.json")
    git("commit", "-q", "-m", "first")
    (run / "ds.json").write_text(DS + "\n")
    patches = [patch("P1", "ds.json", DS + "\n", DS)]
    made = Report.model_validate(report([run], patches))
    repairs = Repairs(Conversation(Workspace([run], live=False), usable_state()[0]))
    assert "ds.json has local changes under git" in repairs.prepare(made).warnings[0]
