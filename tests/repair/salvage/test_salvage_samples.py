"""`doctor salvage exclude-samples`: what is kept are the same bytes, the data is never touched."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.core.report import CitedEvidence, Report, RootCause, RunSummary
from traindoctor.agent.repair.salvage import exclude as salvage
from traindoctor.agent.repair.salvage.chosen_records import Chosen, numbered
from traindoctor.agent.repair.salvage.copying import unpacked

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ENDS = st.sampled_from([b"\n", b"\r\n"])
CONTENT = st.binary(min_size=0, max_size=12).map(lambda b: b.replace(b"\n", b"").replace(b"\x1f\x8b", b""))


def out_of(data: Path, output: Path, rows: set[int]) -> salvage.Excluded:
    return salvage.exclude(data, output, Chosen(dict.fromkeys(rows, "named")), False, [], lambda _n: None)


@st.composite
def line_files(draw: st.DrawFn) -> tuple[bytes, list[tuple[bytes, bool]]]:
    """A file of lines as its mark and its lines, each with whether it is a record."""
    mark = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    body = draw(st.lists(st.tuples(CONTENT, ENDS), min_size=1, max_size=12))
    if draw(st.booleans()):
        body[-1] = (body[-1][0] or b"x", b"")
    if body[0][0][:2] in (b"\xff\xfe", b"\xfe\xff", b"BZ") or body[0][0][:4] in (b"\xfd7zX", b"\x28\xb5\x2f\xfd"):
        body[0] = (b"{}", body[0][1])
    strip = b" \t\r\n\xef\xbb\xbf", b" \t\r\n"
    return mark, [(t + e, bool((t + e).strip(strip[n > 0]))) for n, (t, e) in enumerate(body)]


@SLOW
@given(line_files(), st.data())
def test_kept_lines_are_the_same_bytes(tmp_path, file, data):
    mark, body = file
    records = [n for n, (_, is_record) in enumerate(body) if is_record]
    if not records:
        return
    bad = data.draw(st.sets(st.integers(0, len(records) - 1), min_size=1))
    old, new = tmp_path / "d.jsonl", tmp_path / "new.jsonl"
    new.unlink(missing_ok=True)
    old.write_bytes(mark + b"".join(line for line, _ in body))
    done = out_of(old, new, bad)
    gone = {records[n] for n in bad}
    assert new.read_bytes() == mark + b"".join(line for n, (line, _) in enumerate(body) if n not in gone)
    assert (done.records, done.kept, len(done.excluded)) == (len(records), len(records) - len(bad), len(bad))


CELL = st.text(alphabet='ab ,"\n\r;é', max_size=6)


@SLOW
@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=8), st.data())
def test_rows_of_a_table_go_whole(tmp_path, cells, data):
    """Quoted cells with line breaks, as Python's own writer writes them."""
    bad = data.draw(st.sets(st.integers(0, len(cells) - 1), min_size=1))
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([("a", "b"), *cells])
    old, new = tmp_path / "d.csv", tmp_path / "new.csv"
    new.unlink(missing_ok=True)
    old.write_text(text.getvalue(), newline="", encoding="utf-8")
    out_of(old, new, bad)
    with new.open(newline="", encoding="utf-8") as f:
        assert list(csv.reader(f)) == [["a", "b"], *(list(c) for n, c in enumerate(cells) if n not in bad)]
    assert set(new.read_bytes().splitlines()) <= set(old.read_bytes().splitlines())


RECORD = st.fixed_dictionaries({"t": st.text(max_size=5), "n": st.lists(st.just({"x": "]}"}), max_size=2)})


@SLOW
@given(st.lists(RECORD, min_size=1, max_size=6), st.sampled_from([None, 1]), st.booleans(), st.data())
def test_elements_of_an_array(tmp_path, records, indent, nested, data):
    bad = data.draw(st.sets(st.integers(0, len(records) - 1), min_size=1))
    old, new = tmp_path / "d.json", tmp_path / "new.json"
    new.unlink(missing_ok=True)
    whole = {"version": "[{", "data": records, "after": [1]} if nested else records
    old.write_text(json.dumps(whole, indent=indent))
    done = out_of(old, new, bad)
    kept = [r for n, r in enumerate(records) if n not in bad]
    assert json.loads(new.read_text()) == ({**whole, "data": kept} if isinstance(whole, dict) else kept)
    assert done.records == len(records) == done.kept + len(bad)


PACK = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.ZstdCompressor().compress}


@pytest.mark.parametrize("suffix", PACK)
def test_packed_files(tmp_path, doctor, suffix):
    plain = b"".join(b'{"text": "number %d"}\r\n' % n for n in range(3000))
    old, new = tmp_path / f"d.jsonl.{suffix}", tmp_path / f"new.jsonl.{suffix}"
    old.write_bytes(PACK[suffix](plain[:9000]) + PACK[suffix](plain[9000:]))  # two members, as `cat` makes them
    done = doctor("salvage", "exclude-samples", old, "-o", new, "--rows", "0,2998-2999")
    assert done.returncode == 0, done.stderr
    assert new.read_bytes()[:2] == old.read_bytes()[:2]
    lines = plain.splitlines(keepends=True)
    assert b"".join(b or b"!" for b in unpacked(new)) == b"".join(lines[1:2998])
    assert "3 of 3000 records left out, 2997 kept" in done.stdout


@pytest.mark.parametrize("suffix", PACK)
def test_a_packed_file_that_was_cut_off(tmp_path, doctor, suffix):
    plain = b"".join(b'{"text": "%x"}\n' % hash((n, "a")) for n in range(40000))
    packed = b"".join(PACK[suffix](plain[i : i + 100_000]) for i in range(0, len(plain), 100_000))
    old, new = tmp_path / f"d.jsonl.{suffix}", tmp_path / "new.jsonl"
    old.write_bytes(packed[: len(packed) * 3 // 4])
    done = doctor("salvage", "exclude-samples", old, "-o", new, "--rows", "0")
    assert done.returncode == 0, done.stderr
    assert "cut off or broken" in done.stdout
    kept = new.read_bytes()
    assert kept.endswith(b"\n") and len(kept) > 100_000 and plain.split(b"\n", 1)[1].startswith(kept)


def test_what_is_bad_by_itself_is_found(tmp_path, doctor):
    rows = [
        '{"text": "a fine record"}', '{"text": ""}', '{"text": "torn', '{"text": "x", "score": NaN}', '{"text": "y"}',
    ]  # fmt: skip
    old, new = tmp_path / "train.jsonl", tmp_path / "new.jsonl"
    old.write_text("\n".join(rows))
    done = doctor("salvage", "exclude-samples", old, "-o", new, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["records"], told["kept"]) == (5, 2) and new.read_text() == f"{rows[0]}\n{rows[4]}"
    assert [e.split(": ")[1] for e in told["excluded"]] == ["empty", "torn_records", "not_finite"]
    assert told["notes"] == ["That is 60% of the records: look at some of them before you train without them."]
    again = doctor("salvage", "exclude-samples", new, "-o", tmp_path / "more")
    assert again.returncode == 2 and "no bad record among the 2" in again.stderr and not (tmp_path / "more").exists()


def test_many_torn_records_are_all_left_out(tmp_path, doctor):
    old, new = tmp_path / "train.jsonl", tmp_path / "new.jsonl"
    old.write_text("".join('{"text": "good words"}\n' if n % 50 == 0 else '{"te\n' for n in range(500)))
    assert doctor("salvage", "exclude-samples", old, "-o", new).returncode == 0
    assert new.read_text() == '{"text": "good words"}\n' * 10


def report(root: Path, *evidence: CitedEvidence) -> str:
    runs = [RunSummary(id="r1", root=str(root))]
    return Report(
        status="likely", root_cause=RootCause(id="data.bad_samples"), runs=runs, evidence=list(evidence)
    ).to_json()


def test_from_a_report(tmp_path, doctor):
    """The cited records, and the others of the same kind that the report had no room for; never other kinds."""
    run, new = tmp_path / "run", tmp_path / "new.jsonl"
    run.mkdir()
    rows = ['{"id": 7, "text": "fine words"}', '{"id": 8, "text": ""}', '{"id": 9, "text": "t\ufffd\ufffd\ufffdt"}',
            '{"id": 10, "text": ""}', '{"id": 11, "text": "loud"}']  # fmt: skip
    (run / "train.jsonl").write_text("\n".join(rows) + "\n")
    cited = [
        CitedEvidence(id="E1", key="data.empty_fields", value="text", kind="line", file="train.jsonl", line=2),
        CitedEvidence(id="E2", key="sample.loss_outlier", value="11", kind="line", file="losses.csv", line=40),
        CitedEvidence(id="E3", key="sample.of_step", value="x", kind="line", file="train.jsonl", line=1),
        CitedEvidence(id="E4", key="sample.empty", value="text", kind="line", file="other.jsonl", line=3),
    ]
    (tmp_path / "report.json").write_text(report(run, *cited))
    data = run / "train.jsonl"
    done = doctor("salvage", "exclude-samples", data, "-o", new, "--from-report", tmp_path / "report.json")
    assert done.returncode == 0, done.stderr
    assert new.read_text() == f"{rows[0]}\n{rows[2]}\n"
    (tmp_path / "none.json").write_text(report(run))
    none = doctor("salvage", "exclude-samples", data, "-o", tmp_path / "n", "--from-report", tmp_path / "none.json")
    assert none.returncode == 2 and "names no bad record" in none.stderr
    for wrong in ("20200101-000000-ffffff", data):
        done = doctor("salvage", "exclude-samples", data, "-o", tmp_path / "n", "--from-report", wrong)
        assert done.returncode == 2 and done.stderr.count("\n") == 1


def used(snippet: list[str], dataset: object) -> object:
    scope: dict[str, object] = {"json": json, "dataset": dataset}
    exec("\n".join(snippet), scope)
    return scope["dataset"]


class Listed(list):
    """As much of `datasets.Dataset` as the code uses."""

    def select(self, rows: list[int]) -> list:
        return [self[i] for i in rows]


def test_rows_of_parquet_and_arrow(tmp_path, doctor):
    table = pa.table({"text": [f"text number {n}" for n in range(50)], "n": list(range(50))})
    pq.write_table(table, tmp_path / "d.parquet", row_group_size=20)
    with pa.OSFile(str(tmp_path / "d.arrow"), "wb") as f, pa.ipc.new_stream(f, table.schema) as stream:
        for batch in table.to_batches(max_chunksize=20):
            stream.write_batch(batch)
    for suffix, place in (("parquet", "row group 1, row 3"), ("arrow", "record batch 1, row 3")):
        data, new = tmp_path / f"d.{suffix}", tmp_path / f"{suffix}.json"
        before = data.read_bytes()
        cited = CitedEvidence(id="E1", key="sample.too_long", value=9, kind="binary", file=data.name, member=place)
        (tmp_path / "r.json").write_text(report(tmp_path, cited))
        done = doctor(
            "salvage", "exclude-samples", data, "-o", new, "--rows", "0", "--from-report", tmp_path / "r.json", "--json"
        )
        assert done.returncode == 0, done.stderr
        told, written = json.loads(done.stdout), json.loads(new.read_text())
        assert written["excluded"] == [0, 23] and (written["records"], written["kept"]) == (50, 48)
        assert used(told["use"], Listed(range(50))) == [n for n in range(50) if n not in (0, 23)]
        assert data.read_bytes() == before
        beyond = doctor("salvage", "exclude-samples", data, "-o", tmp_path / "n", "--rows", "50")
        assert beyond.returncode == 2 and "there are 50" in beyond.stderr


def test_a_shard_of_a_saved_dataset(tmp_path, doctor):
    """Its numbers are its own; the code counts over the whole dataset, in the order that state.json gives."""
    names = [f"data-{n:05}-of-00002.arrow" for n in range(2)]
    for n, name in enumerate(names):
        table = pa.table({"n": list(range(n * 30, n * 30 + 30))})
        with pa.OSFile(str(tmp_path / name), "wb") as f, pa.ipc.new_stream(f, table.schema) as stream:
            stream.write_table(table)
    alone = doctor("salvage", "exclude-samples", tmp_path / names[1], "-o", tmp_path / "a", "--rows", "5")
    assert alone.returncode == 0 and f"within {names[1]} alone" in alone.stdout
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": n} for n in names]}))
    done = doctor("salvage", "exclude-samples", tmp_path / names[1], "-o", tmp_path / "b", "--rows", "5", "--json")
    assert used(json.loads(done.stdout)["use"], Listed(range(60))) == [n for n in range(60) if n != 35]


def test_samples_of_a_shard(tmp_path, doctor):
    data, new = tmp_path / "shard.tar", tmp_path / "bad.json"
    with tarfile.open(data, "w") as tar:
        for n in range(4):
            for suffix, content in (("json", b"{}" if n != 2 else b"{"), ("txt", b"words")):
                member = tarfile.TarInfo(f"a/{n:04}.{suffix}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    done = doctor("salvage", "exclude-samples", data, "-o", new, "--json")
    assert done.returncode == 0, done.stderr
    written = json.loads(new.read_text())
    assert written["excluded"] == [2] and written["keys"] == ["a/0002"] and written["records"] == 4

    class Shards(list):
        def select(self, kept) -> list:
            return [s for s in self if kept(s)]

    left = used(json.loads(done.stdout)["use"], Shards({"__key__": f"a/{n:04}"} for n in range(4)))
    assert left == [{"__key__": f"a/{n:04}"} for n in (0, 1, 3)]


def test_what_is_refused(tmp_path, doctor):
    data = tmp_path / "d.jsonl"
    data.write_text('{"a": 1}\n{"a": 2}\n')
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "utf16.jsonl").write_text('{"a": "words"}\n', encoding="utf-16")
    (tmp_path / "one.json").write_text('[{"a": 1}, {"a": 2}]')
    cases = [
        (data, "taken", ("--rows", "0"), "exists"),
        (data, "n", ("--rows", "2"), "0 to 1"),
        (data, "n", ("--rows", "x"), "no numbers"),
        (data, "n", ("--rows", "5-2"), "backwards"),
        (data, "n", ("--rows", "0-99999999999"), "too many"),
        (data, "n", ("--lines", "9"), "no record starts"),
        (tmp_path, "n", ("--rows", "0"), "name one file"),
        (tmp_path / "none", "n", ("--rows", "0"), "no such"),
        (tmp_path / "utf16.jsonl", "n", ("--rows", "0"), "UTF-16"),
        (tmp_path / "one.json", "n", ("--lines", "1"), "holds 2 records"),
    ]
    for source, output, options, said in cases:
        done = doctor("salvage", "exclude-samples", source, "-o", tmp_path / output, *options)
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, (said, done.stderr)
    assert (tmp_path / "taken").read_text() == "mine" and not (tmp_path / "n").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.jsonl", "one.json", "taken", "utf16.jsonl"]


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    data = tmp_path / "d.jsonl"
    data.write_text('{"a": 1}\n{"a": 2}\n')

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("traindoctor.agent.repair.salvage.exclude.os.fsync", full)
    with pytest.raises(UsageError, match="No space"):
        out_of(data, tmp_path / "new", {0})
    assert [p.name for p in tmp_path.iterdir()] == ["d.jsonl"]


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 9)), min_size=1, max_size=6))
def test_numbers_and_ranges(spans):
    text = ", ".join(str(a) if not n else f"{a}-{a + n}" for a, n in spans)
    assert set(numbered(text, "--rows")) == {x for a, n in spans for x in range(a, a + n + 1)}
