"""Repositories that come with a run: none leads a branch into another one of the user's; real worktrees still work."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.repair.applying.makers import kept, patch, report, tree
from tests.repair.applying.test_version_control import git

OLD, NEW = "a: 1\nb: 2\n", "a: 1\nb: 9\n"


@pytest.fixture(autouse=True)
def who(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who commits."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "T")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "t@example.org")


def repository(folder: Path) -> Path:
    """A repository with one committed file."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "c.yaml").write_text(OLD)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def lead_astray(run: Path, other: Path, how: str) -> None:
    """Let the `.git` of a run name the user's other repository."""
    own, theirs = run / ".git", other / ".git"
    if how == "file":
        shutil.rmtree(own)
        own.write_text(f"gitdir: {theirs}\n")
    elif how == "link":
        shutil.rmtree(own)
        own.symlink_to(theirs)
    elif how == "common folder":
        (own / "commondir").write_text(f"{theirs}\n")
    elif how == "its worktree":
        git(other, "worktree", "add", "-q", "-b", "side", str(other.parent / "side"))
        shutil.rmtree(own)
        own.write_text(f"gitdir: {theirs}/worktrees/side\n")
    else:
        part = own / {"objects": "objects", "branches": "refs/heads", "folder of branches": "refs/heads/doctor"}[how]
        if part.exists():
            shutil.rmtree(part)
        part.symlink_to(theirs / part.relative_to(own))
        (theirs / "refs/heads/doctor").mkdir(exist_ok=True)


@pytest.mark.parametrize(
    "how", ["file", "link", "common folder", "its worktree", "objects", "branches", "folder of branches"]
)
def test_no_branch_is_made_in_another_repository(how: str, tmp_path: Path, doctor) -> None:
    run, other = repository(tmp_path / "run"), repository(tmp_path / "home/other")
    lead_astray(run, other, how)
    named = kept(tmp_path / "report.json", report([run], [patch("P1", "c.yaml", OLD, NEW)]))
    before = tree(other)
    done = doctor("apply", named, "--yes", "--branch", "doctor/x")
    assert done.returncode == 2 and len(done.stderr.splitlines()) <= 3, done.stderr
    assert any(w in done.stderr for w in ("another repository", "would stand elsewhere")), done.stderr
    assert tree(other) == before and (run / "c.yaml").read_text() == OLD
    assert doctor("apply", named, "--yes").returncode == 0 and (run / "c.yaml").read_text() == NEW


def test_worktrees_and_submodules_of_ones_own_work(tmp_path: Path, doctor) -> None:
    main = repository(tmp_path / "main")
    git(main, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    part = repository(tmp_path / "part")
    git(main, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(part), "sub")
    for number, (run, store) in enumerate(((tmp_path / "side", main), (main / "sub", main / "sub"))):
        named = kept(tmp_path / "report.json", report([run], [patch("P1", "c.yaml", OLD, NEW)]))
        done = doctor("apply", named, "--yes", "--branch", f"doctor/{number}")
        assert done.returncode == 0, done.stderr
        assert git(store, "show", f"doctor/{number}:c.yaml") == NEW


@pytest.mark.parametrize("name", [".hg", ".svn", ".jj", ".bzr", ".SVN"])
def test_what_version_control_keeps_for_itself_is_refused(name: str, tmp_path: Path, doctor) -> None:
    (tmp_path / "run" / name).mkdir(parents=True)
    file = tmp_path / "run" / name / "hgrc"
    file.write_text("[ui]\n")
    named = kept(tmp_path / "r.json", report([tmp_path / "run"], [patch("P1", f"{name}/hgrc", "[ui]\n", "[hooks]\n")]))
    done = doctor("apply", named, "--yes")
    assert done.returncode == 2 and "belongs to version control" in done.stderr and file.read_text() == "[ui]\n"
