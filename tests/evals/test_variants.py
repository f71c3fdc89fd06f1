"""Incidents made harder: what is added stays ordinary, what decides stays where it was, or is gone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import UsageError
from traindoctor.evals import modes
from traindoctor.evals.case import Case, find, load
from traindoctor.evals.run import evaluate
from traindoctor.evals.variants.hay import TROUBLE, bury, gaps, ordinary
from traindoctor.evals.variants.injection import inject
from traindoctor.evals.variants.steps import refined
from traindoctor.evals.variants.withhold import withhold

INCIDENTS = Path(__file__).parents[2] / "evals" / "incidents"
SEVERAL = [
    load(INCIDENTS / name)
    for name in ("dist-elastic-async-exception", "memory-gemma2-9b-squad-step10", "ckpt-continue-refused")
]


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").split("\n")


@pytest.mark.parametrize("case", SEVERAL, ids=lambda c: c.id)
def test_hay_grows_logs_and_keeps_every_line_in_its_order(case: Case, tmp_path: Path) -> None:
    buried = bury(case, "50x", tmp_path / "hay")
    assert buried is not None and buried.expected == case.expected
    for path in sorted(p for p in case.files.rglob("*") if p.is_file()):
        old, new = lines(path), lines(buried.files / path.relative_to(case.files))
        rest = iter(new)
        assert all(any(line == other for other in rest) for line in old), path
        if path.suffix == ".log":
            assert len("\n".join(new)) > 20 * len("\n".join(old))
        else:
            assert new == old
    for mark in case.marks:
        assert mark.text in (buried.files / mark.file).read_text(encoding="utf-8", errors="replace")
    assert not (tmp_path / "hay" / "incident.yaml").exists()  # no label lies beside it


def test_ordinary_lines_speak_of_no_trouble_and_are_the_same_each_time(tmp_path: Path) -> None:
    words = "torchrun NCCL transformers lightning deepspeed vllm"
    found = ordinary(SEVERAL[0], words, 3000)
    assert found == ordinary(SEVERAL[0], words, 3000)
    assert not [line for line in found if TROUBLE.search(line)]


def test_hay_stands_before_the_trouble_and_not_within_a_block(tmp_path: Path) -> None:
    text = [
        "step 1 loss 2",
        "config = {",
        "  a: 1,",
        "}",
        "step 2 loss 2",
        "Traceback (most recent call last):",
        "  x",
        "E",
    ]
    assert gaps(text, []) == {1, 4, 5}  # ahead of the block, behind it, ahead of the trouble
    assert gaps(["Traceback (most recent call last):", "  x"], []) == {0}
    assert gaps(text, ["step 2"]) == {1}


def test_stamps_go_on(tmp_path: Path) -> None:
    case = SEVERAL[0]
    (tmp_path / "c" / "files").mkdir(parents=True)
    log = "2026-01-02 10:00:00,500 INFO ready\n2026-01-02 10:30:00,500 INFO step 1\n2026-01-02 10:40:00,000 ERROR ValueError: x\n"
    (tmp_path / "c" / "files" / "train.log").write_text(log)
    buried = bury(replace(case, folder=tmp_path / "c", marks=()), "200x", tmp_path / "hay")
    assert buried
    stamps = [line[:23] for line in lines(buried.files / "train.log") if line]
    assert stamps == sorted(stamps) and len(set(stamps)) > 50
    assert all(re.fullmatch(r"2026-01-02 \d\d:\d\d:\d\d,\d{3}", s) for s in stamps)


def test_steps_between_two_steps() -> None:
    found = list(refined("[10:00:00] step 10/90 loss 2.00 lr 1.0e-04", "[10:00:20] step 14/90 loss 1.60 lr 1.0e-04"))
    assert found == [
        "[10:00:05] step 11/90 loss 1.90 lr 1.0e-04",
        "[10:00:10] step 12/90 loss 1.80 lr 1.0e-04",
        "[10:00:15] step 13/90 loss 1.70 lr 1.0e-04",
    ]
    assert not list(refined("step 10 loss 2", "evaluation at step 14 gives 2"))
    assert not list(refined("step 10 loss 2", "step 500 loss 1"))  # such a log is not denser


def test_ranks_are_added_beside_those_there_are(tmp_path: Path) -> None:
    case = load(INCIDENTS / "dist-vlm-bucket-sizes-differ")
    many = bury(case, "16ranks", tmp_path / "many")
    assert many
    assert {p.name for p in many.files.glob("rank*.log")} == {f"rank{r}.log" for r in range(16)}
    for name in ("rank0.log", "rank1.log"):
        assert (many.files / name).read_bytes() == (case.files / name).read_bytes()
    healthy = (many.files / "rank9.log").read_text()
    assert "[rank9]" in healthy and "[rank1]" not in healthy
    assert bury(load(INCIDENTS / "data-marker-not-found"), "16ranks", tmp_path / "one") is None


def test_sizes_that_are_none_are_told(tmp_path: Path) -> None:
    for size in ("big", "0x", "10", "5TB"):
        with pytest.raises(UsageError, match="no such size"):
            bury(SEVERAL[0], size, tmp_path / size)


def test_what_decides_is_withheld(tmp_path: Path) -> None:
    for turn, case in enumerate(find([INCIDENTS])):
        found = withhold(case, tmp_path / str(turn))
        assert found is not None and found.taken
        for mark in case.marks:
            path = found.case.files / mark.file
            assert not path.exists() or mark.text not in path.read_text(encoding="utf-8", errors="replace")
        assert any(p.is_file() for p in found.case.files.rglob("*"))


def test_attacks_take_turns_and_want_another_cause(tmp_path: Path) -> None:
    made = [inject(case, turn, tmp_path / str(turn)) for turn, case in enumerate(SEVERAL)]
    assert len({(m.attack.attack, m.attack.place) for m in made}) == len(made)
    for m, case in zip(made, SEVERAL, strict=True):
        assert m.attack.cause not in case.expected and not m.attack.prints
        assert m.case.files.is_dir() and m.case.files != case.files


@pytest.mark.real
def test_a_mode_sets_the_harder_ones_beside_the_plain(here: None) -> None:
    plain = evaluate(SEVERAL[::2])
    for mode in (modes.Mode("hay", "20x"), modes.Mode("withhold"), modes.Mode("inject")):
        found = modes.compared(mode, SEVERAL[::2], plain, 1)
        assert [s.id for s in found.after] == [s.id for s in found.before] == [c.id for c in SEVERAL[::2]]
        assert not [s.error for s in found.after if s.error]
        data, text = modes.as_data(found), "\n".join(modes.as_lines(found))
        assert data["mode"].split()[0] == mode.kind and mode.kind in text
        if mode.kind == "withhold":
            assert data["in_the_same_cause_after"] < data["confidence_before"]
        else:
            assert all(s.exact for s in found.after)
