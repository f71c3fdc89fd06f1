"""What is staged beside a file: read again before the rename, with the attributes of the very file, no part of a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.core.report import Patch
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.repair.applying import carry_out as module
from traindoctor.agent.repair.applying.journal import Journal
from traindoctor.agent.repair.applying.patch_plan import plan
from traindoctor.agent.repair.applying.patch_targets import Root

from tests.repair.applying.makers import patch, tree

OLD, NEW = "a: 1\n", "a: 2\n"


@pytest.mark.parametrize("how", ["written over", "another file", "a link"])
def test_staged_content_that_is_not_ours_never_takes_the_name(how, tmp_path, monkeypatch):
    run = tmp_path / "run"
    run.mkdir()
    (run / "c.yaml").write_text(OLD)
    (tmp_path / "evil").write_text("evil: 1\n")
    seen = []
    real = module.put

    def between(*arguments: object) -> None:
        seen.extend(run.glob(".doctor-*.tmp"))
        if how != "written over":
            seen[0].unlink()
        if how == "a link":
            seen[0].symlink_to(tmp_path / "evil")
        else:
            seen[0].write_text("evil: 1\n")
        monkeypatch.setattr(module, "put", real)
        try:
            real(*arguments)  # pyright: ignore
        finally:
            assert (run / "c.yaml").read_text() == OLD

    monkeypatch.setattr(module, "put", between)
    journal = Journal(tmp_path / "journal")
    made = plan([Patch(**patch("P1", "c.yaml", OLD, NEW))], [Root("r1", run)], journal)
    with pytest.raises(UsageError, match=r"does not hold what was to be written|cannot be read"):
        module.carry_out(made.changes, journal, "s", "c")
    assert seen and {name: content for name, (_, content) in tree(run).items()} == {"c.yaml": OLD.encode()}


def test_attributes_are_those_of_the_file_in_the_opened_folder(tmp_path, monkeypatch, doctor):
    file = tmp_path / "run/c.yaml"
    file.parent.mkdir()
    file.write_text(OLD)
    try:
        os.setxattr(file, "user.note", b"ours")
    except OSError:
        pytest.skip("no attributes on this file system")
    by_path = []
    for name in ("listxattr", "getxattr"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda at, *a, real=real: (by_path.append(at), real(at, *a))[1])
    journal = Journal(tmp_path / "journal")
    made = plan([Patch(**patch("P1", "c.yaml", OLD, NEW))], [Root("r1", file.parent)], journal)
    module.carry_out(made.changes, journal, "s", "c")
    assert by_path and all(isinstance(at, int) for at in by_path)
    assert os.getxattr(file, "user.note") == b"ours" and file.read_text() == NEW


def test_a_folder_above_that_becomes_a_link_is_not_followed(tmp_path: Path) -> None:
    file = tmp_path / "above/run/c.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(OLD)
    journal = Journal(tmp_path / "journal")
    made = plan([Patch(**patch("P1", "c.yaml", OLD, NEW))], [Root("r1", file.parent)], journal)
    (tmp_path / "above").rename(tmp_path / "victim")
    (tmp_path / "above").symlink_to("victim")
    with pytest.raises(UsageError, match="changed meanwhile"):
        module.carry_out(made.changes, journal, "s", "c")
    assert (tmp_path / "victim/run/c.yaml").read_text() == OLD


def test_a_folder_that_may_be_passed_and_not_listed_is_passed(tmp_path: Path, doctor) -> None:
    from tests.repair.applying.makers import one_file

    file, named = one_file(tmp_path / "above", OLD, NEW)
    file.parent.parent.chmod(0o311)
    try:
        assert doctor("apply", named, "--yes").returncode == 0 and file.read_text() == NEW
    finally:
        file.parent.parent.chmod(0o755)


def test_what_a_kill_leaves_is_no_part_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(OLD)
    (tmp_path / ".doctor-20261122-130000-abcdef-0.tmp").write_text("lr: 3\n")
    assert [f.name for f in Workspace([tmp_path]).files] == ["c.yaml"]
