"""Lines around the evidence: those that stand in the file, read at the place, compared, redacted as a whole."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from traindoctor.agent.core.report import CitedEvidence, Report, RootCause, Sentence
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.telling.page.page_document import as_html
from traindoctor.agent.telling.page.page_evidence import LINES, windows

from tests.safety.redaction_corpus import planted
from tests.telling.page.parsed import checked

LOG = [f"line number {n} of {chr(96 + n % 26)}{chr(97 + n // 26)}" for n in range(1, 31)]


def cited(data: bytes, number: int, file: str = "train.log", ident: str = "E1") -> CitedEvidence:
    """Evidence of a line as a tool makes it."""
    lines = data.split(b"\n")
    offset = sum(len(line) + 1 for line in lines[: number - 1])
    text = lines[number - 1][:4096].decode(errors="replace")
    return CitedEvidence(id=ident, key="log.line", kind="line", file=file, line=number, offset=offset, text=text)


def report(*found: CitedEvidence) -> Report:
    """A diagnosis that cites these."""
    cites = [e.id for e in found]
    return Report(status="likely", root_cause=RootCause(id="loss.fp16_overflow", title="It overflows"), evidence=[*found],
                  summary=[Sentence(text="It overflows.", cites=cites)])  # fmt: skip


def rows(folder: Path, e: CitedEvidence) -> dict[int, str]:
    """The lines shown for a piece of evidence."""
    found = windows(Workspace([folder], live=False), [e])
    return found[0].rows() if found else {}


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [b"", None])
@pytest.mark.parametrize("number", [1, 2, 15, 29, 30])
def test_lines_before_and_after(tmp_path: Path, end: bytes, last: bytes | None, number: int) -> None:
    data = end.join(line.encode() for line in LOG) + (end if last is None else last)
    (tmp_path / "train.log").write_bytes(data)
    shown = rows(tmp_path, cited(data, number))
    wanted = range(max(1, number - LINES), min(30, number + LINES) + 1)
    assert shown == {n: LOG[n - 1] for n in wanted}


def test_what_does_not_stand_there_any_more_is_not_shown(tmp_path: Path) -> None:
    data = "\n".join(LOG).encode()
    e = cited(data, 15)
    for now in (data.replace(b"number 15", b"changed"), data[3:], data[: e.offset], b""):
        (tmp_path / "train.log").write_bytes(now or b"\n")
        assert rows(tmp_path, e) == {}
    page = checked(as_html(report(e), Workspace([tmp_path], live=False)))[0].said()
    assert "line number 15" in page  # what was cited is still told
    assert "line number 14" not in page


def test_a_file_that_is_gone_or_no_file(tmp_path: Path) -> None:
    data = "\n".join(LOG).encode()
    (tmp_path / "train.log").write_bytes(data)
    ws = Workspace([tmp_path], live=False)
    (tmp_path / "train.log").unlink()
    (tmp_path / "train.log").mkdir()
    assert windows(ws, [cited(data, 15)]) == []
    checked(as_html(report(cited(data, 15)), ws))


def test_lines_of_a_packed_file_are_shown_where_that_is_cheap(tmp_path: Path) -> None:
    data = "\n".join(LOG).encode()
    (tmp_path / "train.log.gz").write_bytes(gzip.compress(data))
    shown = rows(tmp_path, cited(data, 15, "train.log.gz"))
    assert sorted(shown) == list(range(11, 20))


def test_long_lines_are_clipped_and_counted(tmp_path: Path) -> None:
    data = b"short\n" + b"x" * 10_000_000 + b"\nafter"
    (tmp_path / "train.log").write_bytes(data)
    first, second = cited(data, 1), cited(data, 2, ident="E2")
    page = checked(as_html(report(first, second), Workspace([tmp_path], live=False)))[0]
    assert "more characters" in page.said() and len(page.text) < 60_000


def test_neighbouring_lines_share_an_excerpt(tmp_path: Path) -> None:
    data = "\n".join(LOG).encode()
    (tmp_path / "train.log").write_bytes(data)
    found = [cited(data, n, ident=f"E{n}") for n in (3, 8, 25)]
    page, tree = checked(as_html(report(*found), Workspace([tmp_path], live=False)))
    excerpts = page.of_class(tree, "lines")
    assert [text.count("\n") for text in excerpts] == [12, 9]  # 1 to 12, and 21 to 29
    assert page.of_class(tree, "cited") == [f">{n:>6} {LOG[n - 1]}\n" for n in (3, 8, 25)]


def test_a_large_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"\n".join(b"step %d loss 2.0" % n for n in range(200_000))
    (tmp_path / "train.log").write_bytes(data)
    ws = Workspace([tmp_path], live=False)
    from traindoctor.agent.reading.curves.curves import curves

    curves(ws)
    read: list[int] = []

    def blocks(*_: object) -> object:
        read.append(1)
        raise AssertionError("the file was read through")

    monkeypatch.setattr("traindoctor.agent.reading.run.files.blocks", blocks)
    monkeypatch.setattr("traindoctor.agent.reading.run.files.raw_blocks", blocks)
    page, tree = checked(as_html(report(cited(data, 150_000)), ws))
    assert len(page.of_class(tree, "cited")) == 1 and [e for e, _ in page.elements].count("svg") == 1
    assert not read


BATCHES = [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 6))]


@pytest.mark.parametrize("batch", BATCHES)
def test_no_secret_of_the_lines_around_gets_out(tmp_path: Path, batch: int) -> None:
    hidden = list(planted(3, each=1))[batch::6]
    lines, places = ["starting up"], []
    for one in hidden:
        own = one.text.splitlines()
        places.append(
            len(lines) + 1 + next(n for n, line in enumerate(own) if one.secrets[0].split("\n")[0][:6] in line)
        )
        lines += [*own, *["quiet"] * 6]
    data = "\n".join(lines).encode()
    (tmp_path / "train.log").write_bytes(data)
    found = [cited(data, n, ident=f"E{n}") for n in places]
    page, tree = checked(as_html(report(*found), Workspace([tmp_path], live=False)))
    assert len(page.of_class(tree, "cited")) > 8
    for one in hidden:
        assert not [s for s in one.secrets if s in page.text], one.kind


def test_a_line_in_the_middle_of_a_key_is_told_by_the_lines_around_it(tmp_path: Path) -> None:
    block = next(w for w in planted(5) if "-----BEGIN" in w.text and w.text.count("\n") > 6)
    data = f"step 1\n{block.text}\nstep 2".encode()
    (tmp_path / "train.log").write_bytes(data)
    middle = data[: data.index(b"-----BEGIN")].count(b"\n") + 4
    e = cited(data, middle)
    assert len(e.text) > 20
    text = as_html(report(e), Workspace([tmp_path], live=False))
    assert e.text[:24] not in text
