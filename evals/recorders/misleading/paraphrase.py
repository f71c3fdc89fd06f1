"""A small causal LM with the Hugging Face Trainer; the arguments stand in args.json."""

import json
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Pairs(torch.utils.data.Dataset):
    """Sentences and their reversal."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(4, 64, (count, 10), generator=g)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        with torch.cuda.amp.autocast(enabled=False):
            x = torch.cat([self.ids[i], torch.tensor([1]), self.ids[i].flip(0)])
        return {"input_ids": x, "labels": x.clone()}


def main():
    with open(sys.argv[1]) as f:
        args = TrainingArguments(**json.load(f))
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=48, n_layer=2, n_head=4))
    trainer = Trainer(model, args, train_dataset=Pairs(960, 1), eval_dataset=Pairs(64, 2))
    print(trainer.train())
    trainer.save_state()


if __name__ == "__main__":
    main()
