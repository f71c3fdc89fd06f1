"""No signature may fire on what healthy runs print all day, unless it counts for little (weak) or nothing (harmless)."""

from pathlib import Path

import pytest
from traindoctor.agent.core.playbook import playbooks

LINES = (Path(__file__).parent / "ordinary.txt").read_text().splitlines()


@pytest.mark.parametrize("book", playbooks(), ids=lambda b: b.slug)
def test_ordinary_lines_hit_no_signature(book):
    hits = [
        (number, line[:80])
        for number, signature in enumerate(book.signatures, 1)
        for line in LINES
        if not signature.harmless and signature.weight != "weak" and signature.compiled.search(line)
    ]
    assert hits == []
