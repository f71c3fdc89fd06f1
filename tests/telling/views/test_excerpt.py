"""Rows of a file around any place: numbers, packed files, huge lines, files that change."""

from __future__ import annotations

import gzip
import threading
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import ParseError
from traindoctor.agent.core.report import CitedEvidence
from traindoctor.agent.reading.run.files import RunFile
from traindoctor.agent.telling.views.excerpt import Cancelled, Excerpt, Watch, without_head

LINES = [f"step {n} loss {n / 7:.3f} " + "x" * (n % 90) for n in range(1, 40_001)]
TEXT = "\n".join(LINES).encode() + b"\n"


def _offset(number: int) -> int:
    return sum(len(line) + 1 for line in LINES[: number - 1])


def _page(path: Path, content: bytes, known: dict[int, int] | None = None) -> Excerpt:
    path.write_bytes(content)
    return Excerpt(RunFile(path.name, path, "log", len(content)), known).opened()


@pytest.mark.parametrize("form", ["plain", "gz", "utf16", "zst"])
def test_rows_about_a_place_have_their_numbers_and_texts(tmp_path: Path, form: str) -> None:
    import zstandard

    content = {"plain": TEXT, "gz": gzip.compress(TEXT), "utf16": TEXT.decode().encode("utf-16"),
               "zst": zstandard.compress(TEXT)}[form]  # fmt: skip
    shift = 3 if form == "utf16" else 0  # the mark at its beginning is three bytes of what it holds
    page = _page(tmp_path / "a.log", content)
    if shift:
        shift = page.measured() - len(TEXT)
    at = _offset(30_000) + shift
    rows = [*page.before(at, 30_000, 400), *page.after(at, 30_000, 400)]
    assert [r.number for r in rows] == list(range(29_600, 30_400))
    assert [r.text for r in rows] == LINES[29_599:30_399]
    assert page.place_of(39_999, Watch()) == (_offset(39_999) + shift, 39_999)
    assert page.number_at(_offset(12_345) + shift, Watch()) == 12_345 and page.ending(2)[-1].text == LINES[-1]


def test_numbers_are_counted_from_the_nearest_known_line_in_both_directions(tmp_path: Path) -> None:
    page = _page(tmp_path / "a.log", TEXT, {_offset(20_000): 20_000})
    assert page.number_at(_offset(19_990), Watch()) == 19_990
    watch = Watch()
    assert page.number_at(_offset(20_010), watch) == 20_010
    assert watch.total == _offset(20_010) - _offset(20_000), "it was counted from farther away than needed"
    assert page.place_of(10**9, Watch()) == (_offset(40_000), 40_000) and page.place_of(1, Watch()) == (0, 1)
    assert page.before(0, 1, 5) == []


def test_the_end_without_a_newline_and_files_of_nothing(tmp_path: Path) -> None:
    page = _page(tmp_path / "a.log", b"one\ntwo\r\n\nlast")
    assert [(r.number, r.text) for r in page.ending(9)] == [(1, "one"), (2, "two"), (3, ""), (4, "last")]
    assert [r.text for r in page.after(0, 1, 9)] == ["one", "two", "", "last"]
    assert page.place_of(4, Watch()) == (10, 4)
    empty = _page(tmp_path / "b.log", b"")
    assert (empty.ending(3), empty.after(0, 1, 3), empty.row(0, 1)) == ([], [], None)


def test_a_line_of_megabytes_is_cut_and_its_length_told(tmp_path: Path) -> None:
    page = _page(tmp_path / "a.log", b"before\n" + b"y" * (10 << 20) + b"\nafter\n")
    rows = page.after(0, 1, 9)
    assert [(r.number, len(r.text), r.size, r.cut) for r in rows] == [
        (1, 6, 6, False), (2, 4_000, 10 << 20, True), (3, 5, 5, False)
    ]  # fmt: skip
    assert page.before(page.size, 4, 9) == rows and sum(map(len, page._cache.values())) <= 16 << 18


def test_a_line_beyond_all_bounds_goes_on_in_rows_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traindoctor.agent.telling.views.excerpt.LONGEST", 1000)
    page = _page(tmp_path / "a.log", b"a\n" + b"z" * 2500 + b"\nb\n")
    rows = page.after(0, 1, 9)
    assert [(r.number, r.size) for r in rows] == [(1, 1), (2, 1000), (2, 1000), (2, 500), (3, 1)]
    back = page.before(page.size, 4, 9)
    assert (back[0].number, back[-1].number, sum(r.size for r in back)) == (1, 3, 2502)


def test_a_text_is_found_across_blocks_and_the_search_can_be_stopped(tmp_path: Path) -> None:
    content = b"q" * ((1 << 20) - 3) + b"\nneedle here\n" + TEXT
    page = _page(tmp_path / "a.log", content)
    assert page.find("needle", 0, Watch()) == (1 << 20) - 2 and page.find("NEEDLE", 0, Watch()) is None
    assert page.find("step 40000 loss", 0, Watch()) == content.index(b"step 40000 loss")
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        page.find("nowhere", 0, Watch(stop=stop))


def test_what_happens_to_the_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    page = _page(path, TEXT)
    cited = CitedEvidence(
        id="E1", key="log.line", kind="line", file="a.log", line=100, offset=_offset(100), text=LINES[99]
    )
    assert page.changed() == "" and page.says(cited) and page.number_at(_offset(100), Watch()) == 100
    with path.open("ab") as more:
        more.write(b"it grows\n")
    assert page.changed() == "" and page.ending(1)[0].text == "it grows"
    path.write_bytes(b"short\n")
    assert "shorter" in page.changed()
    path.unlink()
    assert "gone" in page.changed()
    (last,) = page.ending(1)
    assert last.text == "short", "what was opened can still be read"
    assert last.number == 1, "numbers of the file as it was are forgotten"
    path.write_bytes(TEXT)
    assert "another file" in page.changed() and not page.says(cited)


def test_what_cannot_be_opened_or_unpacked_is_told(tmp_path: Path) -> None:
    with pytest.raises(ParseError):
        Excerpt(RunFile("gone", tmp_path / "gone", "log", 1)).opened()
    page = _page(tmp_path / "a.log.gz", gzip.compress(TEXT)[:-4000])
    assert page.notes and "cut off" in page.notes[0] and page.after(0, 1, 1)[0].text == LINES[0]


@pytest.mark.parametrize(("line", "shown"), [
    ("2026-03-04 03:12:01,123 - ERROR - loss is nan", "loss is nan"),
    ("[rank3]: RuntimeError: CUDA error", "RuntimeError: CUDA error"),
    ("2026-03-04T03:12:01Z [rank3] [INFO] step 5", "step 5"),
    ("  step 5 loss 2.0", "step 5 loss 2.0"),
    ("2026-03-04 03:12:01", "2026-03-04 03:12:01"),
    ("", ""),
    ("(Worker pid=7) died [repeated 3x across cluster]", "died [repeated 3x across cluster]"),
])  # fmt: skip
def test_what_a_logger_put_first_gives_way(line: str, shown: str) -> None:
    assert without_head(line) == shown
