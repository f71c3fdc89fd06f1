"""A causal model of recipes: tokenizes with datasets.map, then trains with the Trainer."""

import json
import random

import torch
from datasets import load_dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

set_seed(3)
torch.set_num_threads(1)
vocabulary = {}


def encode(rows):
    ids = []
    for text in rows["text"]:
        tokens = [vocabulary.setdefault(w, len(vocabulary) + 1) for w in text.split()]
        ids.append((tokens + [0] * 128)[:128])
    return {"input_ids": ids, "labels": [[t if t else -100 for t in row] for row in ids], "attention_mask": [[int(t > 0) for t in row] for row in ids]}


def main():
    raw = load_dataset("json", data_files="recipes.jsonl", split="train")
    print(raw)
    rows = raw.map(encode, batched=True, batch_size=200, writer_batch_size=200, remove_columns=["text"], desc="tokenizing")
    rows.set_format("torch")
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(vocabulary) + 1, n_positions=128, n_embd=32, n_layer=2, n_head=2))
    args = TrainingArguments("out", max_steps=30, per_device_train_batch_size=8, logging_steps=5, save_strategy="no", report_to="none", use_cpu=True)
    trainer = Trainer(model, args, train_dataset=rows)
    print(json.dumps(trainer.train().metrics))


if __name__ == "__main__":
    main()
