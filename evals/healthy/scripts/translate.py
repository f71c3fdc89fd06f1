"""Sequence to sequence: a tiny T5 learns to say a sentence's words in another order, scored by generation."""

import numpy as np
from transformers import (
    DataCollatorForSeq2Seq, HfArgumentParser, Seq2SeqTrainer, Seq2SeqTrainingArguments, T5Config,
    T5ForConditionalGeneration, set_seed,
)

from corpus import sentences, tokenizer

(args,) = HfArgumentParser(Seq2SeqTrainingArguments).parse_args_into_dataclasses()
set_seed(args.seed)
words = tokenizer()


def rows(count, seed):
    found = []
    for text in sentences(count, seed):
        parts = text.split()
        target = words(" ".join([*parts[4:6], *parts[:3], "[EOS]"]))["input_ids"][1:]
        found.append({"input_ids": words(" ".join(parts[:6]))["input_ids"], "labels": target})
    return found


def compute_metrics(found):
    predictions = np.where(found.predictions < 0, 0, found.predictions)
    labels = np.where(found.label_ids < 0, 0, found.label_ids)
    said, wanted = (words.batch_decode(x, skip_special_tokens=True) for x in (predictions, labels))
    return {"exact_match": float(np.mean([a == b for a, b in zip(said, wanted, strict=True)]))}


model = T5ForConditionalGeneration(
    T5Config(vocab_size=len(words), d_model=48, d_kv=12, d_ff=96, num_layers=2, num_heads=4, decoder_start_token_id=0, pad_token_id=0, eos_token_id=3, dropout_rate=0.0)
)
trainer = Seq2SeqTrainer(
    model=model, args=args, processing_class=words, train_dataset=rows(1600, 1), eval_dataset=rows(64, 2),
    data_collator=DataCollatorForSeq2Seq(words, model=model), compute_metrics=compute_metrics,
)
trainer.train()
trainer.log_metrics("eval", trainer.evaluate())
trainer.save_state()
