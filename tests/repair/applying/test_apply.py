"""`doctor apply` and `doctor undo` on plain files: what is written, what belongs together, what is there already."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.repair.applying.makers import SESSION, journal_of, kept, one_file, patch, report, tree

JSON = '{\n  "fp16": {"enabled": true},\n  "train_micro_batch_size_per_gpu": 8\n}\n'
YAML = "# ours\nlr: 1e-4   # tuned\nfp16: true\nsteps: 10\n"
LINE = st.sampled_from(["lr: 1", "\tx", "# é 配", "", "a: &b {c: 1}", "d: *b", "lr: 1", "\u2028", "\f", "x: [1,", "]"])
TEXT = st.lists(st.tuples(LINE, st.sampled_from(["\n", "\n", "\r\n"])).map("".join), max_size=30).map("".join)


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """A run with two files, and a report: P1 and P2 belong together, P3 stands alone."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "ds.json").write_text(JSON)
    (run / "train.yaml").write_text(YAML)
    patches = [
        patch(
            "P1", "ds.json", JSON, JSON.replace("fp16", "bf16"), why="Half overflows.", risk="Slower.", verify="watch"
        ),
        patch("P2", "train.yaml", YAML, YAML.replace("fp16", "bf16"), edits=["precision: fp16 -> bf16"]),
        patch("P3", "train.yaml", YAML, YAML.replace("1e-4", "5e-5")),
    ]
    return kept(tmp_path / "report.json", report([run], patches, ["P1", "P2"], ["P3"]))


def test_a_set_is_shown_written_and_undone(both: Path, doctor) -> None:
    run = both.parent / "run"
    before = tree(run)
    shown = doctor("apply", both, "--dry-run")
    assert shown.returncode == 0 and tree(run) == before
    for words in ("why: Half overflows.", "risk: Slower.", "verify: watch", '+  "bf16"', "+bf16: true", "fp16 -> bf16"):
        assert words in shown.stdout
    done = doctor("apply", both, "--yes")
    assert done.returncode == 0, done.stderr
    assert "of 2 repairs with patches the first is taken" in done.stderr
    assert (run / "ds.json").read_text() == JSON.replace("fp16", "bf16")
    assert (run / "train.yaml").read_text() == YAML.replace("fp16", "bf16")
    assert {p.name for p in run.iterdir()} == {"ds.json", "train.yaml"}
    assert "undone" in doctor("undo", "--yes").stdout and tree(run) == before


def test_nobody_to_ask_means_no(both: Path, doctor) -> None:
    before = tree(both.parent)
    done = doctor("apply", both)
    assert done.returncode == 2 and "nobody can be asked" in done.stderr
    assert tree(both.parent) == before and not journal_of().exists()


def test_naming_one_brings_its_set(both: Path, doctor) -> None:
    done = doctor("apply", both, "p1", "--dry-run")
    assert "P2 belongs to P1" in done.stderr and "+bf16: true" in done.stdout
    only = doctor("apply", both, "P1", "--only", "--yes")
    assert "applied without P2" in only.stderr and (both.parent / "run/train.yaml").read_text() == YAML
    assert "no patch P9" in doctor("apply", both, "P9", "--yes").stderr


@pytest.mark.parametrize("helps_first", [True, False])
def test_what_only_helps_to_find_the_cause_is_never_taken_for_the_repair(tmp_path, doctor, helps_first):
    (run := tmp_path / "run").mkdir()
    (run / "train.yaml").write_text(YAML)
    patches = [
        patch("P1", "train.yaml", YAML, f"log: debug\n{YAML}"),
        patch("P2", "train.yaml", YAML, YAML.replace("fp16", "bf16")),
    ]
    sets = [["P1"], ["P2"]] if helps_first else [["P2"], ["P1"]]
    data = report([run], patches, *sets)
    data["fixes"][0 if helps_first else 1]["finds"] = True
    saved = kept(tmp_path / "report.json", data)
    assert "A help, no repair: Repair P1" in doctor("apply", saved, "--list").stdout
    assert doctor("apply", saved, "--yes").returncode == 0
    assert (run / "train.yaml").read_text() == YAML.replace("fp16", "bf16")


def test_a_help_alone_is_taken_by_name_only(tmp_path: Path, doctor) -> None:
    (run := tmp_path / "run").mkdir()
    (run / "train.yaml").write_text(YAML)
    data = report([run], [patch("P1", "train.yaml", YAML, f"log: debug\n{YAML}")])
    data["fixes"][0]["finds"] = True
    saved = kept(tmp_path / "report.json", data)
    refused = doctor("apply", saved, "--yes")
    assert refused.returncode == 2 and "no patch that repairs" in refused.stderr and "P1" in refused.stderr
    assert (run / "train.yaml").read_text() == YAML and doctor("apply", saved, "P1", "--yes").returncode == 0
    assert (run / "train.yaml").read_text().startswith("log: debug")


def test_the_list_writes_nothing(both: Path, doctor) -> None:
    done = doctor("apply", both, "--list")
    assert done.returncode == 0
    starts = ["1. Repair P1, P2", "   P1  ds.json: Do P1", "   P2  train", "2. Repair P3", "   P3  train"]
    assert [r.startswith(s) for r, s in zip(done.stdout.splitlines(), starts, strict=True)] == [True] * 5


def test_twice_is_once(both: Path, doctor) -> None:
    doctor("apply", both, "--yes")
    now = tree(both.parent / "run")
    again = doctor("apply", both, "--yes")
    assert again.returncode == 0 and "already applied: P1, P2" in again.stdout
    assert tree(both.parent / "run") == now and len([*journal_of().glob("2*")]) == 1
    other = doctor("apply", both, "P3", "--yes")
    assert other.returncode == 0, other.stderr
    text = YAML.replace("fp16", "bf16").replace("1e-4", "5e-5")
    assert (both.parent / "run/train.yaml").read_text() == text
    assert "already applied: P1, P2, P3" in doctor("apply", both, "P1", "P2", "P3", "--yes").stdout


def test_what_another_tool_applied_is_seen(both: Path, doctor) -> None:
    for name, text in (("ds.json", JSON), ("train.yaml", YAML)):
        (both.parent / "run" / name).write_text(text.replace("fp16", "bf16"))
    assert "already applied: P1, P2" in doctor("apply", both, "--yes").stdout


def test_a_file_that_changed_since_is_refused_and_its_set_with_it(both: Path, doctor) -> None:
    (both.parent / "run/train.yaml").write_text(YAML + "more: 1\n")
    before = tree(both.parent / "run")
    done = doctor("apply", both, "--yes")
    assert done.returncode == 2 and "train.yaml was changed since the report" in done.stderr
    assert len(done.stderr.splitlines()) == 2 and tree(both.parent / "run") == before


def test_undo_refuses_what_changed_since_and_says_where_the_old_content_is(both: Path, doctor) -> None:
    doctor("apply", both, "--yes")
    (both.parent / "run/train.yaml").write_text("mine: 1\n")
    before = tree(both.parent / "run")
    done = doctor("undo", "--yes")
    assert done.returncode == 2 and tree(both.parent / "run") == before
    old = done.stderr.split("content before is ")[1].rstrip(")\n")
    assert Path(old).read_text() == YAML


def test_undo_goes_backwards(both: Path, doctor) -> None:
    before = tree(both.parent / "run")
    doctor("apply", both, "--yes")
    doctor("apply", both, "P3", "--yes")
    newest, oldest = (row.split()[0] for row in doctor("undo", "--list").stdout.splitlines() if row[0] != " ")
    done = doctor("undo", oldest, "--yes")
    assert done.returncode == 2 and f"doctor undo {newest}" in done.stderr
    assert doctor("undo", "--yes").returncode == 0 and doctor("undo", "--yes").returncode == 0
    assert tree(both.parent / "run") == before and "nothing to undo" in doctor("undo", "--yes").stderr
    assert "undone already" in doctor("undo", oldest, "--yes").stderr
    assert "no apply" in doctor("undo", "nonsense", "--yes").stderr
    assert doctor("apply", both, "--yes").returncode == 0  # and the way is free again


def test_mode_and_times_come_back(tmp_path: Path, doctor) -> None:
    file, named = one_file(tmp_path, "a: 1\n", "a: 2\n")
    file.chmod(0o640)
    os.utime(file, ns=(10**18, 10**18))
    attributes = "user.note" if _takes_attributes(file) else ""
    doctor("apply", named, "--yes")
    assert file.stat().st_mode & 0o7777 == 0o640 and file.stat().st_mtime_ns != 10**18
    assert not attributes or os.getxattr(file, attributes) == b"ours"
    doctor("undo", "--yes")
    assert file.stat().st_mode & 0o7777 == 0o640 and file.stat().st_mtime_ns == 10**18
    assert not attributes or os.getxattr(file, attributes) == b"ours"


def _takes_attributes(file: Path) -> bool:
    try:
        os.setxattr(file, "user.note", b"ours")
    except OSError:
        return False
    return True


@pytest.mark.parametrize(("old", "new"), [
    ("a: 1\r\nb: 2\nc: 3\r\n", "a: 1\r\nb: 9\nc: 3\r\n"),
    ("a: 1\r\nb: 2\r\n", "a: 1\r\nb: 9\r\n"),
    ("\ta = 1\n", "\ta = 2\n"),
    ("a: 1", "a: 2"),
    ("\ufeffa: 1\nb: 2\n", "\ufeffa: 9\nb: 2\n"),
    ("a: 1\na: 1\na: 1\n", "a: 1\na: 2\na: 1\n"),
    ("a: &x {y: 1}\nb: *x\n", "a: &x {y: 2}\nb: *x\n"),
    ("", "a: 1\n"),
    ("a: 1\n", ""),
])  # fmt: skip
def test_texts_of_every_kind(old: str, new: str, tmp_path: Path, doctor) -> None:
    file, named = one_file(tmp_path, old, new, "settings.txt")
    done = doctor("apply", named, "--yes")
    assert done.returncode == 0, done.stderr
    assert file.read_bytes() == new.encode() and doctor("undo", "--yes").returncode == 0
    assert file.read_bytes() == old.encode()


@pytest.mark.parametrize(
    "name", ["my conf.yaml", 'quo"te\\.yaml', "配置 é.yaml", "new\nline.yaml", "-rf.yaml", "a b/c d.yaml"]
)
def test_names_of_every_kind(name: str, tmp_path: Path, doctor) -> None:
    file, named = one_file(tmp_path, "a: 1\n", "a: 2\n", name)
    done = doctor("apply", named, "--yes")
    assert done.returncode == 0, done.stderr
    assert file.read_text() == "a: 2\n" and "new\nline" not in done.stdout
    assert doctor("undo", "--yes").returncode == 0 and file.read_text() == "a: 1\n"


def test_line_ends_of_another_system_are_told_once(tmp_path: Path, doctor) -> None:
    _, named = one_file(tmp_path, "a: 1\r\nb: 2\r\n", "a: 1\r\nb: 9\r\n")
    shown = doctor("apply", named, "--dry-run").stdout
    assert "lines end in CRLF" in shown and "\\r" not in shown
    _, named = one_file(tmp_path, "a: 1\r\nb: 2\n", "a: 1\r\nb: 9\r\n")
    assert "+b: 9\\r" in doctor("apply", named, "--dry-run").stdout  # a change of the line end itself is seen


def test_a_patch_made_without_the_byte_order_mark_keeps_it(tmp_path: Path, doctor) -> None:
    file, named = one_file(tmp_path, "a: 1\n", "a: 2\n")
    file.write_bytes(b"\xef\xbb\xbfa: 1\n")
    data = json.loads(named.read_text())
    data["patches"][0]["sha256"] = patch("P", "f", "\ufeffa: 1\n", "x")["sha256"]
    kept(named, data)
    assert doctor("apply", named, "--yes").returncode == 0 and file.read_bytes() == b"\xef\xbb\xbfa: 2\n"
    assert "already applied" in doctor("apply", named, "--yes").stdout


def test_a_file_of_five_megabytes(tmp_path: Path, doctor) -> None:
    old = "".join(f"key_{i}: {i % 7}\n" for i in range(400_000))
    assert len(old) > 5_000_000
    file, named = one_file(tmp_path, old, old.replace("key_200000: 3", "key_200000: 4"), "big.txt")
    assert doctor("apply", named, "--yes").returncode == 0
    assert file.read_text() == old.replace("key_200000: 3", "key_200000: 4")
    assert doctor("undo", "--yes").returncode == 0 and file.read_text() == old


def test_a_long_line_is_shown_where_it_differs(tmp_path: Path, doctor) -> None:
    old = "{" + ", ".join(f'"k{i}": {i}' for i in range(50_000)) + "}"
    _, named = one_file(tmp_path, old, old.replace('"k40000": 40000', '"k40000": 7'), "one.json")
    done = doctor("apply", named, "--dry-run")
    assert '"k40000": 7' in done.stdout and "characters as before" in done.stdout and len(done.stdout) < 3000


def test_a_patch_that_breaks_a_file_is_refused(tmp_path: Path, doctor) -> None:
    file, named = one_file(tmp_path, JSON, JSON.replace("true}", "true"), "ds.json")
    done = doctor("apply", named, "--yes")
    assert done.returncode == 2 and "could not be read any more" in done.stderr and file.read_text() == JSON


def test_nothing_of_a_file_steers_the_terminal(tmp_path: Path, doctor) -> None:
    old = "a: 1 # \x1b[2J\u202e\n"
    _, named = one_file(tmp_path, old, old.replace("1", "2", 1), "x.txt", title="\x1b]0;x\x07", why="\u2066hi")
    shown = doctor("apply", named, "--dry-run").stdout
    assert not {"\x1b", "\x07", "\u202e", "\u2066"} & set(shown) and "\\x1b[2J\\u202e" in shown


def test_several_runs_and_the_healthy_one(tmp_path: Path, doctor) -> None:
    for name in ("one", "two", "good"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "c.yaml").write_text("a: 1\n")
    runs = [tmp_path / "one", tmp_path / "two", {"id": "r3", "root": str(tmp_path / "good"), "good": True}]
    patches = [patch(f"P{n}", f"r{n}/c.yaml", "a: 1\n", "a: 2\n") for n in (1, 2, 3)]
    named = kept(tmp_path / "report.json", report(runs, patches, ["P2"], ["P3"], ["P1"]))
    assert doctor("apply", named, "P2", "--yes").returncode == 0
    assert [(tmp_path / n / "c.yaml").read_text() for n in ("one", "two", "good")] == ["a: 1\n", "a: 2\n", "a: 1\n"]
    done = doctor("apply", named, "P3", "--yes")
    assert done.returncode == 2 and "healthy run" in done.stderr
    moved = tmp_path / "moved"
    (tmp_path / "one").rename(moved)
    assert "is gone" in doctor("apply", named, "P1", "--yes").stderr
    assert "2 runs, --run names 1" in doctor("apply", named, "P1", "--yes", "--run", moved).stderr
    assert doctor("apply", named, "P1", "--yes", "--run", moved, "--run", tmp_path / "two").returncode == 0
    assert (moved / "c.yaml").read_text() == "a: 2\n"


def test_a_root_that_is_a_file(tmp_path: Path, doctor) -> None:
    (tmp_path / "c.yaml").write_text("a: 1\n")
    (tmp_path / "other.yaml").write_text("a: 1\n")
    patches = [patch("P1", "c.yaml", "a: 1\n", "a: 2\n"), patch("P2", "other.yaml", "a: 1\n", "a: 2\n")]
    named = kept(tmp_path / "report.json", report([tmp_path / "c.yaml"], patches, ["P1"], ["P2"]))
    assert doctor("apply", named, "P1", "--yes").returncode == 0
    assert (tmp_path / "c.yaml").read_text() == "a: 2\n"
    assert "not a file of the run" in doctor("apply", named, "P2", "--yes").stderr
    assert (tmp_path / "other.yaml").read_text() == "a: 1\n"


def test_roots_are_looked_for_from_here_and_from_the_report(tmp_path: Path, doctor) -> None:
    file, named = one_file(tmp_path, "a: 1\n", "a: 2\n")
    data = json.loads(named.read_text())
    data["runs"][0]["root"] = "run"
    kept(named, data)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert doctor("apply", named, "--yes", cwd=elsewhere).returncode == 0 and file.read_text() == "a: 2\n"
    doctor("undo", "--yes")
    named.rename(elsewhere / "r.json")
    assert doctor("apply", "elsewhere/r.json", "--yes", cwd=tmp_path).returncode == 0 and file.read_text() == "a: 2\n"


def test_a_session_and_the_last_one(tmp_path: Path, doctor) -> None:
    from traindoctor.agent.core.report import Report
    from traindoctor.agent.session.store import save_report, usable_state

    file, named = one_file(tmp_path, "a: 1\n", "a: 2\n")
    assert "no report yet" in doctor("apply", "last", "--yes").stderr
    save_report(usable_state()[0], Report.model_validate_json(named.read_text()))
    assert doctor("apply", SESSION, "--yes").returncode == 0 and file.read_text() == "a: 2\n"
    assert "already applied" in doctor("apply", "last", "--yes").stdout
    assert "no session" in doctor("apply", "20200101-000000-000000", "--yes").stderr


def test_two_patches_of_one_file_that_meet_are_refused(tmp_path: Path, doctor) -> None:
    file, _ = one_file(tmp_path, YAML, YAML)
    patches = [patch(f"P{n}", "config.yaml", YAML, YAML.replace("1e-4", f"{n}e-5")) for n in (1, 2)]
    named = kept(tmp_path / "report.json", report([tmp_path / "run"], patches))
    done = doctor("apply", named, "--yes")
    assert done.returncode == 2 and "meet at line 2" in done.stderr and file.read_text() == YAML


def written_and_taken_back(folder: Path, old: str, new: str) -> None:
    """Apply a change to a file and undo it, looking at every byte."""
    from traindoctor.agent.core.report import Patch
    from traindoctor.agent.repair.applying.carry_out import carry_out, undo
    from traindoctor.agent.repair.applying.journal import Journal
    from traindoctor.agent.repair.applying.patch_plan import plan
    from traindoctor.agent.repair.applying.patch_targets import Root

    file = folder / "notes.txt"
    file.write_bytes(old.encode())
    patches = [Patch(**patch("P1", "notes.txt", old, new))] if old != new else []
    journal = Journal(Path(tempfile.mkdtemp(dir=folder)))
    made = plan(patches, [Root("r1", folder)], journal)
    assert bool(made.changes) == (old != new)
    if made.changes:
        entry = carry_out(made.changes, journal, "s", "c")
        assert file.read_bytes() == new.encode()
        assert plan(patches, [Root("r1", folder)], journal).already == patches
        undo(entry, journal)
    assert file.read_bytes() == old.encode()


UNSHARED = [HealthCheck.function_scoped_fixture]


@settings(max_examples=25, suppress_health_check=UNSHARED, deadline=None)
@given(TEXT, TEXT)
def test_any_change_is_written_and_taken_back_byte_for_byte(tmp_path: Path, old: str, new: str) -> None:
    written_and_taken_back(tmp_path, old, new)


@pytest.mark.soak
@settings(max_examples=500, suppress_health_check=UNSHARED, deadline=None)
@given(TEXT, TEXT)
def test_five_hundred_changes(tmp_path: Path, old: str, new: str) -> None:
    written_and_taken_back(tmp_path, old, new)
