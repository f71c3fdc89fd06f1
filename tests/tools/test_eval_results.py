"""Wrong items of an evaluation, in the formats of the harnesses: each reason alone, and honest mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.data.dataset_tools import eval_failures

from tests.tools.captured import Seen


def harness(n: int, output: str, gold: str, extracted: str, right: float, **more) -> dict:
    """A line of samples_gsm8k_*.jsonl as lm-evaluation-harness writes it."""
    return {
        "doc_id": n,
        "doc": {"question": f"How many are {n}?", "answer": f"Some steps.\n#### {gold}"},
        "target": f"Some steps.\n#### {gold}",
        "arguments": {
            "gen_args_0": {"arg_0": f"Question: How many are {n}?\nAnswer:", "arg_1": {"until": ["Question:", "</s>"], "max_gen_toks": 256}}
        },
        "resps": [[output]],
        "filtered_resps": [extracted],
        "filter": "strict-match",
        "metrics": ["exact_match"],
        "doc_hash": "d",
        "exact_match": right,
        **more,
    }  # fmt: skip


def right(n: int) -> dict:
    return harness(n, f"There are {n} and one more, so {n + 1}.\n#### {n + 1}", str(n + 1), str(n + 1), 1.0)


def ask(folder: Path, rows: list[dict], name: str = "samples_gsm8k_2026-01-01.jsonl") -> Seen:
    (folder / name).write_text("".join(json.dumps(r) + "\n" for r in rows))
    result = eval_failures(Workspace([folder]))
    for e in result.evidence:
        assert eval_failures.allows(e.key)
    return Seen(result, folder)


def test_honest_mistakes_are_no_finding(tmp_path) -> None:
    wrong = [harness(n, f"I count {n}.\n#### {n + 7}", str(n + 50), str(n + 7), 0.0) for n in range(8)]
    seen = ask(tmp_path, [right(n) for n in range(12)] + wrong)
    assert seen.result.outcome == "clean", seen.result.text
    assert seen.one("eval_result.accuracy") == 0.6


@pytest.mark.parametrize(
    ("output", "gold", "extracted", "key"),
    [
        ("", "18", "[invalid]", "empty_output"),
        ("She sells 16 - 3 - 4 = 9 eggs, so she makes 9 * 2 = $18 every day. The answer is 18.", "18", "[invalid]", "not_extracted"),
        ("So it comes to 1,080 dollars.", "1080", "$1,080.00", "format_differs"),
        ("First 7 apples and then 9 more, therefore the answer is 16. Check step 3", "16", "3", "extracted_wrong"),
        ("The farmer has 30 hens and each of them lays", "18", "30", "stopped_early"),
        ("We need to know " + "the number of the eggs and then " * 30, "18", "[invalid]", "repetition"),
        ("I'm sorry, but I can't help with that request.", "18", "[invalid]", "refusal"),
        ("12<|im_end|>\n<|im_start|>assistant\n12", "18", "12", "markup_leaked"),
        ("It is 12.\n\nQuestion: How many are 9?\nAnswer: 3.", "18", "3", "stop_missing"),
        ("<think>Let me see. There are 30 of them.", "18", "30", "reasoning_unclosed"),
    ],
)  # fmt: skip
def test_one_reason(tmp_path, output, gold, extracted, key) -> None:
    seen = ask(tmp_path, [right(n) for n in range(12)] + [harness(99, output, gold, extracted, 0.0)] * 4)
    assert seen.result.outcome == "finding"
    assert seen.one(f"eval_result.{key}") == 0.25
    assert seen.of(f"eval_result.{key}")[0].line == 13
    assert len(seen.of(f"eval_result.{key}")) == 3


def test_the_limit_of_tokens(tmp_path) -> None:
    rows = [harness(n, "word " * 10 + "and then", "18", "10", 0.0, finish_reason="length") for n in range(5)]
    assert ask(tmp_path, rows).one("eval_result.truncated") == 1.0


def choice(n: int, gold: int, picked: int) -> dict:
    scores = [[["-9.0", "False"]] if c != picked else [["-1.0", "False"]] for c in range(4)]
    return {
        "doc_id": n, "doc": {"question": f"q{n}", "choices": list("abcd")}, "target": gold, "arguments": [],
        "resps": scores, "filtered_resps": [s[0] for s in scores], "doc_hash": "x", "acc": float(gold == picked),
    }  # fmt: skip


def test_multiple_choice_at_chance_with_one_answer(tmp_path) -> None:
    seen = ask(tmp_path, [choice(n, n % 4, 2) for n in range(100)], "samples_mmlu_x.jsonl")
    assert seen.one("eval_result.at_chance") == 0.25
    assert seen.one("eval_result.one_answer") == "'2' in 100 of 100"
    seen = ask(tmp_path, [choice(n, n % 4, n % 4 if n % 3 else 1) for n in range(100)], "samples_mmlu_x.jsonl")
    assert not seen.values("eval_result.at_chance")
    assert not seen.values("eval_result.one_answer")


def test_summaries_of_the_harness(tmp_path) -> None:
    summary = {
        "results": {"gsm8k": {"alias": "gsm8k", "exact_match,strict-match": 0.02, "exact_match_stderr,strict-match": 0.01, "exact_match,flexible-extract": 0.71}},
        "config": {"model_args": "pretrained=google/gemma-2-9b-it"},
        "model_name": "google/gemma-2-9b-it",
        "chat_template": None,
    }  # fmt: skip
    (tmp_path / "results_2026.json").write_text(json.dumps(summary, indent=2))
    seen = ask(tmp_path, [right(n) for n in range(12)])
    assert "0.02 by strict-match" in seen.one("eval_result.filters_disagree")
    assert "strict-match" in seen.lines("eval_result.filters_disagree")[0]
    assert seen.one("eval_result.no_chat_template") == "google/gemma-2-9b-it"


def test_opencompass_and_plain_json(tmp_path) -> None:
    items = {
        str(n): {
            "origin_prompt": f"q {n}",
            "prediction": "The result is **7**." if n % 2 else "",
            "gold": "7",
            "correct": False,
        }
        for n in range(6)
    }
    (tmp_path / "gsm8k.json").write_text(json.dumps(items, indent=4, ensure_ascii=False))
    result = eval_failures(Workspace([tmp_path]))
    seen = Seen(result, tmp_path)
    assert seen.one("eval_result.empty_output") == 0.5
    assert seen.one("eval_result.not_extracted") == 0.5
    assert '"0": {' in seen.lines("eval_result.empty_output")[0]
    (tmp_path / "gsm8k.json").unlink()
    rows = [
        {
            "question": "q",
            "response": "Answer: (B) because",
            "extracted_answer": "(B) because",
            "answer": "B",
            "is_correct": False,
        }
    ] * 5
    assert ask(tmp_path, rows, "outputs.jsonl").one("eval_result.format_differs") == 1.0


def test_training_data_are_no_results(tmp_path) -> None:
    rows = [{"question": "q", "response": "r", "answer": "a"}] * 5
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert eval_failures(Workspace([tmp_path])).outcome == "not_applicable"


def test_torn_results(tmp_path) -> None:
    seen = ask(tmp_path, [right(n) for n in range(12)])
    path = tmp_path / "samples_gsm8k_2026-01-01.jsonl"
    path.write_bytes(path.read_bytes()[:-90] + b"\n\xff\xfe{{{\n")
    seen = Seen(eval_failures(Workspace([tmp_path])), tmp_path)
    assert seen.result.outcome == "failed"


TABLE = """|Tasks|Version|Filter|n-shot|Metric|   |Value |   |Stderr|
|-----|------:|------|-----:|------|---|-----:|---|-----:|
|mmlu |      2|none  |     5|acc   |↑  |{0}|±  |0.0040|
"""


def test_scores_before_and_after_training(tmp_path) -> None:
    (tmp_path / "bench_base.txt").write_text(TABLE.format("0.6212") + "domain: 31.0\n")
    (tmp_path / "bench_tuned.txt").write_text(TABLE.format("0.4105") + "domain: 80.5\n")
    keys = [(e.key, e.value["name"]) for e in eval_failures(Workspace([tmp_path])).evidence]
    assert ("eval_result.fell_after_training", "mmlu acc") in keys
    assert ("eval_result.rose_after_training", "domain") in keys


def test_scores_that_stay_are_not_told(tmp_path) -> None:
    (tmp_path / "bench_base.txt").write_text(TABLE.format("0.6212"))
    (tmp_path / "bench_tuned.txt").write_text(TABLE.format("0.6150"))
    assert eval_failures(Workspace([tmp_path])).outcome == "not_applicable"


def test_numbered_items_stand_on_their_own_lines(tmp_path) -> None:
    from traindoctor.agent.reading.datasets.eval_items import results

    items = {str(n): {"prediction": f"it is {n}", "gold": str(n), "correct": True} for n in range(30)}
    (tmp_path / "results.json").write_text(json.dumps(items, indent=1))
    (found,) = results(Workspace([tmp_path]))
    assert [i.row.line.number for i in found.items] == [2 + 5 * n for n in range(30)]


def test_rows_that_hold_both_scores(tmp_path: Path) -> None:
    text = "humaneval pass@1  0.786 -> 0.591\nown tasks         0.31  -> 0.45\nlearning rate 1.0 -> 0.1\n"
    (tmp_path / "scores.txt").write_text(text)
    keys = {(e.key, e.value["name"]) for e in eval_failures(Workspace([tmp_path])).evidence}
    assert keys == {
        ("eval_result.fell_after_training", "humaneval pass@1"),
        ("eval_result.rose_after_training", "own tasks"),
    }
