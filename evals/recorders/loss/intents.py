"""Intent classification with a small BERT on the support desk's messages."""
import argparse
import random

import numpy as np
import torch
import yaml
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

INTENTS = "refund delivery login invoice cancel upgrade".split()
CUES = {"refund": "money back returned", "delivery": "parcel courier late", "login": "password account locked",
        "invoice": "bill tax receipt", "cancel": "stop subscription end", "upgrade": "plan premium seats"}
FILL = "please hello my the is still about again since today need help with this order number can you check".split()
WORDS = ["[PAD]", "[CLS]", *FILL, *sorted({w for c in CUES.values() for w in c.split()})]
VOCAB = {w: i for i, w in enumerate(WORDS)}


def messages(n, seed, noise):
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        label = rng.randrange(len(INTENTS))
        said = rng.choices(FILL, k=rng.randint(5, 12))
        said[rng.randrange(len(said))] = rng.choice(CUES[INTENTS[label]].split())
        if rng.random() < noise:
            label = rng.randrange(len(INTENTS))
        rows.append((["[CLS]", *said], label))
    return rows


class Messages(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        said, label = self.rows[i]
        return {"input_ids": [VOCAB[w] for w in said], "labels": label}


def collate(batch):
    width = max(len(b["input_ids"]) for b in batch)
    ids = torch.tensor([b["input_ids"] + [0] * (width - len(b["input_ids"])) for b in batch])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": torch.tensor([b["labels"] for b in batch])}


def metrics(pred):
    return {"accuracy": float((np.argmax(pred.predictions, -1) == pred.label_ids).mean())}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="intents.yaml")
    cfg = yaml.safe_load(open(ap.parse_args().config))
    set_seed(cfg["trainer"]["seed"])
    d = cfg["data"]
    train, held = Messages(messages(d["train"], 1, d["noise"])), Messages(messages(d["eval"], 2, d["noise"]))
    model = BertForSequenceClassification(BertConfig(vocab_size=len(WORDS), max_position_embeddings=32, num_labels=len(INTENTS), **cfg["model"]))
    args = TrainingArguments(use_cpu=True, remove_unused_columns=False, report_to=["tensorboard"], disable_tqdm=True,
                             **cfg["trainer"])
    opt = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=args.weight_decay)
    s = cfg["schedule"]
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda k: min((k + 1) / s["warmup_steps"], max(0.0, (s["total_steps"] - k) / (s["total_steps"] - s["warmup_steps"]))))
    print(f"{len(train)} train, {len(held)} eval, vocabulary {len(WORDS)}, {model.num_parameters()} parameters", flush=True)
    trainer = Trainer(model, args, train_dataset=train, eval_dataset=held, data_collator=collate, compute_metrics=metrics, optimizers=(opt, sched))
    trainer.train()
    trainer.save_state()


if __name__ == "__main__":
    main()
