"""What is found in samples of the data, and what is left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.data.dataset_tools import check_data_files


def _check(tmp_path: Path, **files: str):
    for name, text in files.items():
        (tmp_path / name.replace("__", ".")).write_text(text)
    result = check_data_files(Workspace([tmp_path]))
    return result, {(e.key, e.line): e.value for e in result.evidence}


def _jsonl(*rows: dict) -> str:
    return "".join(json.dumps(r) + "\n" for r in rows)


GOOD = [{"prompt": f"Question number {n}, what is it?", "response": f"It is {n}."} for n in range(12)]


def test_sound_samples_are_clean(tmp_path) -> None:
    result, found = _check(tmp_path, data__jsonl=_jsonl(*GOOD))
    assert result.outcome == "clean"
    assert found == {("data.records", 1): 12}


def test_nothing_to_look_at(tmp_path) -> None:
    assert _check(tmp_path, train__log="step 1 loss 2.0\n")[0].outcome == "not_applicable"


@pytest.mark.parametrize(
    ("bad", "key", "value"),
    [
        ({"prompt": "What?", "response": " "}, "data.empty_fields", "response"),
        ({"prompt": "What is it?"}, "data.missing_fields", "response"),
        ({"prompt": "What?", "response": ["a"]}, "data.schema_differs", "response: list or str"),
        ({"prompt": "What?", "response": "caf\u00c3\u00a9."}, "data.encoding_damage", 1),
        ({"prompt": "<image>What?", "response": "A cat."}, "data.mixed_modalities", "<image>"),
        ({"prompt": "<s><s>[INST] hi", "response": "ok."}, "data.bos_doubled", True),
        ({"prompt": "What?", "response": "Yes.", "label": -1}, "data.label_out_of_range", -1),
        ({"prompt": "What?", "response": "Yes.", "labels": [-100, -100]}, "data.all_masked", "labels"),
    ],
)
def test_one_bad_record(tmp_path, bad, key, value) -> None:
    result, found = _check(tmp_path, data__jsonl=_jsonl(*GOOD, bad))
    assert result.outcome == "finding"
    assert found[key, 13] == value


def test_alpaca_style_empty_input_is_no_fault(tmp_path) -> None:
    rows = [{"instruction": f"Say {n}.", "input": "", "output": f"{n}."} for n in range(12)]
    assert _check(tmp_path, data__jsonl=_jsonl(*rows))[0].outcome == "clean"


def test_lengths_against_the_limit(tmp_path) -> None:
    rows = [*GOOD, {"prompt": "word " * 2000, "response": "Yes."}]
    _, found = _check(tmp_path, data__jsonl=_jsonl(*rows), config__yaml="cutoff_len: 1024\n")
    assert found["data.long_records", 13] > 2000
    _, found = _check(tmp_path, data__jsonl=_jsonl(*rows), config__yaml="cutoff_len: 8192\n")
    assert ("data.long_records", 13) not in found


def test_statistics_against_the_limit(tmp_path) -> None:
    text = "rows: 900\nprompt characters per row: about 40000\n"
    _, found = _check(tmp_path, dataset_stats__txt=text, run__yaml="max_seq_length: 4096\n")
    assert found == {("data.records", 1): 900, ("data.long_records", 2): 10000}


def test_answers_cut_by_a_stop_word(tmp_path) -> None:
    rows = [{"completion": f"First {n} items. Now compute the ", "finish_reason": "stop"} for n in range(3)]
    code = 'client.generate(prompt, stop=["</s>", "Answer", "User:"])\n'
    _, found = _check(tmp_path, samples__jsonl=_jsonl(*rows), bench__py=code)
    assert found["data.truncated_completions", 1] == "Answer"


def test_answers_that_end_properly(tmp_path) -> None:
    rows = [{"completion": f"The answer is {n}.", "finish_reason": "stop"} for n in range(12)]
    assert _check(tmp_path, samples__jsonl=_jsonl(*rows))[0].outcome == "clean"


def test_masked_labels_in_a_printed_batch(tmp_path) -> None:
    text = "batch 0\n'labels': tensor([[-100, -100, -100],\n        [-100, -100, -100]])\n"
    assert _check(tmp_path, batch_dump__txt=text)[1] == {("data.all_masked", 2): "labels"}
    text = "batch 0\n'labels': tensor([[-100, -100, 17],\n        [-100, -100, -100]])\n"
    assert _check(tmp_path, batch_dump__txt=text)[1] == {}


def test_duplicates_and_leaks(tmp_path) -> None:
    same = [{"prompt": "How many wheels does this car have?", "response": "Four."}] * 20
    _, found = _check(tmp_path, train__jsonl=_jsonl(*same), test__jsonl=_jsonl(same[0]))
    assert found["data.duplicates", 2] == 0.95
    assert found["data.contamination", 1] == 1


def test_rewards_that_never_differ(tmp_path) -> None:
    rows = [{"prompt": f"p{n}?", "completion": "x.", "reward": 0.0} for n in range(10)]
    assert _check(tmp_path, rollouts__jsonl=_jsonl(*rows))[1]["data.rewards_constant", 1] == 0.0


def test_a_right_answer_that_extraction_missed(tmp_path) -> None:
    row = {"question": "2+2?", "completion": "So the answer is 4. Check with 2.", "gold": "4", "extracted": "2"}
    assert _check(tmp_path, eval__jsonl=_jsonl(row, row))[1]["data.answer_not_extracted", 1] == "2"


def test_tool_turns_are_told_but_no_fault(tmp_path) -> None:
    row = {
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "tool", "content": "out"},
            {"role": "assistant", "content": "ok"},
        ]
    }
    result, found = _check(tmp_path, data__jsonl=_jsonl(row))
    assert result.outcome == "clean"
    assert found["data.tool_turns", 1] == 1


def test_tokens_that_should_frame_a_sequence(tmp_path) -> None:
    rows = [{"input_ids": [5, 6, n, 2]} for n in range(5)]
    config = "bos_token_id: 1\neos_token_id: 2\n"
    assert _check(tmp_path, data__jsonl=_jsonl(*rows), config__yaml=config)[1]["data.bos_missing", 1] == "bos"
    rows = [{"input_ids": [1, 6, n, 2]} for n in range(5)]
    assert ("data.bos_missing", 1) not in _check(tmp_path, data__jsonl=_jsonl(*rows))[1]


def test_answers_whose_turn_is_never_closed(tmp_path) -> None:
    head = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert (
        _check(tmp_path, data__jsonl=_jsonl(*[{"text": head + "hello."}] * 3))[1]["data.bos_missing", 1] == "<|im_end|>"
    )
    sound = [{"text": head + "hello.<|im_end|>"}] * 3
    assert ("data.bos_missing", 1) not in _check(tmp_path, data__jsonl=_jsonl(*sound))[1]


def test_nothing_where_numbers_should_be(tmp_path) -> None:
    rows = [{"frame": n, "state": [0.1 * n, 1.0], "task": f"pick cup {n}", "length": 0.5 * n} for n in range(12)]
    assert _check(tmp_path, data__jsonl=_jsonl(*rows))[0].outcome == "clean"
    rows[7] |= {"state": [None, None]}
    rows[9] |= {"length": float("nan")}
    _, found = _check(tmp_path, data__jsonl=_jsonl(*rows))
    assert found["data.null_values", 8] == "state: 2 of 2"
    assert found["data.null_values", 10] == "length: 1 of 1"


def test_a_speaker_that_no_template_knows(tmp_path) -> None:
    rows = [
        {"messages": [{"role": "user", "content": f"Say {n}"}, {"role": "assistant", "content": f"{n}."}]}
        for n in range(5)
    ]
    assert not [k for k, _ in _check(tmp_path, data__jsonl=_jsonl(*rows))[1] if k == "data.unknown_role"]
    rows.append({"messages": [{"role": "user", "content": "Hi"}, {"role": "narrator", "content": "Hello."}]})
    assert _check(tmp_path, data__jsonl=_jsonl(*rows))[1]["data.unknown_role", 6] == "narrator"


def test_sets_held_out_are_told_by_one_rule() -> None:
    from traindoctor.agent.reading.datasets.overlap import held_out

    assert all(map(held_out, ("data/test.jsonl", "eval_set.json", "evaluation-2.csv", "val0.jsonl", "x/dev/a.json")))
    assert not any(map(held_out, ("train.jsonl", "latest.jsonl", "testimonials.jsonl", "values.csv", "device.json")))


def test_records_are_counted_where_all_are_read_and_a_table_may_have_no_names(tmp_path):
    (tmp_path / "val.tsv").write_text("".join(f"sheep number {n}\t{n * 7}\n" for n in range(40, 90)))
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(f"a line of words {n},{n % 3}\n" for n in range(60)))
    found = {e.file: e.value for e in check_data_files(Workspace([tmp_path])).evidence if e.key == "data.records"}
    assert found == {"val.tsv": 50, "train.csv": 60}
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(f"a line of words {n},{n % 3}\n" for n in range(5500)))
    told = [e for e in check_data_files(Workspace([tmp_path])).evidence if e.key == "data.records"]
    assert [e.file for e in told] == ["val.tsv"]
