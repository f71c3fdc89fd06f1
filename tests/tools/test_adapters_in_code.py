"""Adapters that are loaded and do not train or do not answer, masks that count everything, states left out of saves."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.settings.code_tools import find_hazards

LOADED = """
from peft import PeftModel
from trl import GRPOTrainer
model = AutoModelForCausalLM.from_pretrained("base")
{load}
trainer = GRPOTrainer(model={given}, reward_funcs=[score], args=args, train_dataset=data)
trainer.train()
"""


def hazards(folder: Path, source: str) -> dict[str, list[int]]:
    (folder / "train.py").write_text(textwrap.dedent(source))
    found: dict[str, list[int]] = {}
    for e in find_hazards(Workspace([folder])).evidence:
        found.setdefault(e.key.removeprefix("code."), []).append(e.line or 0)
    return found


@pytest.mark.parametrize(
    "load",
    [
        'model = PeftModel.from_pretrained(model, "out/sft")',
        'model = PeftModel.from_pretrained(model, "out/sft", is_trainable=False)',
        'model = peft.PeftModelForCausalLM.from_pretrained(model, "out/sft", adapter_name="default")',
        'model = AutoPeftModelForCausalLM.from_pretrained("out/sft", torch_dtype="bfloat16")',
    ],
)
def test_an_adapter_that_was_loaded_for_inference_is_handed_to_a_trainer(tmp_path: Path, load: str) -> None:
    assert hazards(tmp_path, LOADED.format(load=load, given="model"))["adapter_not_trainable"] == [5]


@pytest.mark.parametrize(
    ("load", "given"),
    [
        ('model = PeftModel.from_pretrained(model, "out/sft", is_trainable=True)', "model"),
        ('model = PeftModel.from_pretrained(model, "out/sft").merge_and_unload()', "model"),
        ('model = PeftModel.from_pretrained(model, "out/sft")\nfor p in model.parameters(): p.requires_grad = True', "model"),
        ('ref_model = PeftModel.from_pretrained(model, "out/sft")', "model"),  # a reference is to stand still
        ('model = LlamaForCausalLM.from_pretrained("out/sft")', "model"),
    ],
)  # fmt: skip
def test_an_adapter_that_is_switched_on_merged_or_not_trained_is_none(tmp_path: Path, load: str, given: str) -> None:
    assert "adapter_not_trainable" not in hazards(tmp_path, LOADED.format(load=load, given=given))


def test_a_plain_loop_with_an_optimizer_counts_as_training(tmp_path: Path) -> None:
    source = """
    model = PeftModel.from_pretrained(base, "out/sft")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    """
    assert hazards(tmp_path, source)["adapter_not_trainable"] == [2]
    assert "adapter_not_trainable" not in hazards(tmp_path, source.replace("model.parameters()", "head.parameters()"))


DOUBLED = """
model = AutoModelForCausalLM.from_pretrained("base")
{fresh}
{load}
print(model.generate(**inputs))
"""


def test_a_saved_adapter_over_a_fresh_one(tmp_path: Path) -> None:
    fresh, load = "model = get_peft_model(model, config)", 'model = PeftModel.from_pretrained(model, "out/ckpt")'
    assert hazards(tmp_path, DOUBLED.format(fresh=fresh, load=load))["adapter_over_adapter"] == [3, 4]
    apart = f"if args.resume:\n    {load}\nelse:\n    {fresh}"
    for near in (
        DOUBLED.format(fresh="", load=load),
        DOUBLED.format(fresh=fresh, load='model.load_adapter("out/ckpt", "default")'),
        DOUBLED.format(fresh=fresh, load='base = make()\nmodel = PeftModel.from_pretrained(base, "out/ckpt")'),
        DOUBLED.format(fresh="", load=apart),
        DOUBLED.format(fresh=f"if new:\n    {fresh}\nelse:\n    {load}", load=""),
        DOUBLED.format(fresh=f"{fresh}\nmodel = model.unload()", load=load),
    ):
        assert "adapter_over_adapter" not in hazards(tmp_path, near), near


def test_a_new_head_below_a_loaded_adapter(tmp_path: Path) -> None:
    source = """
    model = {auto}.from_pretrained("roberta-base")
    model = PeftModel.from_pretrained(model, "out/ckpt")
    """
    for auto in ("AutoModelForSequenceClassification", "transformers.BertForTokenClassification"):
        assert hazards(tmp_path, source.format(auto=auto))["adapter_on_new_head"] == [3]
    assert "adapter_on_new_head" not in hazards(tmp_path, source.format(auto="AutoModelForCausalLM"))


def test_a_loss_mask_of_ones(tmp_path: Path) -> None:
    source = """
    def loss(logits, labels, loss_mask=None):
        if loss_mask is None:
            loss_mask = {ones}
        {more}
        return (entropy(logits, labels) * loss_mask).sum() / loss_mask.sum()
    """
    wrong = source.format(ones="torch.ones_like(labels)", more="pass")
    assert hazards(tmp_path, wrong)["mask_of_ones"] == [4]
    for near in (
        source.format(ones="torch.ones_like(labels)", more="loss_mask[labels == -100] = 0"),
        source.format(ones="torch.ones_like(labels)", more="loss_mask = loss_mask * (labels != ignore_index)"),
        source.format(ones="(labels != -100).float()", more="pass"),
        source.format(ones="torch.ones_like(input_ids)", more="pass"),
        "labels = tokens[:, 1:]\nloss_mask = torch.ones_like(labels)\n",  # plain text: every token is a target
        "if task_loss_mask is None:\n    task_loss_mask = torch.ones_like(labels)\n",
    ):
        assert "mask_of_ones" not in hazards(tmp_path, near), near


def test_a_checkpoint_of_single_files_without_the_optimizer(tmp_path: Path) -> None:
    source = """
    def save_checkpoint(path, model, scheduler, rank):
        torch.save(model.state_dict(), path + "/model.pt")
        torch.save(scheduler.state_dict(), path + "/scheduler.pt")
        {more}
    """
    assert hazards(tmp_path, source.format(more="pass"))["optimizer_not_saved"] == [4]
    for more in ('torch.save(optimizer.state_dict(), path + "/o.pt")', "accelerator.save_state(path)"):
        assert "optimizer_not_saved" not in hazards(tmp_path, source.format(more=more))


def test_a_preference_loss_times_zero(tmp_path: Path) -> None:
    assert hazards(tmp_path, "args = DPOConfig(beta=0.0, output_dir='o')\n")["preference_beta_zero"] == [1]
    for near in ("args = DPOConfig(beta=0.1)\n", "args = GRPOConfig(beta=0.0)\n", "t = DPOTrainer(model, beta=beta)\n"):
        assert "preference_beta_zero" not in hazards(tmp_path, near)
