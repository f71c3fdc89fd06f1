"""A small T5 that spells numbers out in words."""
import argparse
import random

import torch
import yaml
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config, T5ForConditionalGeneration, set_seed

ONES = "zero one two three four five six seven eight nine".split()


def pairs(path):
    with open(path, encoding="utf-8") as f:
        return [line.rstrip("\n").split("\t") for line in f]


def make(path, n):
    rng = random.Random(5)
    with open(path, "w", encoding="utf-8") as f:
        for _ in range(n):
            digits = "".join(rng.choices("0123456789", k=rng.choice([2, 3, 4, 7, 8, 9, 10, 11, 12])))
            f.write(f"{digits}\t{' '.join(ONES[int(d)] for d in digits)}\n")


def encode(text):
    return [2 + int(c) for c in text] + [1]


def spell(text):
    return [12 + ONES.index(w) for w in text.split()] + [1]


def prepare(rows, limit):
    rows = [{"input_ids": encode(a), "labels": spell(b)} for a, b in rows]
    return [r for r in rows if len(r["labels"]) <= limit]


def collate(rows):
    wide, long = max(len(r["input_ids"]) for r in rows), max(len(r["labels"]) for r in rows)
    ids = torch.tensor([r["input_ids"] + [0] * (wide - len(r["input_ids"])) for r in rows])
    labels = torch.tensor([r["labels"] + [-100] * (long - len(r["labels"])) for r in rows])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--make", type=int, default=0)
    ap.add_argument("--config", default="t5.yaml")
    a = ap.parse_args()
    if a.make:
        return make("train.tsv", a.make)
    cfg = yaml.safe_load(open(a.config))
    set_seed(cfg["trainer"]["seed"])
    rows = pairs(cfg["data"]["train"])
    train, held = prepare(rows[200:], cfg["data"]["max_target_length"]), prepare(rows[:200], 512)
    model = T5ForConditionalGeneration(T5Config(vocab_size=24, decoder_start_token_id=0, **cfg["model"]))
    args = Seq2SeqTrainingArguments(use_cpu=True, remove_unused_columns=False, report_to=[], disable_tqdm=True, **cfg["trainer"])
    trainer = Seq2SeqTrainer(model, args, train_dataset=train, eval_dataset=held, data_collator=collate)
    print(f"***** Running training *****\n  Num examples = {len(train)}\n  Num eval examples = {len(held)}\n"
          f"  Num Epochs = {args.num_train_epochs:g}\n  Parameters = {model.num_parameters():,}", flush=True)
    trainer.train()
    trainer.save_state()
    model.eval()
    by_length = {}
    for source, target in rows[:200]:
        out = model.generate(torch.tensor([encode(source)]), max_new_tokens=16, do_sample=False)[0].tolist()
        words = [ONES[t - 12] for t in out[1:] if 12 <= t < 22]
        by_length.setdefault(len(source), []).append(" ".join(words) == target)
    for n in sorted(by_length):
        print(f"eval digits={n:2d} exact={sum(by_length[n]) / len(by_length[n]):.2f} ({len(by_length[n])})")


if __name__ == "__main__":
    main()
