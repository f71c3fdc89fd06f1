"""A real tokenizer beside real weights: it fits as it was saved, and each way not to fit is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traindoctor.agent.core.types import ToolResult
from traindoctor.agent.reading.datasets.tokenizers import pieces, tokenizers
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.data.tokenizer_tools import tokenizer_match

from tests.reading.checkpoints.makers import copy, made


def matched(run: Path) -> ToolResult:
    result = tokenizer_match(Workspace([run]))
    assert all(tokenizer_match.allows(e.key) for e in result.evidence)
    return result


def keys(result: ToolResult) -> set[str]:
    return {e.key.removeprefix("tokenizer.") for e in result.evidence}


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    known = json.loads(path.read_text())
    change(known)
    path.write_text(json.dumps(known))


@pytest.mark.parametrize("kind", ["hf", "hf_gpt2", "hf_sharded", "hf_bf16", "peft"])
def test_what_was_saved_together_fits(kind: str) -> None:
    result = matched(made(kind))
    assert result.outcome == "clean", result.text
    assert next(e.value for e in result.evidence if e.key == "tokenizer.size") == 99


def test_added_tokens_without_a_row_are_found(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    extra = {"id": 99, "content": "<tool>", "special": True}
    edit(run / "checkpoint-4" / "tokenizer.json", lambda t: t["added_tokens"].append(extra))
    result = matched(run)
    assert {"exceeds_embedding", "exceeds_config", "differs"} <= keys(result)
    assert "<tool>" in next(e.text for e in result.evidence if e.key == "tokenizer.exceeds_embedding")


def test_ids_of_special_tokens_are_compared(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    edit(run / "checkpoint-4" / "generation_config.json", lambda c: c.update(eos_token_id=[7, 8]))
    edit(run / "checkpoint-4" / "tokenizer_config.json", lambda c: c.update(pad_token="</s>", bos_token="<none>"))
    found = keys(matched(run))
    assert {"eos_mismatch", "bos_unknown", "pad_is_eos", "special_differs"} <= found
    edit(run / "checkpoint-4" / "generation_config.json", lambda c: c.update(eos_token_id=[7, 2]))
    assert "eos_mismatch" not in keys(matched(run))


def test_a_tokenizer_of_another_model_is_found(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)

    def shrink(known: dict[str, Any]) -> None:
        known["model"]["vocab"] = {t: n for t, n in known["model"]["vocab"].items() if n < 40}

    edit(run / "checkpoint-4" / "tokenizer.json", shrink)
    assert {"smaller_than_embedding", "differs"} <= keys(matched(run))


def test_templates_of_training_and_use_are_compared(tmp_path: Path) -> None:
    run = copy("hf", tmp_path)
    template = run / "checkpoint-4" / "chat_template.jinja"
    template.write_text(template.read_text().replace("role", "from"))
    assert keys(matched(run)) == {"size", "template_differs"}
    template.unlink()
    assert "only one has a chat template" in matched(run).text


def test_broken_files_are_told(tmp_path: Path) -> None:
    shutil.copytree(made("hf_bf16"), tmp_path / "run")
    (tmp_path / "run" / "tokenizer_config.json").write_text('{"bos_token": ')
    (tmp_path / "run" / "special_tokens_map.json").write_text("[" * 100_000)
    assert "broken" in keys(matched(tmp_path / "run"))
    (tmp_path / "run" / "tokenizer.json").write_text('{"model": {"vocab": [[]]}, "added_tokens": [3, {"id": "x"}]}')
    matched(tmp_path / "run")


def test_vocabularies_of_every_layout_are_counted(tmp_path: Path) -> None:
    piece = b"\x0a\x05\x0a\x01a\x15\x00"
    assert pieces(piece * 300 + b"\x12\x02\x08\x01") == 300
    assert pieces(b"IQ== 0\nIg== 1\n") == 2
    for name, text in (
        ("unigram/tokenizer.json", json.dumps({"model": {"vocab": [["<unk>", 0.0], ["a", -1.0]]}})),
        ("plain/vocab.json", '{"a": 0, "b": 1}'),
        ("lines/vocab.txt", "[PAD]\n[UNK]\n"),
    ):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    assert [t.size for t in tokenizers(Workspace([tmp_path]))] == [2, 2, 2]


def test_no_tokenizer_is_not_applicable(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert matched(tmp_path).outcome == "not_applicable"
