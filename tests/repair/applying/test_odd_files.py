"""Files that are no plain files, or not ours to write: refused with what to do, or handled and told."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.core.report import Patch
from traindoctor.agent.repair.applying import carry_out as module
from traindoctor.agent.repair.applying.carry_out import carry_out, interrupted
from traindoctor.agent.repair.applying.journal import DONE, UNDONE, Journal
from traindoctor.agent.repair.applying.patch_plan import plan
from traindoctor.agent.repair.applying.patch_targets import Root

from tests.repair.applying.makers import kept, one_file, patch, report, tree

CODE = "import sys; from traindoctor.agent.doors.cli import main; raise SystemExit(main(sys.argv[1:]))"


@pytest.mark.parametrize(("change", "words"), [
    (lambda f: f.chmod(0o444), "read-only"),
    (lambda f: f.with_name("twin").hardlink_to(f), "2 names (hard links)"),
    (lambda f: f.write_bytes(b"a: \xff\n"), "not UTF-8"),
    (lambda f: f.write_bytes(b"a: \0\n"), "zero bytes"),
    (lambda f: (f.unlink(), os.mkfifo(f)), "not a regular file"),
    (lambda f: (f.unlink(), f.mkdir()), "not a regular file"),
    (lambda f: f.unlink(), "No such file"),
    (lambda f: (f.unlink(), f.symlink_to("/etc/hostname")), "leads out of the run"),
    (lambda f: (f.unlink(), f.symlink_to(f.name)), "loop of links"),
    (lambda f: (f.unlink(), f.symlink_to("gone")), "No such file"),
    (lambda f: f.open("ab").truncate(65 << 20), "larger than 64 MiB"),
])  # fmt: skip
def test_refused(change, words: str, tmp_path: Path, doctor) -> None:
    file, named = one_file(tmp_path, "a: 1\n", "a: 2\n")
    change(file)
    before = [(p.name, p.lstat().st_mode, p.lstat().st_size) for p in sorted(file.parent.iterdir())]
    done = doctor("apply", named, "--yes")
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert [(p.name, p.lstat().st_mode, p.lstat().st_size) for p in sorted(file.parent.iterdir())] == before


def test_a_link_within_the_run_stays_a_link(tmp_path: Path, doctor) -> None:
    file, named = one_file(tmp_path, "a: 1\n", "a: 2\n", "real.yaml")
    (tmp_path / "run/config.yaml").symlink_to("real.yaml")
    kept(named, report([tmp_path / "run"], [patch("P1", "config.yaml", "a: 1\n", "a: 2\n")]))
    done = doctor("apply", named, "--yes")
    assert done.returncode == 0 and "is a link" in done.stderr
    assert (tmp_path / "run/config.yaml").is_symlink() and file.read_text() == "a: 2\n"
    doctor("undo", "--yes")
    assert (tmp_path / "run/config.yaml").is_symlink() and file.read_text() == "a: 1\n"


def test_one_file_under_two_names_is_refused(tmp_path: Path, doctor) -> None:
    file, named = one_file(tmp_path, "a: 1\nb: 1\n", "", "real.yaml")
    (tmp_path / "run/link.yaml").symlink_to("real.yaml")
    patches = [patch(n, f, "a: 1\nb: 1\n", "a: 2\nb: 1\n") for n, f in (("P1", "real.yaml"), ("P2", "link.yaml"))]
    done = doctor("apply", kept(named, report([tmp_path / "run"], patches)), "--yes")
    assert done.returncode == 2 and "same file" in done.stderr and file.read_text() == "a: 1\nb: 1\n"


def test_a_run_that_is_a_link_and_one_that_is_gone(tmp_path: Path, doctor) -> None:
    file, named = one_file(tmp_path, "a: 1\n", "a: 2\n")
    file.parent.rename(tmp_path / "elsewhere")
    assert "is gone" in doctor("apply", named, "--yes").stderr
    (tmp_path / "run").symlink_to("elsewhere")
    assert doctor("apply", named, "--yes").returncode == 0
    assert (tmp_path / "elsewhere/config.yaml").read_text() == "a: 2\n"


def planned(folder: Path, *names: str) -> tuple[list, Journal]:
    """Changes of several files, planned and not yet written."""
    for name in names:
        (folder / name).write_text("a: 1\n")
    patches = [Patch(**patch(f"P{n}", name, "a: 1\n", "a: 2\n")) for n, name in enumerate(names)]
    journal = Journal(folder.parent / "journal")
    return plan(patches, [Root("r1", folder)], journal).changes, journal


@pytest.mark.parametrize("what", ["other", "pipe", "link", "gone", "folder"])
def test_a_file_that_becomes_another_before_it_is_written(what: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "sub").mkdir(parents=True)
    changes, journal = planned(run, "one.yaml", "sub/two.yaml")
    two = run / "sub/two.yaml"
    if what == "folder":
        (run / "sub").rename(tmp_path / "moved")
        (run / "sub").symlink_to(tmp_path / "moved")
    else:
        two.unlink()
        {"other": lambda: two.write_text("mine\n"), "pipe": lambda: os.mkfifo(two), "gone": lambda: None,
         "link": lambda: two.symlink_to("../one.yaml")}[what]()  # fmt: skip
    before = tree(tmp_path)
    with pytest.raises(UsageError):
        carry_out(changes, journal, "s", "c")
    assert {k: v for k, v in tree(tmp_path).items() if not k.startswith("journal")} == before
    assert not journal.entries()


def test_a_set_of_which_the_second_changes_midway_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    run.mkdir()
    changes, journal = planned(run, "one.yaml", "two.yaml")
    put, calls = module.put, []

    def then_somebody_writes(*arguments: object) -> None:
        put(*arguments)  # pyright: ignore
        calls.append(arguments)
        if len(calls) == 1:
            assert (run / "one.yaml").read_text() == "a: 2\n"
            (run / "two.yaml").write_text("mine\n")

    monkeypatch.setattr(module, "put", then_somebody_writes)
    with pytest.raises(UsageError, match="changed meanwhile"):
        carry_out(changes, journal, "s", "c")
    assert {p.name: p.read_text() for p in run.iterdir()} == {"one.yaml": "a: 1\n", "two.yaml": "mine\n"}
    assert not interrupted(journal)


def test_an_interrupt_midway_puts_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    run.mkdir()
    changes, journal = planned(run, "one.yaml", "two.yaml")
    put, calls = module.put, []

    def then_ctrl_c(*arguments: object) -> None:
        put(*arguments)  # pyright: ignore
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "put", then_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        carry_out(changes, journal, "s", "c")
    assert {p.name: p.read_text() for p in run.iterdir()} == {"one.yaml": "a: 1\n", "two.yaml": "a: 1\n"}
    assert [journal.status(e) for e in journal.entries()] == [UNDONE]


def test_a_full_quota_changes_nothing(tmp_path: Path, process) -> None:
    old = "".join(f"k{i}: 1\n" for i in range(40_000))
    file, named = one_file(tmp_path, old, old.replace("k7: 1", "k7: 2"), "big.txt")
    before = tree(file.parent)
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
    for size in (1_000, 100_000):  # bytes that a file may have: too few for the journal, too few for anything
        code = f"{limit} resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size})); {CODE}"
        argv = [sys.executable, "-c", code, "apply", str(named), "--yes"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 2 and "nothing was changed" in done.stderr, done.stderr
        assert tree(file.parent) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_another_user_is_refused_in_a_folder_that_is_not_theirs(monkeypatch: pytest.MonkeyPatch, doctor) -> None:
    with tempfile.TemporaryDirectory() as made:
        top = Path(made)
        top.chmod(0o755)
        state = top / "state"
        state.mkdir(mode=0o777)
        state.chmod(0o777)
        monkeypatch.setenv("DOCTOR_STATE", str(state))
        file, named = one_file(top, "a: 1\n", "a: 2\n")
        doctor("apply", named, "--dry-run")  # what it imports may not be readable to the other user
        for mode, words in ((0o644, "config.yaml is read-only"), (0o666, "the folder of config.yaml is read-only")):
            file.chmod(mode)
            code, said = as_nobody(doctor, "apply", named, "--yes")
            assert code == 2 and words in said, said
            assert file.read_text() == "a: 1\n"
        file.parent.chmod(0o777)
        code, said = as_nobody(doctor, "apply", named, "--yes")
        assert code == 0 and "will belong to you" in said, said
        assert file.read_text() == "a: 2\n" and file.stat().st_mode & 0o777 == 0o666


def as_nobody(doctor, *arguments: object) -> tuple[int, str]:
    """Run the command in a fork that belongs to another user."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        code = 99
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            done = doctor(*arguments)
            os.write(theirs, done.stderr.encode())
            code = done.returncode
        finally:
            os._exit(code)
    os.close(theirs)
    with open(ours) as pipe:  # noqa: PTH123 -- a descriptor, no path
        said = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def test_two_at_once_are_one_after_the_other(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    changes, journal = planned(run, "one.yaml", "two.yaml", "three.yaml")
    said: list[str] = []

    def write() -> None:
        try:
            said.append(carry_out(changes, Journal(journal.folder.parent), "s", "c").id)
        except UsageError as e:
            said.append(e.message)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum("changed meanwhile" in s for s in said) == 3, said
    assert {p.name: p.read_text() for p in run.iterdir()} == dict.fromkeys(
        ("one.yaml", "two.yaml", "three.yaml"), "a: 2\n"
    )
    assert [journal.status(e) for e in journal.entries()] == [DONE]


def test_the_same_change_by_somebody_else_is_not_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    run.mkdir()
    changes, journal = planned(run, "one.yaml", "two.yaml")
    stage = module.stage

    def meanwhile(*arguments: object) -> int:
        (run / "two.yaml").write_text("a: 2\n")
        return stage(*arguments)  # pyright: ignore

    monkeypatch.setattr(module, "stage", meanwhile)
    with pytest.raises(UsageError, match="changed meanwhile"):
        carry_out(changes, journal, "s", "c")
    assert {p.name: p.read_text() for p in run.iterdir()} == {"one.yaml": "a: 1\n", "two.yaml": "a: 2\n"}
