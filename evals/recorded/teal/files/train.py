"""A GPT-2 on recipe texts, from scratch."""

import argparse
import json

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments

BLOCK = 96


class Texts(torch.utils.data.Dataset):
    def __init__(self, count, vocab, seed):
        rng = np.random.default_rng(seed)
        start = rng.integers(0, vocab, (count, 1))
        self.ids = (start + np.cumsum(rng.integers(1, 5, (count, BLOCK)), 1)) % vocab

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def accuracy(prediction):
    logits, labels = prediction
    return {"accuracy": float((logits[:, :-1].argmax(-1) == labels[:, 1:]).mean())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("args")
    parser.add_argument("model")
    parser.add_argument("--eval-texts", type=int, default=64)
    asked = parser.parse_args()
    (args,) = HfArgumentParser(TrainingArguments).parse_json_file(asked.args)
    torch.manual_seed(args.seed)
    config = GPT2Config(**json.load(open(asked.model)))
    model = GPT2LMHeadModel(config)
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=Texts(2000, config.vocab_size, 1),
        eval_dataset=Texts(asked.eval_texts, config.vocab_size, 2),
        compute_metrics=accuracy,
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
