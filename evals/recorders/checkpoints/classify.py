"""Fine-tune a small encoder on intent classification."""
import json
import logging
import os
import random
import sys

import numpy as np
import torch
from transformers import (BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, logging as hf_logging)

logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO, stream=sys.stdout)
log = logging.getLogger("intents")
hf_logging.set_verbosity_info()

INTENTS = {"refund": ["money", "back", "refund", "charged"], "delivery": ["parcel", "late", "courier", "where"],
           "login": ["password", "reset", "locked", "code"], "praise": ["thanks", "great", "lovely", "fast"]}
FILLER = "please my the order i it was today and again still you a for".split()
WORDS = ["[PAD]", "[CLS]", "[UNK]"] + FILLER + [w for ws in INTENTS.values() for w in ws]


def rows(n, seed, length=16):
    rng, out = random.Random(seed), []
    for _ in range(n):
        label, name = rng.choice(list(enumerate(INTENTS)))
        words = rng.choices(FILLER, k=8) + rng.choices(INTENTS[name], k=2)
        rng.shuffle(words)
        ids = [1] + [WORDS.index(w) for w in words]
        out.append({"input_ids": ids + [0] * (length - len(ids)), "attention_mask": [1] * len(ids) + [0] * (length - len(ids)),
                    "labels": label})
    return out


def accuracy(pred):
    return {"accuracy": float((np.argmax(pred.predictions, -1) == pred.label_ids).mean())}


def main():
    cfg = json.load(open("config.json"))
    torch.manual_seed(cfg["trainer"].get("seed", 42))
    source = cfg["base_model"]
    log.info("base model %s, %d words in the vocabulary", source, cfg.get("vocab_size", len(WORDS)))
    extra = {"vocab_size": cfg["vocab_size"]} if "vocab_size" in cfg else {}
    config = BertConfig.from_pretrained(source, num_labels=len(INTENTS), **extra)
    model = BertForSequenceClassification.from_pretrained(source, config=config)
    args = TrainingArguments(use_cpu=True, report_to=[], disable_tqdm=False, **cfg["trainer"])
    trainer = Trainer(model, args, train_dataset=rows(cfg["train_rows"], 1), eval_dataset=rows(200, 2), compute_metrics=accuracy)
    resume = cfg.get("resume_from_checkpoint") or None
    if resume:
        log.info("resuming from %s", resume)
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model(os.path.join(args.output_dir, "final"))
    log.info("done: %s", trainer.evaluate())


if __name__ == "__main__":
    main()
