"""Batches made by real collators and a real chat template, right ones and ones made wrong on purpose."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.data.batch_tools import inspect_batch

from tests.tools.captured import Seen

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m['content'] }}<|im_end|>{% endif %}\n{% endfor %}"
)
SPECIAL = ["<pad>", "<|im_start|>", "<|im_end|>", "<s>", "<mask>"]
TALKS = [
    ("What is the capital of France?", "The capital of France is Paris, on the river Seine."),
    ("Name a prime number.", "Seven is a prime number, as only one and seven divide it."),
    ("Say hello in German.", "Hello is said as guten Tag, or simply hallo among friends."),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small tokenizer, trained here, with its files in a folder of a run."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    folder = tmp_path_factory.mktemp("tokenizer")
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    inner.train_from_iterator([a + b for a, b in TALKS], trainer)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<|im_end|>", bos_token="<s>", mask_token="<mask>"
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return fast, folder


def talks(fast) -> dict[str, torch.Tensor]:
    """The conversations as a padded batch with only the answers in the loss."""
    rows = []
    for question, answer in TALKS:
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        got = fast.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
        ids, mask = got["input_ids"], got["assistant_masks"]
        rows.append({"input_ids": ids, "labels": [i if m else -100 for i, m in zip(ids, mask, strict=True)]})
    collate = transformers.DataCollatorForSeq2Seq(fast, padding=True)
    return dict(collate(rows))


def ask(folder: Path, made, batch=None, name: str = "batch.pt") -> Seen:
    for file in made[1].iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "config.json").write_text(json.dumps({"vocab_size": len(made[0]), "model_type": "llama"}))
    (folder / "train.py").write_text("from transformers import Trainer\nTrainer(model).train()\n")
    if batch is not None:
        torch.save(batch, folder / name)
    result = inspect_batch(Workspace([folder]))
    for e in result.evidence:
        assert inspect_batch.allows(e.key)
    return Seen(result, folder)


def test_answers_only(tmp_path, made) -> None:
    seen = ask(tmp_path, made, talks(made[0]))
    assert seen.result.outcome == "clean", seen.result.text
    assert 0.3 < seen.one("batch.masked_share") < 0.8
    assert "[counted" in seen.result.text
    assert "river Seine" in seen.result.text
    assert "capital of France?<|im_end|>" in seen.result.text


def _wrong(kind: str, batch: dict) -> dict:
    ids, labels, mask = batch["input_ids"], batch["labels"].clone(), batch["attention_mask"].clone()
    pad = ids == 0
    if kind == "prompt_counted":
        labels = torch.where(pad, -100, ids)
    elif kind == "all_masked":
        labels[1] = -100
    elif kind == "padding_counted":
        labels = torch.where(pad, 0, labels)
    elif kind == "answer_masked":
        labels = torch.where((labels == -100) & ~pad, ids, torch.full_like(ids, -100))
    elif kind == "double_shift":
        labels = torch.cat((labels[:, 1:], torch.full_like(labels[:, :1], -100)), dim=1)
    elif kind == "labels_unrelated":
        labels = torch.where(labels == -100, labels, torch.roll(labels, 7, 1).clamp(min=0))
    elif kind == "eos_masked":
        labels = torch.where(ids == 2, -100, labels)
    elif kind == "out_of_range":
        ids = ids.clone()
        ids[0, 3] = 5000
    elif kind == "attention_mismatch":
        mask = torch.ones_like(mask)
    elif kind == "bos_doubled":
        two = torch.full_like(ids[:, :2], 3)
        ids, labels = torch.cat((two, ids), 1), torch.cat((torch.full_like(two, -100), labels), 1)
        mask = torch.cat((torch.ones_like(two), mask), 1)
    return {"input_ids": ids, "labels": labels, "attention_mask": mask}


@pytest.mark.parametrize(
    "kind",
    ["prompt_counted", "all_masked", "padding_counted", "answer_masked", "double_shift", "labels_unrelated",
     "eos_masked", "out_of_range", "attention_mismatch", "bos_doubled"],
)  # fmt: skip
def test_batches_made_wrong(tmp_path, made, kind) -> None:
    seen = ask(tmp_path, made, _wrong(kind, talks(made[0])))
    assert seen.result.outcome == "finding"
    assert seen.values(f"batch.{kind}"), seen.result.text
    others = {e.key for e in seen.evidence} - {f"batch.{kind}", "batch.rows", "batch.masked_share"}
    allowed = {"batch.packed", "batch.cut_at_length"}
    if kind in ("answer_masked", "labels_unrelated"):
        allowed |= {"batch.prompt_counted", "batch.eos_masked"}
    if kind == "attention_mismatch":
        allowed |= {"batch.padding_counted"}
    assert others <= allowed, seen.result.text


def test_what_a_tool_said_in_the_loss(tmp_path, made) -> None:
    fast = made[0]
    text = (
        "<|im_start|>user\nWhat is it?<|im_end|>\n<|im_start|>assistant\nI look it up now.<|im_end|>\n"
        "<|im_start|>tool\nThe capital of France is Paris.<|im_end|>\n<|im_start|>assistant\nParis it is, then.<|im_end|>"
    )
    ids = fast(text)["input_ids"]
    start = len(fast("<|im_start|>user\nWhat is it?<|im_end|>\n<|im_start|>assistant\n")["input_ids"])
    labels = [-100] * start + ids[start:]
    seen = ask(tmp_path, made, {"input_ids": torch.tensor([ids]), "labels": torch.tensor([labels])})
    assert seen.values("batch.tool_counted") == [0]
    assert not seen.values("batch.prompt_counted")


def test_language_modelling_with_and_without_masks(tmp_path, made) -> None:
    fast = made[0]
    rows = [fast(a + " " + b) for a, b in TALKS]
    causal = transformers.DataCollatorForLanguageModeling(fast, mlm=False)(rows)
    seen = ask(tmp_path, made, dict(causal))
    assert not [k for k in {e.key for e in seen.evidence} if k.endswith(("counted", "shift", "unrelated", "masked"))]
    torch.manual_seed(1)
    masked = transformers.DataCollatorForLanguageModeling(fast, mlm=True, mlm_probability=0.4)(rows)
    seen = ask(tmp_path, made, dict(masked))
    assert seen.values("batch.masked_lm") == [4]
    assert not seen.values("batch.labels_unrelated")


def test_a_collator_whose_pad_is_the_end_token(tmp_path, made) -> None:
    """transformers masks every pad token, hence also the true end of each text."""
    import copy

    fast = copy.deepcopy(made[0])
    fast.pad_token = fast.eos_token
    rows = [fast(a + " " + b + fast.eos_token) for a, b in TALKS]
    batch = transformers.DataCollatorForLanguageModeling(fast, mlm=False)(rows)
    other = tmp_path / "saved"
    other.mkdir()
    fast.save_pretrained(other)
    seen = ask(tmp_path, (fast, other), dict(batch))
    assert seen.values("batch.eos_masked")


def test_other_containers(tmp_path, made) -> None:
    wrong = _wrong("all_masked", talks(made[0]))
    np.savez(tmp_path / "batch.npz", **{k: v.numpy() for k, v in wrong.items()})
    seen = ask(tmp_path, made)
    assert seen.values("batch.all_masked") == [1]
    (tmp_path / "batch.npz").unlink()
    rows = [{k: v[n].tolist() for k, v in wrong.items()} for n in range(3)]
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    seen = ask(tmp_path, made)
    assert seen.of("batch.all_masked")[0].line == 2
    (tmp_path / "samples.jsonl").unlink()
    text = "".join(f"input_ids: {r['input_ids']}\nlabels: {r['labels']}\n" for r in rows)
    (tmp_path / "batch_dump.txt").write_text(text)
    seen = ask(tmp_path, made)
    assert seen.of("batch.all_masked")[0].line == 3


def test_a_batch_that_cannot_be_read(tmp_path, made) -> None:
    torch.save(talks(made[0]), tmp_path / "whole")
    (tmp_path / "batch.pt").write_bytes((tmp_path / "whole").read_bytes()[:900])
    (tmp_path / "whole").unlink()
    seen = ask(tmp_path, made)
    assert seen.result.outcome == "failed"


def test_no_batch(tmp_path) -> None:
    (tmp_path / "train.log").write_text("step 1 loss 2.0\n")
    assert inspect_batch(Workspace([tmp_path])).outcome == "not_applicable"


def test_a_printed_tensor_of_two_dimensions_is_as_many_sequences(tmp_path) -> None:
    from traindoctor.agent.reading.datasets.batches import batches

    text = "input_ids: tensor([[1, 2, 3],\n        [4, 5, 6]])\nlabels: tensor([[-100, 2, 3],\n        [4, -100, 6]])\n"
    (tmp_path / "batch.txt").write_text(text)
    (batch,) = batches(Workspace([tmp_path]))
    assert [(r.number, r.ids, r.labels) for r in batch.rows] == [
        (0, [1, 2, 3], [-100, 2, 3]),
        (1, [4, 5, 6], [4, -100, 6]),
    ]
