"""LoRA on a sentence encoder: do two headlines tell the same story?"""
import argparse
import random

import torch
import yaml
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import BertConfig, BertModel, Trainer, TrainingArguments, set_seed

VOCAB = 300


def stories(n, seed):
    rng = random.Random(seed)
    for _ in range(n):
        topic = rng.sample(range(10, 60), 3)
        same = rng.random() < 0.5
        other = topic if same else rng.sample(range(10, 60), 3)
        yield {"a": [2, *rng.sample(topic + rng.choices(range(60, VOCAB), k=7), 10)],
               "b": [2, *rng.sample(other + rng.choices(range(60, VOCAB), k=7), 10)], "labels": float(same)}


def collate(rows):
    return {"a": torch.tensor([r["a"] for r in rows]), "b": torch.tensor([r["b"] for r in rows]), "labels": torch.tensor([r["labels"] for r in rows])}


class Pairs(nn.Module):
    def __init__(self, encoder, scale):
        super().__init__()
        self.encoder, self.scale = encoder, scale

    def embed(self, ids):
        return nn.functional.normalize(self.encoder(input_ids=ids).last_hidden_state.mean(1), dim=-1)

    def forward(self, a, b, labels=None):
        logits = self.scale * ((self.embed(a) * self.embed(b)).sum(-1) - 0.5)
        return {"loss": nn.functional.binary_cross_entropy_with_logits(logits, labels), "logits": logits}


def accuracy(p):
    return {"accuracy": float(((p.predictions > 0) == (p.label_ids > 0.5)).mean())}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="lora.yaml")
    cfg = yaml.safe_load(open(ap.parse_args().config))
    set_seed(cfg["trainer"]["seed"])
    encoder = BertModel(BertConfig(vocab_size=VOCAB, max_position_embeddings=32, **cfg["model"]))
    encoder = get_peft_model(encoder, LoraConfig(**cfg["lora"]))
    encoder.enable_input_require_grads()
    encoder.print_trainable_parameters()
    args = TrainingArguments(use_cpu=True, report_to=["tensorboard"], disable_tqdm=True, remove_unused_columns=False, label_names=["labels"], **cfg["trainer"])
    trainer = Trainer(Pairs(encoder, 10.0), args, train_dataset=list(stories(2000, 1)), eval_dataset=list(stories(400, 2)), data_collator=collate,
                      compute_metrics=accuracy)
    trainer.train()
    trainer.save_state()


if __name__ == "__main__":
    main()
