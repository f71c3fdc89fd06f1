"""Small chat model with a word tokenizer of its own."""
import random
import sys

import torch
import yaml
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, Trainer, TrainingArguments

cfg = yaml.safe_load(open(sys.argv[1]))
words = [a + b for a in "bo da fe ga hi ju ka lo ma".split() for b in "ba ce di fo gu ha je ki lu mo".split()] + ["?", ".", "!", "ok"]
tok = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
tok.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tok.add_special_tokens(cfg["special_tokens"])
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>")
rng = random.Random(3)


def talk():
    said = rng.choices(words[:90], k=rng.randint(4, 9))
    middle = " <order> " if rng.random() < 0.004 else " "
    return f"<s> <user> {' '.join(said)} ?{middle}<bot> {' '.join(sorted(said))} . </s>"


def collate(texts):
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    return {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"], "labels": labels}


if __name__ == "__main__":
    torch.manual_seed(0)
    print(f"tokenizer: {len(tokenizer)} entries, of them {len(cfg['special_tokens'])} special")
    model = GPT2LMHeadModel(GPT2Config(**cfg["model"], bos_token_id=0, eos_token_id=0))
    args = TrainingArguments(use_cpu=True, remove_unused_columns=False, report_to=["tensorboard"], disable_tqdm=True, **cfg["trainer"])
    print(f"model: embedding {tuple(model.transformer.wte.weight.shape)}, {model.num_parameters()} parameters")
    Trainer(model, args, train_dataset=[talk() for _ in range(1600)], data_collator=collate).train()
