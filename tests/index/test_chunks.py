"""Cutting texts at their headings, and texts into terms."""

from __future__ import annotations

from traindoctor.index.chunks import WORDS, split
from traindoctor.index.words import stem, terms


def test_path_of_headings() -> None:
    found = list(split("intro\n\n# A\none\n\n## B\ntwo\n\n# C\nthree"))
    assert found == [([], "intro"), (["A"], "one"), (["A", "B"], "two"), (["C"], "three")]


def test_no_headings_inside_code() -> None:
    found = list(split("# A\n```bash\n# comment\nls\n```\ntext\n\n# B\nmore"))
    assert [headings for headings, _ in found] == [["A"], ["B"]]
    assert "# comment" in found[0][1]


def test_unclosed_fence_hides_nothing() -> None:
    assert [h for h, _ in split("# A\n```\ncode\n\n# B\nmore")] == [["A"], ["B"]]


def test_underlined_headings() -> None:
    assert list(split("Title\n=====\ntext\n\nPart\n----\nmore")) == [
        (["Title"], "text"),
        (["Title", "Part"], "more"),
    ]


def test_plain_text_headings_stand_alone() -> None:
    text = "Running out of memory\n\nA long text, with a full stop.\n# a code comment\nx = 1\n\nSlow steps\n\nMore."
    assert [h for h, _ in split(text)] == [["Running out of memory"], ["Slow steps"]]


def test_long_sections_are_cut() -> None:
    paragraph = " ".join(["word"] * 100)
    found = list(split("# A\n" + "\n\n".join([paragraph] * 4)))
    assert len(found) == 4
    one_line = list(split("# A\n" + " ".join(["word"] * 1000)))
    assert all(len(text.split()) <= WORDS for _, text in one_line)
    assert sum(len(text.split()) for _, text in one_line) == 1000


def test_nothing_is_lost_and_nothing_empty() -> None:
    assert list(split("")) == []
    assert list(split("\n\n# Empty\n\n# Full\nx")) == [(["Full"], "x")]


def test_identifiers_whole_and_in_parts() -> None:
    found = terms("set CUDA_VISIBLE_DEVICES; torch.cuda.OutOfMemoryError")
    assert {"cuda_visible_devices", "torch.cuda.outofmemoryerror", "memory", stem("devices")} <= set(found)


def test_word_forms_meet() -> None:
    assert terms("clipping gradients") == terms("clipped gradient")
    assert terms("the of and") == []
