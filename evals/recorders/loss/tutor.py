"""SFT of a small GPT-2 on one kind of exercise, evaluated on all kinds."""
import argparse
import random

import torch
import yaml
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed
from trl import SFTConfig, SFTTrainer

WORDS = ["<pad>", "</s>", "<unk>", "sum", "first", "last", "reverse", "sort", "=", *[str(d) for d in range(19)]]


def tokenizer():
    tok = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def exercises(kinds, n, seed):
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        kind, d = rng.choice(kinds), rng.choices(range(10), k=4)
        answer = {"sum": [d[0] + d[1]], "first": [d[0]], "last": [d[3]], "reverse": d[::-1], "sort": sorted(d)}[kind]
        rows.append({"text": f"{kind} {' '.join(map(str, d))} = {' '.join(map(str, answer))} </s>"})
    return Dataset.from_list(rows)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("config")
    cfg = yaml.safe_load(open(ap.parse_args().config))
    set_seed(cfg["trainer"]["seed"])
    if cfg.get("init_from"):
        model = GPT2LMHeadModel.from_pretrained(cfg["init_from"])
    else:
        model = GPT2LMHeadModel(GPT2Config(vocab_size=len(WORDS), n_positions=24, n_embd=64, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=1, pad_token_id=0))
    args = SFTConfig(use_cpu=True, bf16=False, report_to=["tensorboard"], disable_tqdm=True, dataset_text_field="text", **cfg["trainer"])
    trainer = SFTTrainer(model, args, train_dataset=exercises(cfg["kinds"], cfg["rows"], 1), processing_class=tokenizer(),
                         eval_dataset={name: exercises(kinds, 200, 9) for name, kinds in cfg["eval"].items()})
    print(f"kinds {cfg['kinds']}, {cfg['rows']} rows, start from {cfg.get('init_from', 'scratch')}", flush=True)
    trainer.train()
    trainer.save_state()
    trainer.save_model()


if __name__ == "__main__":
    main()
