"""Unified diffs: made, applied, reversed; git and patch agree; what is more than a plain change is refused."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.errors import DiffRefused
from traindoctor.agent.core.unified import applied, reversed_, together, unified

ODD = st.sampled_from(
    ["a", "b", "lr: 1", "\r", "x\r", "\f", "\u2028", "--- a", "+++ b", "@@ -1 +1 @@", "\\ No", "", "\t"]
)
TEXT = st.builds("".join, st.lists(st.tuples(ODD, st.sampled_from(["\n", "\n", "\n", "\r\n", ""])).map("".join)))
FREE = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)


@given(TEXT | FREE, TEXT | FREE)
def test_what_is_made_applies_and_goes_back(old: str, new: str) -> None:
    diff = unified(old, new, "run/ds.json")
    assert (diff == "") == (old == new)
    if diff:
        assert applied(diff, old, "run/ds.json") == new
        assert applied(diff, old, "run/ds.json", drift=True) == new
        assert applied(reversed_(diff, "run/ds.json"), new, "run/ds.json") == old
        with pytest.raises(DiffRefused):
            applied(diff, old, "run/other.json")


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.data())
def test_a_diff_for_another_text_applies_only_where_its_lines_stand(numbers: list[int], data: st.DataObject) -> None:
    old = "".join(f"{n}\n" for n in numbers)
    at = data.draw(st.integers(0, len(numbers) - 1))
    new = "".join(f"{9 if i == at else n}\n" for i, n in enumerate(numbers))
    diff = unified(old, new, "f")
    rows = diff.splitlines()
    want = [row[1:] for row in rows[3:] if row[0] != "+"]
    start = int(rows[2].split()[1].lstrip("-").split(",")[0]) - 1
    other = ["other", *old.splitlines()]
    if other[start : start + len(want)] == want:  # lines alike: the place that the diff names reads the same
        assert applied(diff, "other\n" + old, "f") == applied(diff, "other\n" + old, "f", drift=True)
        return
    with pytest.raises(DiffRefused):
        applied(diff, "other\n" + old, "f")
    places = sum(other[i : i + len(want)] == want for i in range(len(other)))
    if places == 1:
        assert applied(diff, "other\n" + old, "f", drift=True) == "other\n" + new
    else:
        with pytest.raises(DiffRefused):
            applied(diff, "other\n" + old, "f", drift=True)


PLAIN = st.lists(st.sampled_from(["a", "b", "c", "lr: 1", "x: {y: 2}", "# é"]), min_size=1, max_size=25)


@pytest.mark.parametrize(
    "name", ["ds.json", "my config.yaml", 'quo"te.yaml', "tab\there", "naïve 配置.yaml", "back\\slash"]
)
def test_git_and_patch_agree(name: str, tmp_path: Path) -> None:
    cases = [
        ("a\nb\nc\n", "a\nB\nc\n"), ("a\nb", "a\nb\n"), ("a\nb\n", "a\nb"), ("a\n" * 30 + "z\n", "q\n" + "a\n" * 30),
        ("".join(f"{i}\n" for i in range(40)), "".join(f"{i + 100 * (i in (2, 20, 39))}\n" for i in range(40))),
        ("a\r\nb\n\r\n", "a\r\nc\n\r\n"), ("x\n" * 9, "x\n" * 7 + "y\n\f\n"), ("one", "two"),
    ]  # fmt: skip
    for old, new in cases:
        diff = unified(old, new, name)
        for program in (["git", "apply", "-"], ["patch", "-p1", "-s", "--binary"]):
            (tmp_path / name).write_bytes(old.encode())
            done = subprocess.run(program, cwd=tmp_path, input=diff.encode(), capture_output=True, check=False)
            assert done.returncode == 0, (program, diff, done.stderr)
            assert (tmp_path / name).read_bytes() == new.encode(), (program, diff)


@given(PLAIN, PLAIN)
def test_no_more_lines_change_than_git_says(old: list[str], new: list[str]) -> None:
    import difflib

    diff = unified("".join(f"{x}\n" for x in old), "".join(f"{x}\n" for x in new), "f")
    rows = [row for row in diff.splitlines()[2:] if row[0] in "+-"]
    theirs = [row for row in difflib.unified_diff(old, new, lineterm="") if row[0] in "+-"][2:]
    assert len(rows) <= len(theirs)


GOOD = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"


@pytest.mark.parametrize(
    ("diff", "words"),
    [
        ("", "cut off"),
        ("nonsense\n", "not a plain change"),
        (GOOD[:-1], "cut off"),
        (GOOD.replace("a/f", "a/g"), "another file"),
        (GOOD.replace("a/f", "/etc/passwd"), "another file"),
        (GOOD.replace("b/f", "b/../f"), "another file"),
        (GOOD.replace("a/f", "/dev/null"), "creates or deletes"),
        (GOOD.replace("b/f", "/dev/null"), "creates or deletes"),
        ("rename from f\nrename to g\n" + GOOD, "renames"),
        ("diff --git a/f b/f\nold mode 100644\nnew mode 100755\n" + GOOD, "header"),
        (GOOD + GOOD, "another file"),
        (GOOD + "diff --git a/g b/g\n", "header"),
        (GOOD + "GIT binary patch\n", "binary"),
        (GOOD + "\n", "line 7"),
        (GOOD.replace("-1,2", "-1,3"), "damaged"),
        (GOOD.replace("+1,2", "+1,1"), "no plain change"),
        (GOOD.replace("+1,2", "+2,2"), "numbers"),
        (GOOD.replace("-1,2 +1,2", "-0,2 +0,2"), "numbers"),
        (GOOD.replace("-1,2", "-99999999999,2"), "no plain change"),
        (GOOD.replace("@@ -1,2 +1,2 @@", "@@@ -1,2 -1,2 +1,2 @@@"), "combined"),
        (GOOD.replace("\n a", "\n \0"), "no text file"),
        (GOOD.replace("\n a", "\na"), "damaged"),
        (GOOD.replace("\n a", "\n"), "damaged"),
        (GOOD.replace("-b\n+c\n", " b\n x\n"), "damaged"),
        (GOOD.replace("-b\n+c\n", " b\n"), "changes nothing"),
        (GOOD + "@@ -1,2 +1,2 @@\n a\n-b\n+c\n", "out of order"),
        (GOOD + "\\ No newline at end of file\n", "an end without"),
        (GOOD.replace("-b\n", "-b\n\\ No newline at end of file\n"), "does not fit"),
        ("--- a/f\n+++ b/f\n", "no hunk"),
        ("--- a/f\n+++ b/f\n@@ -1,0 +2 @@\n+x\n", "does not fit"),
        (GOOD.replace("+c", "+c" * 4_000_000), "MiB"),
    ],
)  # fmt: skip
def test_refused(diff: str, words: str) -> None:
    assert applied(GOOD, "a\nb\nz\n", "f") == "a\nc\nz\n"
    with pytest.raises(DiffRefused, match=words):
        applied(diff, "a\nb\nz\n", "f")


PIECE = st.sampled_from(
    ["\n", "@@ -1 +1 @@\n", "-", "+", " ", "\\ No newline at end of file\n", "--- a/f\n", "0", "9", ",", "a"]
)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, len(GOOD)), st.integers(0, 4), PIECE | FREE), max_size=6), st.booleans())
def test_a_damaged_diff_is_refused_or_does_what_it_says(damage: list[tuple[int, int, str]], drift: bool) -> None:
    diff = GOOD
    for at, cut, put in damage:
        diff = diff[:at] + put + diff[at + cut :]
    try:
        new = applied(diff, "a\nb\nz\n", "f", drift=drift)
    except DiffRefused:
        return
    assert applied(reversed_(diff, "f"), new, "f", drift=drift) == "a\nb\nz\n"
    body = diff.split("\n", 2)[2].split("\n")
    assert all(row[1:] in new for row in body if row.startswith("+")), "an added line is missing"


def test_too_many_hunks() -> None:
    many = "".join(f"@@ -{i} +{i} @@\n-a\n+b\n" for i in range(1, 20_003))
    with pytest.raises(DiffRefused, match="hunks"):
        applied("--- a/f\n+++ b/f\n" + many, "a\n" * 30_000, "f")


def test_two_diffs_of_one_text_come_together_where_they_leave_each_other_alone() -> None:
    old = "".join(f"{i}\n" for i in range(9))
    one, two = old.replace("3", "three"), old.replace("4", "four")
    both = [unified(old, one, "f"), unified(old, two, "f")]
    assert together(both, old, "f") == old.replace("3", "three").replace("4", "four")
    assert together(both[::-1], old, "f") == old.replace("3", "three").replace("4", "four")
    assert together([both[0], both[0]], old, "f") == one
    with pytest.raises(DiffRefused, match="meet at line 4"):
        together([both[0], unified(old, old.replace("3", "III"), "f")], old, "f")
    with pytest.raises(DiffRefused, match="meet at line 4"):
        together([unified(old, old.replace("3", "x\n3"), "f"), unified(old, old.replace("3", "y\n3"), "f")], old, "f")


def test_a_large_file_costs_little() -> None:
    rows = [f'  "k{i % 97}": {i % 13},\n' for i in range(250_000)]
    old = "".join(rows)
    rows[7] = rows[125_000] = rows[249_990] = "changed\n"
    began = time.perf_counter()
    diff = unified(old, "".join(rows), "f")
    assert applied(diff, old, "f") == "".join(rows)
    assert diff.count("\n@@ ") == 3
    assert time.perf_counter() - began < 10  # a quadratic comparison takes many minutes
    assert applied(unified(old, "x\n" * 3_000, "f").replace("\r", ""), old, "f") == "x\n" * 3_000
