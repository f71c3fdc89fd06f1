"""Sequence classification by the transformers Trainer, with accuracy and the best model kept."""

import numpy as np
from datasets_toy import TextRows
from transformers import (
    DataCollatorWithPadding, DistilBertConfig, DistilBertForSequenceClassification, EarlyStoppingCallback,
    HfArgumentParser, Trainer, TrainingArguments, set_seed,
)

from corpus import NOUNS, sentences, tokenizer

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
set_seed(args.seed)
words = tokenizer()


def rows(count, seed):
    texts = sentences(count, seed)
    return TextRows(words, texts, [NOUNS.index(t.split()[2]) % 4 for t in texts])


def compute_metrics(found):
    return {"accuracy": float((np.argmax(found.predictions, -1) == found.label_ids).mean())}


model = DistilBertForSequenceClassification(
    DistilBertConfig(vocab_size=len(words), dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=64, num_labels=4)
)
trainer = Trainer(
    model=model, args=args, processing_class=words, train_dataset=rows(1200, 1), eval_dataset=rows(200, 2),
    data_collator=DataCollatorWithPadding(words), compute_metrics=compute_metrics,
    callbacks=[EarlyStoppingCallback(2)] if args.load_best_model_at_end else None,
)
trainer.train()
print(trainer.evaluate())
trainer.save_state()
