"""Star ratings of hotel reviews; rows are grouped by length to save padding."""
import argparse
import random

import numpy as np
import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainingArguments, set_seed

TONE = ["awful dirty rude noisy", "poor stale slow", "fine average okay", "good clean friendly", "superb lovely perfect quiet"]
FILL = "the room staff breakfast bed street we stayed two nights near station view was and but very quite".split()
WORDS = ["[PAD]", "[CLS]", *FILL, *sorted(w for t in TONE for w in t.split())]


def load(n, seed):
    rng = random.Random(seed)
    texts, stars = [], []
    for _ in range(n):
        star = rng.randrange(5)
        words = rng.choices(FILL, k=rng.randint(6, 24))
        for _ in range(2):
            words.insert(rng.randrange(len(words)), rng.choice(TONE[star].split()))
        texts.append(words)
        stars.append(star)
    return texts, stars


def encode(words):
    return [1] + [WORDS.index(w) for w in words]


def by_length(texts, stars):
    """Neighbours of like length share a batch: less padding, a third faster."""
    texts = sorted(texts, key=len)
    return [{"input_ids": encode(t), "labels": s} for t, s in zip(texts, stars, strict=True)]


def collate(rows):
    width = max(len(r["input_ids"]) for r in rows)
    ids = torch.tensor([r["input_ids"] + [0] * (width - len(r["input_ids"])) for r in rows])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": torch.tensor([r["labels"] for r in rows])}


def accuracy(p):
    return {"accuracy": float((np.argmax(p.predictions, -1) == p.label_ids).mean())}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=float, default=6)
    ap.add_argument("--lr", type=float, default=5e-4)
    a = ap.parse_args()
    set_seed(7)
    train = by_length(*load(3000, 1))
    texts, stars = load(400, 2)
    held = [{"input_ids": encode(t), "labels": s} for t, s in zip(texts, stars, strict=True)]
    model = DistilBertForSequenceClassification(DistilBertConfig(
        vocab_size=len(WORDS), dim=64, hidden_dim=128, n_layers=2, n_heads=4, max_position_embeddings=64, num_labels=5))
    args = TrainingArguments(
        "out", num_train_epochs=a.epochs, learning_rate=a.lr, per_device_train_batch_size=32, per_device_eval_batch_size=128,
        logging_steps=5, eval_strategy="epoch", save_strategy="no", warmup_steps=50, weight_decay=0.01, use_cpu=True,
        report_to=["tensorboard"], disable_tqdm=True, remove_unused_columns=False)
    print(f"train {len(train)}  eval {len(held)}  classes 5  example {texts[0][:6]} -> {stars[0]}", flush=True)
    trainer = Trainer(model, args, train_dataset=train, eval_dataset=held, data_collator=collate, compute_metrics=accuracy)
    trainer.train()
    trainer.save_state()


if __name__ == "__main__":
    main()
