"""Cut and bit-flipped checkpoints of every format: no traceback, every cut is seen, so is every flip under a checksum."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from mutations import Damage, damages, table

CHECKED = ("torch zip", "ZeRO", "DCP")  # formats with checksums


def judge(found: list[Damage]) -> None:
    cut = [d for d in found if d.kind == "truncated"]
    assert cut and all(d.seen for d in cut), [d for d in cut if not d.seen]
    for d in found:
        if d.format in CHECKED and d.kind in ("flipped in data", "flipped in pickle", "flipped in directory"):
            assert d.seen or not d.changed, d


def test_damaged_files(tmp_path: Path) -> None:
    judge(list(damages(tmp_path, 200)))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_two_thousand_damaged_files(tmp_path: Path) -> None:
    found = list(damages(tmp_path, 2000, seed=1))
    print("\n" + table(found))  # noqa: T201
    judge(found)
