"""The log pass: every hit, exact places, exact counts, in bounded memory, with either engine."""

import gzip
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.run.files import part, pieces
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.scan import logpass, patterns
from traindoctor.agent.reading.scan import patterns as compiled
from traindoctor.agent.reading.scan.literals import required
from traindoctor.agent.reading.scan.logpass import LogPass, run_pass
from traindoctor.agent.reading.scan.patterns import Pattern, refusal, relaxed, scanner

OOM = Pattern("sig.memory.x", r"CUDA out of memory\. Tried to allocate (?P<asked>[\d.]+ [KMG]iB)")
ENGINES = ("", "re2")


def scan(folder: Path, *known: Pattern, engine: str = "") -> LogPass:
    return run_pass(Workspace([folder]), list(known), engine)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


def test_captures_and_places(tmp_path: Path, engine: str) -> None:
    text = "a\n[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0\nb\n"
    (tmp_path / "train.log").write_text(text)
    (hit,) = scan(tmp_path, OOM, engine=engine).hits["sig.memory.x"]
    assert (hit.line.number, hit.line.offset, hit.rank, hit.captures) == (2, 2, 3, {"asked": "2.00 GiB"})
    assert hit.line.text == text.split("\n")[1]


def test_anchors_mean_the_body(tmp_path: Path, engine: str) -> None:
    known = Pattern("sig.a.b", r"^Killed$")
    (tmp_path / "t.log").write_text("[rank0]: Killed\nKilled process 3\nwas Killed\nKilled\n")
    found = scan(tmp_path, known, engine=engine)
    assert [h.line.number for h in found.hits["sig.a.b"]] == [1, 4]


def test_colours_inside_words_hide_nothing(tmp_path: Path, engine: str) -> None:
    raw = b"x\n\x1b[31mCUDA out\x1b[0m of memory. Tried to allocate 2.00 GiB\n"
    (tmp_path / "t.log").write_bytes(raw)
    (hit,) = scan(tmp_path, OOM, engine=engine).hits["sig.memory.x"]
    assert hit.line.number == 2 and hit.line.offset == 2
    assert hit.line.data == raw.split(b"\n")[1]  # shown as it stands in the file


def test_what_a_progress_bar_overwrote_is_found(tmp_path: Path, engine: str) -> None:
    bars = "".join(f"\r{i:3d}%|#   | {i}/100 [00:01<00:02, 1it/s]" for i in range(100))
    (tmp_path / "t.log").write_text(f"{bars}\rCUDA out of memory. Tried to allocate 1 GiB\r{bars}\nend\n")
    (hit,) = scan(tmp_path, OOM, engine=engine).hits["sig.memory.x"]
    assert hit.line.number == 1 and "CUDA out of memory" in hit.line.text


def test_counts_are_exact_and_first_and_last_are_kept(tmp_path: Path, engine: str) -> None:
    lines = [f"[rank{i % 2}]: CUDA out of memory. Tried to allocate {i} GiB" for i in range(1000)]
    (tmp_path / "t.log").write_text("\n".join(lines))
    hits = scan(tmp_path, OOM, engine=engine).hits["sig.memory.x"]
    by_rank = {r: [h for h in hits if h.rank == r] for r in (0, 1)}
    assert {h.count for h in hits} == {500}
    assert by_rank[0][0].line.number == 1 and by_rank[0][-1].line.number == 999
    assert by_rank[1][-1].line.number == 1000
    assert len(hits) < 40


def test_a_file_read_in_stretches_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random.seed(3)
    lines = [
        "CUDA out of memory. Tried to allocate 1 GiB" if random.random() < 0.01 else "x" * random.randrange(200)
        for _ in range(9000)
    ]
    (tmp_path / "t.log").write_text("\n".join(lines))
    whole = scan(tmp_path, OOM)
    monkeypatch.setattr(logpass, "STRETCH", 50_000)
    split = scan(tmp_path, OOM)
    assert [(h.line.number, h.line.offset, h.count) for h in whole.hits["sig.memory.x"]] == [
        (h.line.number, h.line.offset, h.count) for h in split.hits["sig.memory.x"]
    ]
    assert whole.files["t.log"].lines == split.files["t.log"].lines == 9000
    assert split.files["t.log"].last_line == whole.files["t.log"].last_line


def test_a_line_that_several_patterns_hit_has_one_number_in_each_stretch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = [Pattern("sig.data.x", "^KeyError: 'a'$", number=n) for n in range(3)]
    (tmp_path / "t.log").write_text("ordinary line\n" * 9000 + "KeyError: 'a'\n")
    monkeypatch.setattr(logpass, "STRETCH", 50_000)
    found = scan(tmp_path, *bare, Pattern("sig.env.y", "KeyError: 'a'")).hits
    assert {h.line.number for hits in found.values() for h in hits} == {9001} and len(found) == 2


@given(st.lists(st.binary(max_size=40), max_size=60), st.integers(1, 200), st.integers(1, 90))
def test_parts_that_touch_give_every_line_once(rows: list[bytes], size: int, block: int) -> None:
    data = b"\n".join(rows)
    got, number = [], 0
    for start in range(0, len(data), size):
        begin = max(start - 1, 0)
        stream = [data[i : i + block] for i in range(begin, len(data), block)]
        for piece in part(stream, start, start + size if start + size < len(data) else 1 << 60):
            assert data[piece.offset : piece.offset + len(piece.data)] == piece.data
            got.append(piece.data)
            number += piece.data.count(b"\n")
    assert b"".join(got) == data


@given(st.lists(st.sampled_from([b"ab", b"\n", b"x\r", b"long" * 9]), max_size=80), st.integers(1, 30))
def test_pieces_end_at_lines_and_count_them(parts: list[bytes], block: int) -> None:
    data = b"".join(parts)
    for piece in pieces(data[i : i + block] for i in range(0, len(data), block)):
        assert data[: piece.offset].count(b"\n") == piece.lines
        assert data[piece.offset : piece.offset + len(piece.data)] == piece.data


WORDS = (
    "CUDA out of memory",
    "NCCL error",
    "error",
    "nan",
    "loss",
    "Killed",
    "\x1b[1mKilled\x1b[0m",
    "step 3",
    "[rank1]: ",
    "\r",
    "é",
)
KNOWN = (
    Pattern("sig.a.a", r"CUDA out of (?P<what>\w+)"),
    Pattern("sig.a.b", r"^Killed"),
    Pattern("sig.a.c", r"(?i)nccl ERROR"),
    Pattern("sig.a.d", r"loss.{0,20}\bnan\b"),
    Pattern("sig.a.e", r"step \d+$"),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), max_size=30))
def test_both_engines_find_what_a_plain_search_of_each_line_finds(
    tmp_path_factory: pytest.TempPathFactory, rows: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("engines")
    (folder / "t.log").write_bytes("\n".join([*rows, "end"]).encode())

    def places(engine: str) -> dict[str, int]:
        return {n: max(h.count for h in hits) for n, hits in scan(folder, *KNOWN, engine=engine).hits.items()}

    def ranked(engine: str) -> set[tuple[str, int]]:
        return {(n, h.line.number) for n, hits in scan(folder, *KNOWN, engine=engine).hits.items() for h in hits}

    assert places("") == places("re2")
    assert ranked("") == ranked("re2")
    plain = {n for n, row in enumerate(rows, 1) if "CUDA out of memory" in row.split("\r")[-1] and "\r" not in row}
    assert plain <= {n for name, n in ranked("") if name == "sig.a.a"} or len(plain) > 6


@pytest.mark.parametrize(
    ("regex", "line"),
    [
        (r"^Watchdog caught (?P<x>\w+)$", "[rank1] Watchdog caught foobar baz"),
        (r"(?:^|\s)foo\d+", "a foo12"),
        (r"a[$^]b", "a$b"),
        (r"x\$+", "x$$$"),
        (r"[^\]]+\]$", "abc] d"),
        (r"(?i)loss\s*=\s*nan\Z", "Loss = NaN!"),
    ],
)
def test_a_relaxed_pattern_still_finds_the_line(regex: str, line: str) -> None:
    assert re.search(relaxed(regex), line)
    assert scanner([Pattern("p", regex, verify=False)]).scan(line.encode() + b"\n")


@pytest.mark.parametrize(
    ("regex", "line"),
    [
        (r"[Ff]ail(ed|ure) to (load|read) \d+ files?", "Failure to read 3 files"),
        (r"(?i)WATCHDOG caught", "watchdog CAUGHT"),
        (r"(Xid|SXid) \(PCI:\S+\): \d+", "Xid (PCI:0000): 79"),
        (r"(a|b)?checkpoint missing", "checkpoint missing"),
        (r"(?:foo|bar){2,}quux", "foobarquux"),
        (r"\bEADDRINUSE\b|address already in use", "EADDRINUSE"),
    ],
)
def test_every_match_holds_one_of_the_literals(regex: str, line: str) -> None:
    assert re.search(regex, line)
    literals, caseless = required(regex) or ((), False)
    assert literals
    assert any((s.lower() in line.lower()) if caseless else (s in line) for s in literals)


def test_common_words_are_no_literals() -> None:
    assert required("loss") is None
    assert required(r"\d+ \w+") is None
    assert required(r"loss .*overflowed") == (("overflowed",), False)


def test_what_cannot_be_used_is_said() -> None:
    assert "look" in refusal("(?!x)y") or "syntax" in refusal("(?!x)y")
    assert refusal("(a")
    assert refusal("a*") == "matches the empty line"
    assert refusal("a+b") == ""


def test_refused_patterns_are_named(tmp_path: Path, engine: str) -> None:
    (tmp_path / "t.log").write_text("foo\nCUDA out of memory. Tried to allocate 1 GiB\n")
    found = scan(tmp_path, Pattern("sig.a.b", "(?!x)foo"), OOM, engine=engine)
    assert any("sig.a.b" in r for r in found.refused)
    assert found.hits["sig.memory.x"]


def test_without_hyperscan_the_fallback_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(patterns, "hyperscan", None)
    (tmp_path / "t.log").write_text("CUDA out of memory. Tried to allocate 1 GiB\n")
    assert isinstance(scanner([OOM]), patterns.Re2Scanner)
    assert scan(tmp_path, OOM).hits["sig.memory.x"]


def test_a_damaged_cache_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCTOR_CACHE", str(tmp_path / "cache"))
    assert scanner([OOM]).scan(b"CUDA out of memory. Tried to allocate 1 GiB\n")
    kept = list((tmp_path / "cache").iterdir())
    assert kept
    for path in kept:
        path.write_bytes(path.read_bytes()[:-7])
    assert scanner([OOM]).scan(b"CUDA out of memory. Tried to allocate 1 GiB\n")
    assert compiled.read_kept(tmp_path / "none") is None


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DOCTOR_CACHE", str(tmp_path / "file" / "below"))
    assert scanner([OOM]).scan(b"CUDA out of memory. Tried to allocate 1 GiB\n")


def test_summaries_of_files(tmp_path: Path) -> None:
    text = "[2024-01-01 10:00:00] start\n[rank0]: step 1 loss 2\n[rank5]: step 2 loss 1\n[2024-01-01 11:00:00] bye\n\n"
    (tmp_path / "t.log").write_text(text)
    (tmp_path / "packed.log.gz").write_bytes(gzip.compress(text.encode()))
    found = scan(tmp_path)
    for summary in found.files.values():
        assert summary.lines == 5
        assert sorted(summary.harvest.ranks) == [0, 5]
        assert summary.first_stamp and summary.last_stamp and summary.first_stamp.text.endswith("10:00:00")
        assert summary.last_line and summary.last_line.number == 4
        assert summary.last_progress and summary.last_progress.number == 3


def test_configs_code_and_data_are_not_scanned(tmp_path: Path) -> None:
    for name in ("a.yaml", "a.py", "a.jsonl", "a.txt"):
        (tmp_path / name).write_text("CUDA out of memory. Tried to allocate 1 GiB\n")
    assert {h.file.name for h in scan(tmp_path, OOM).hits["sig.memory.x"]} == {"a.txt"}
