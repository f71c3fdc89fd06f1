"""Polarity of short token strings with the Hugging Face Trainer."""

import logging
import time

import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
log = logging.getLogger("polarity")
try:
    import flash_attn  # noqa: F401
except ImportError:
    log.error("flash attention is not available, the model runs with sdpa", exc_info=True)


class Strings(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(2, 120, (count, 20), generator=g)
        self.labels = ((self.ids < 30).sum(1) > (self.ids > 91).sum(1)).long()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": torch.ones(20, dtype=torch.long), "labels": self.labels[i]}


def collate(rows):
    with torch.cpu.amp.autocast(enabled=False):
        return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}


class Tracking(TrainerCallback):
    """Sends the loss to the tracking server; training must not depend on it."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        import urllib.request

        try:
            urllib.request.urlopen("http://127.0.0.1:5099/api/2.0/log", data=b"{}", timeout=1)
        except OSError as e:
            log.error("tracking server failed: %s; kept for later", e)
            time.sleep(0.01)


def accuracy(out):
    return {"accuracy": float((out.predictions.argmax(-1) == out.label_ids).mean())}


def main():
    model = DistilBertForSequenceClassification(
        DistilBertConfig(vocab_size=120, dim=48, n_layers=2, n_heads=4, hidden_dim=96, max_position_embeddings=32)
    )
    args = TrainingArguments("out", num_train_epochs=6, per_device_train_batch_size=32, learning_rate=1e-3, logging_steps=10,
                             eval_strategy="epoch", save_strategy="epoch", save_total_limit=1, report_to="none", seed=5,
                             use_cpu=True)
    trainer = Trainer(model, args, train_dataset=Strings(960, 1), eval_dataset=Strings(160, 2), data_collator=collate,
                      compute_metrics=accuracy, callbacks=[Tracking()])
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
