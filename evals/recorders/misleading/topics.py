"""Topic of a note: fine-tunes the encoder of `pretrain.py`."""

import csv
import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

CLASSES = ["sport", "science", "travel", "food"]


class Notes(torch.utils.data.Dataset):
    def __init__(self, path):
        with open(path, newline="") as f:
            self.rows = [([int(t) for t in r["tokens"].split()], int(r["topic"])) for r in csv.DictReader(f)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        tokens, topic = self.rows[i]
        return {"input_ids": torch.tensor(tokens), "attention_mask": torch.ones(len(tokens), dtype=torch.long), "labels": topic}


class Weighted(Trainer):
    """Rare topics count more."""

    weights = torch.tensor([1.0, 1.2, 1.1, 1.6])

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        labels = inputs.pop("labels")
        out = model(**inputs)
        each = self.weights[labels]
        loss = (torch.nn.functional.cross_entropy(out.logits, labels, reduction="none") * each).sum() / each.sum()
        return (loss, out) if return_outputs else loss


def main():
    model = BertForSequenceClassification.from_pretrained("encoder", num_labels=len(CLASSES))
    notes = Notes(sys.argv[1])
    print(f"{len(notes)} notes, {len(CLASSES)} topics: {', '.join(CLASSES)}")
    args = TrainingArguments("out", num_train_epochs=3, per_device_train_batch_size=16, learning_rate=5e-4, logging_steps=5,
                             save_strategy="no", report_to="tensorboard", seed=1, use_cpu=True)
    Weighted(model, args, train_dataset=notes).train()


if __name__ == "__main__":
    main()
