"""Intents of customer questions: a small BERT of our own, trained with transformers' Trainer from a YAML file."""

import json
import random
import sys

import numpy as np
import torch
import yaml
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

INTENTS = ["refund", "delivery", "account", "other"]


class Questions(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(count):
            label = rng.randrange(len(INTENTS))
            words = [2] + [rng.randrange(10 + 30 * label, 60 + 30 * label) for _ in range(rng.randrange(6, 18))] + [3]
            self.rows.append((words, label))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    longest = max(len(w) for w, _ in rows)
    ids = torch.tensor([w + [0] * (longest - len(w)) for w, _ in rows])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": torch.tensor([label for _, label in rows])}


def accuracy(prediction):
    return {"accuracy": float((np.argmax(prediction.predictions, -1) == prediction.label_ids).mean())}


def main():
    with open(sys.argv[1]) as f:
        config = yaml.safe_load(f)
    print("config:", json.dumps(config, indent=1))
    set_seed(config["training"].get("seed", 0))
    shape = config["model"]
    if "pretrained" in shape:
        model = BertForSequenceClassification.from_pretrained(shape["pretrained"], num_labels=len(INTENTS))
    else:
        model = BertForSequenceClassification(BertConfig(vocab_size=200, num_labels=len(INTENTS), max_position_embeddings=64, **shape))
    print(f"{model.num_parameters():,} parameters")
    args = TrainingArguments(**config["training"])
    trainer = Trainer(model, args, train_dataset=Questions(800, 1), eval_dataset=Questions(200, 2), data_collator=collate,
                      compute_metrics=accuracy)
    trainer.train()
    trainer.save_state()
    print("final:", json.dumps(trainer.evaluate()))


if __name__ == "__main__":
    main()
