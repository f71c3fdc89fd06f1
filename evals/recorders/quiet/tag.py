"""Token classification with the Hugging Face Trainer, a tiny BERT from scratch."""

import argparse

import torch
from transformers import BertConfig, BertForTokenClassification, Trainer, TrainingArguments


class Tagged(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(5, 300, (count, 24), generator=g)
        self.labels = (self.ids % 7 == 0).long() + 2 * (self.ids % 5 == 0).long()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": torch.ones(24, dtype=torch.long), "labels": self.labels[i]}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=float, default=6)
    ap.add_argument("--workers", type=int, default=0)
    args = ap.parse_args()
    config = BertConfig(vocab_size=300, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
                        max_position_embeddings=32, num_labels=4)
    model = BertForTokenClassification(config)
    print(f"model: {model.num_parameters():,} parameters, 4 tags", flush=True)
    train, held = Tagged(1600, 1), Tagged(200, 2)
    print(f"train {len(train)} sentences, dev {len(held)} sentences", flush=True)
    trainer = Trainer(
        model,
        TrainingArguments("out", num_train_epochs=args.epochs, per_device_train_batch_size=32, learning_rate=1e-3,
                          logging_steps=10, eval_strategy="steps", eval_steps=50, save_steps=100, report_to="none",
                          dataloader_num_workers=args.workers, seed=3, use_cpu=True),
        train_dataset=train, eval_dataset=held,
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
