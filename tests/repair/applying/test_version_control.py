"""Files under git: local changes are told, a branch is made without touching anything else, and no setting of a
repository runs a program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.repair.applying.makers import kept, patch, report, tree

OLD = "a: 1\nb: 2\n"
NEW = "a: 1\nb: 9\n"


def git(folder: Path, *arguments: str) -> str:
    """Git as a user with a name runs it."""
    who = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose folder `conf` is the run, and a report with a patch of one of its files."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "T")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "t@example.org")
    repo = tmp_path / "repo"
    (repo / "conf").mkdir(parents=True)
    git(repo, "init", "-q", "-b", "main")
    (repo / "conf/c.yaml").write_text(OLD)
    (repo / "conf/run me.sh").write_text("#!/bin/sh\n")
    (repo / "conf/run me.sh").chmod(0o755)
    (repo / "other.txt").write_text("other\n")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "first")
    patches = [
        patch("P1", "c.yaml", OLD, NEW, title="Take nine"),
        patch("P2", "run me.sh", "#!/bin/sh\n", "#!/bin/sh\nexport A=1\n"),
    ]
    return kept(tmp_path / "report.json", report([repo / "conf"], patches))


def test_local_changes_are_told_and_not_covered_by_yes(named: Path, doctor) -> None:
    repo = named.parent / "repo"
    (repo / "conf/c.yaml").write_text("before: 1\n")
    git(repo, "commit", "-qam", "second")
    (repo / "conf/c.yaml").write_text(OLD)
    done = doctor("apply", named, "--yes")
    assert done.returncode == 2 and "c.yaml has local changes under git" in done.stderr
    assert (repo / "conf/c.yaml").read_text() == OLD and "P1" in done.stdout
    assert "run me.sh has" not in done.stderr
    assert doctor("apply", named, "--yes", "--allow-dirty").returncode == 0
    assert (repo / "conf/c.yaml").read_text() == NEW


def test_a_clean_file_is_changed_and_undo_leaves_git_clean(named: Path, doctor) -> None:
    repo = named.parent / "repo"
    done = doctor("apply", named, "--yes")
    assert done.returncode == 0 and "git" not in done.stderr and git(repo, "diff", "--stat").count("|") == 2
    doctor("undo", "--yes")
    assert git(repo, "status", "--porcelain") == ""


def test_a_branch_with_one_commit_and_nothing_else(named: Path, doctor) -> None:
    repo = named.parent / "repo"
    (repo / "other.txt").write_text("mine\n")
    (repo / "staged.txt").write_text("staged\n")
    git(repo, "add", "staged.txt")
    (repo / ".git/hooks/pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (repo / ".git/hooks/pre-commit").chmod(0o755)
    head, status = git(repo, "rev-parse", "HEAD"), git(repo, "status", "--porcelain", "--branch")
    files, index = tree(repo / "conf"), (repo / ".git/index").read_bytes()
    done = doctor("apply", named, "--yes", "--commit")
    assert done.returncode == 0, done.stderr
    assert tree(repo / "conf") == files and (repo / ".git/index").read_bytes() == index
    assert git(repo, "status", "--porcelain", "--branch") == status and git(repo, "rev-parse", "HEAD") == head
    branch = "doctor/report"
    assert git(repo, "rev-parse", f"{branch}^") == head
    assert git(repo, "diff", "--name-only", "HEAD", branch).splitlines() == ["conf/c.yaml", "conf/run me.sh"]
    assert git(repo, "show", f"{branch}:conf/c.yaml") == NEW
    assert git(repo, "ls-tree", branch, "conf/").count("100755") == 1
    message = git(repo, "log", "-1", "--format=%B", branch)
    assert message.startswith("Take nine\n") and "Cause: loss.fp16_overflow" in message and "Patches: P1, P2" in message
    assert "git branch -D doctor/report" in done.stdout
    said = doctor("undo", "--yes")
    assert (
        said.returncode == 0 and "branch -D doctor/report" in said.stdout and git(repo, "branch").count("doctor/report")
    )
    again = doctor("apply", named, "--yes", "--commit")
    assert again.returncode == 0 and "doctor/report-2" in again.stdout and git(repo, "fsck", "--strict") == ""


def test_branches_that_cannot_be(named: Path, doctor) -> None:
    for branch, words in (
        ("main", "there is a branch main"),
        ("--force", "no name"),
        ("a..b", "no name"),
        ("", "no name"),
    ):
        done = doctor("apply", named, "--yes", f"--branch={branch}")
        assert done.returncode == 2 and words in done.stderr, done.stderr
    repo = named.parent / "repo"
    (repo / "conf/c.yaml").chmod(0o755)
    git(repo, "commit", "-qam", "mode")
    assert doctor("apply", named, "--yes", "--branch", "ok").returncode == 0
    assert git(repo, "branch", "--list").split() == ["*", "main", "ok"]


def test_no_commit_of_what_git_does_not_have(named: Path, doctor) -> None:
    repo = named.parent / "repo"
    git(repo, "rm", "-q", "--cached", "conf/c.yaml")
    assert "local changes" in doctor("apply", named, "--yes", "--commit").stderr  # removed in the index
    git(repo, "commit", "-qm", "gone")
    assert "not under version control" in doctor("apply", named, "--yes", "--commit").stderr
    assert doctor("apply", named, "--yes").returncode == 0
    assert git(repo, "branch", "--list").split() == ["*", "main"]


def test_line_ends_that_git_converts(named: Path, doctor) -> None:
    repo = named.parent / "repo"
    git(repo, "config", "core.autocrlf", "true")
    old = OLD.replace("\n", "\r\n")
    (repo / "conf/c.yaml").write_bytes(old.encode())
    kept(named, report([repo / "conf"], [patch("P1", "c.yaml", old, old.replace("2", "9"))]))
    done = doctor("apply", named, "--yes", "--branch", "ends")
    assert done.returncode == 0, done.stderr
    assert git(repo, "cat-file", "blob", "ends:conf/c.yaml") == NEW
    assert "local changes" not in doctor("apply", named, "--yes").stderr


def test_a_repository_cannot_run_programs(named: Path, doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = named.parent / "repo"
    trap = named.parent / "trap.sh"
    trap.write_text(f"#!/bin/sh\necho $0 $@ >> {named.parent}/sprung\ncat\n")
    trap.chmod(0o755)
    for key in (
        "core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.askPass", "diff.external", "gpg.program",
        "credential.helper", "filter.x.clean", "filter.x.smudge", "filter.x.process", "diff.x.textconv", "merge.x.driver",
        "core.alternateRefsCommand", "sequence.editor", "uploadpack.packObjectsHook", "alias.rev-parse", "alias.ls-files",
    ):  # fmt: skip
        git(repo, "config", key, f"!{trap}" if key.startswith("alias") else str(trap))
    git(repo, "config", "commit.gpgSign", "true")
    git(repo, "config", "filter.x.required", "true")
    (repo / ".git/info/attributes").write_text("* filter=x diff=x merge=x\n")
    hooks = repo / ".git/hooks"
    for name in (
        "reference-transaction",
        "post-index-change",
        "pre-commit",
        "post-commit",
        "commit-msg",
        "fsmonitor-watchman",
    ):
        (hooks / name).write_text(trap.read_text())
        (hooks / name).chmod(0o755)
    git(repo, "config", "core.hooksPath", str(hooks))
    (named.parent / "sprung").unlink(missing_ok=True)  # git itself, as just called, springs some
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(trap))
    monkeypatch.setenv("GIT_SSH_COMMAND", str(trap))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    done = doctor("apply", named, "--yes", "--branch", "quiet")
    assert done.returncode == 0, done.stderr
    assert doctor("apply", named, "--yes").returncode == 0 and not (named.parent / "sprung").exists()
    monkeypatch.delenv("GIT_DIR")
    git(repo, "-c", "core.fsmonitor=false", "update-ref", "refs/heads/loud", "HEAD")
    assert (named.parent / "sprung").exists()  # the trap works


def test_without_git_it_is_told(named: Path, doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = doctor("apply", named, "--yes")
    assert done.returncode == 0 and "git is not installed" in done.stderr
    doctor("undo", "--yes")
    assert "git is not installed" in doctor("apply", named, "--yes", "--commit").stderr


def test_nobody_to_commit_as(named: Path, doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("GIT_")]:
        monkeypatch.delenv(name)
    git(named.parent / "repo", "config", "user.useConfigOnly", "true")
    done = doctor("apply", named, "--yes", "--commit")
    assert done.returncode == 2 and "git does not know who commits" in done.stderr
    assert git(named.parent / "repo", "branch", "--list").split() == ["*", "main"]


def test_outside_of_any_repository_nothing_is_said(tmp_path: Path, doctor) -> None:
    (tmp_path / "c.yaml").write_text(OLD)
    named = kept(tmp_path / "report.json", report([tmp_path], [patch("P1", "c.yaml", OLD, NEW)]))
    done = doctor("apply", named, "--yes", "--commit")
    assert done.returncode == 2 and "not under version control" in done.stderr
    assert "git" not in doctor("apply", named, "--yes").stderr
