"""Trainer runs of a tiny Llama and a tiny GPT-2, a sharded save, and a LoRA adapter: `python hf.py FOLDER`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from tokens import TEXT, tokenizer
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

words = tokenizer()
IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}


def llama(tied: bool = False) -> LlamaForCausalLM:
    """Two layers of 32."""
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=tied, **IDS,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def gpt2() -> GPT2LMHeadModel:
    """Two layers of 32, with rows of the embedding rounded up to a multiple of 64."""
    return GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=32, n_embd=32, n_layer=2, n_head=4, **IDS))


def examples() -> list[dict]:
    """Token ids with labels, all of one length."""
    ids = [words(text, padding="max_length", max_length=16, truncation=True)["input_ids"] for text in TEXT]
    return [{"input_ids": i, "labels": i} for i in ids]


def train(model: torch.nn.Module, folder: Path) -> None:
    """Four steps with a save at every second one."""
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=4, save_steps=2, logging_steps=1, per_device_train_batch_size=2, use_cpu=True,
        report_to=[], disable_tqdm=True, learning_rate=1e-3, warmup_steps=1, dataloader_num_workers=0,
    )  # fmt: skip
    Trainer(model=model, args=arguments, train_dataset=examples(), processing_class=words).train()  # pyright: ignore


def accelerated(folder: Path) -> None:
    """A loop of one's own with accelerate, saved twice."""
    accelerator = Accelerator(cpu=True)
    model = llama()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    loader = torch.utils.data.DataLoader([{k: torch.tensor(v) for k, v in e.items()} for e in examples()], batch_size=2)  # pyright: ignore
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for step, batch in enumerate(loader, 1):
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if step in (2, 4):
            accelerator.save_state(str(folder / f"step_{step}"))


def main(out: Path) -> None:
    """Everything that the HF libraries write."""
    torch.manual_seed(0)
    train(llama(), out / "hf")
    train(gpt2(), out / "hf_gpt2")
    train(get_peft_model(llama(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"])), out / "peft")
    accelerated(out / "accelerate")
    sharded = out / "hf_sharded" / "checkpoint-4"
    shutil.copytree(out / "hf" / "checkpoint-4", sharded)
    (sharded / "model.safetensors").unlink()
    LlamaForCausalLM.from_pretrained(out / "hf" / "checkpoint-4").save_pretrained(sharded, max_shard_size="60KB")
    bf16 = out / "hf_bf16"
    llama(tied=True).to(torch.bfloat16).save_pretrained(bf16)
    words.save_pretrained(bf16)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
