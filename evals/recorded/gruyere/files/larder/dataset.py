"""Questions and answers as token numbers, and the batches made of them."""

import json

import torch
from torch.utils.data import Dataset

from .templates import prompt, reply


class Answers(Dataset):
    """One question an item; the loss is taken on the answer alone."""

    def __init__(self, path, tokenizer, template, max_length):
        with open(path, encoding="utf-8") as f:
            self.rows = [json.loads(line) for line in f]
        self.items = []
        for row in self.rows:
            asked = tokenizer(prompt(template, row["question"]))["input_ids"]
            answer = tokenizer(reply(template, row["answer"]))["input_ids"]
            ids = (asked + answer)[:max_length]
            labels = ([-100] * len(asked) + answer)[:max_length]
            self.items.append({"input_ids": ids, "labels": labels})

    def __len__(self):
        return len(self.items)

    def __getitem__(self, n):
        return self.items[n]


class Padded:
    """Rows of one length: padding on the right, left out of the loss."""

    def __init__(self, pad, length=None):
        self.pad, self.length = pad, length

    def __call__(self, items):
        n = self.length or max(len(i["input_ids"]) for i in items)
        ids = torch.full((len(items), n), self.pad)
        labels = torch.full((len(items), n), -100)
        mask = torch.zeros((len(items), n), dtype=torch.long)
        for k, item in enumerate(items):
            m = len(item["input_ids"])
            ids[k, :m] = torch.tensor(item["input_ids"])
            labels[k, :m] = torch.tensor(item["labels"])
            mask[k, :m] = 1
        return {"input_ids": ids, "labels": labels, "attention_mask": mask}
