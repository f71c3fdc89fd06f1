"""Records of sample files, each with the line it starts on; printed tensors and statistics."""

from __future__ import annotations

import json
from pathlib import Path

from traindoctor.agent.reading.datasets.batches import dumps, lengths, rows
from traindoctor.agent.reading.run.files import Line
from traindoctor.agent.reading.run.records import records, tokens
from traindoctor.agent.reading.run.workspace import Workspace


def _records(tmp_path: Path, name: str, text: str):
    path = tmp_path / name
    path.write_text(text)
    ws = Workspace([tmp_path])
    return [(r.line.number, r.fields) for f in ws.files for r in records(ws, f)]


def _lines(text: str) -> list[Line]:
    return [Line(n, 0, part.encode()) for n, part in enumerate(text.split("\n"), 1)]


def test_json_lines(tmp_path) -> None:
    found = _records(tmp_path, "a.jsonl", '{"text": "a"}\n\nbroken {\n{"text": "b"}\n[1]\n')
    assert found == [(1, {"text": "a"}), (4, {"text": "b"})]


def test_an_array_over_many_lines(tmp_path) -> None:
    data = [{"prompt": "a\nb", "n": 1}, {"prompt": "c", "n": {"x": 2}}]
    found = _records(tmp_path, "a.json", json.dumps(data, indent=2))
    assert [(line, fields["n"]) for line, fields in found] == [(2, 1), (6, {"x": 2})]


def test_a_table_with_line_breaks_in_cells(tmp_path) -> None:
    found = _records(tmp_path, "a.csv", 'text,label\n"one\ntwo",1\nthree,2\n')
    assert [(line, fields["label"]) for line, fields in found] == [(2, "1"), (4, "2")]


def test_hostile_samples(tmp_path) -> None:
    deep = '{"text": ' + "[" * 100_000 + "\n"
    digits = '{"text": "a", "n": ' + "9" * 6000 + "}\n"
    assert _records(tmp_path, "a.jsonl", deep + digits + '{"text": NaN}\n{"text": "b"}\n')[-1] == (4, {"text": "b"})


def test_turns_and_media(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"messages": [{"role": "user", "content": [{"type": "text", "text": "<image>?"}]}]}\n{"text": "t"}\n'
    )
    ws = Workspace([tmp_path])
    first, second = records(ws, ws.files[0])
    assert first.media == "<image>"
    assert first.turns[0]["role"] == "user"
    assert (second.media, second.turns) == ("", [])


def test_printed_tensors() -> None:
    text = "step 3\n{'input_ids': tensor([[1, 2,\n  3]]),\n 'labels': tensor([[-100,\n   -100]], device='cuda:0')}\nloss 2.0"
    found = {d.name: (d.line.number, d.numbers) for d in dumps(_lines(text))}
    assert found == {"input_ids": (2, [1, 2, 3]), "labels": (4, [-100, -100])}


def test_a_tensor_that_never_closes() -> None:
    assert next(iter(dumps(_lines("labels: [\n" + "1\n" * 10_000)))).numbers[:2] == [1, 1]


def test_statistics() -> None:
    assert [
        n for _, n in lengths(_lines("prompt characters (median): about 8,000\ntokens per row = 3.5k\nloss: 3"))
    ] == [2000, 3500]
    assert [n for _, n in rows(_lines("rows: 5,000\nsamples seen so far: many"))] == [5000]


def test_tokens_of_scripts_without_spaces() -> None:
    assert tokens("a" * 400) == 100
    assert tokens("字" * 400) == 400
