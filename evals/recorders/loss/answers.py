"""Supervised fine-tuning of a small Llama on questions about a warehouse."""
import argparse
import random

import torch
import yaml
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import SFTConfig, SFTTrainer

ITEMS = "bolts screws nails washers hinges brackets cables fuses lamps pumps valves filters".split()
PLACES = "north south east west upper lower".split()
WORDS = ["<pad>", "<s>", "</s>", "<unk>", "###", "Question:", "Response:", "where", "are", "the", "?", "in", "hall", "shelf", ".", *ITEMS, *PLACES, *"123456789"]


def tokenizer():
    tok = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def dialogues(n, seed):
    rng = random.Random(seed)
    for _ in range(n):
        i, p = rng.randrange(len(ITEMS)), rng.randrange(len(PLACES))
        yield {"text": f"<s> ### Question: where are the {PLACES[p]} {ITEMS[i]} ? ### Response: the {PLACES[p]} {ITEMS[i]} are in hall "
                       f"{(i * 7 + p) % 9 + 1} shelf {(i + p * 4) % 9 + 1} . </s>"}


class AnswerOnly:
    """Pads, and leaves only what follows the template in the labels."""

    def __init__(self, tok, template):
        self.pad, self.template = tok.pad_token_id, tok.encode(template, add_special_tokens=False)

    def __call__(self, rows):
        width = max(len(r["input_ids"]) for r in rows)
        ids, labels = [], []
        for r in rows:
            x, k = r["input_ids"], len(self.template)
            start = next((i + k for i in range(len(x) - k + 1) if x[i:i + k] == self.template), len(x))
            ids.append(x + [self.pad] * (width - len(x)))
            labels.append([-100] * start + x[start:] + [-100] * (width - len(x)))
        ids = torch.tensor(ids)
        return {"input_ids": ids, "attention_mask": (ids != self.pad).long(), "labels": torch.tensor(labels)}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="sft.yaml")
    cfg = yaml.safe_load(open(ap.parse_args().config))
    set_seed(cfg["trainer"]["seed"])
    tok = tokenizer()
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), pad_token_id=0, bos_token_id=1, eos_token_id=2, **cfg["model"]))
    args = SFTConfig(use_cpu=True, bf16=False, report_to=["tensorboard"], disable_tqdm=True, dataset_text_field="text", **cfg["trainer"])
    trainer = SFTTrainer(model, args, train_dataset=Dataset.from_list(list(dialogues(cfg["data"]["train"], 1))),
                         eval_dataset=Dataset.from_list(list(dialogues(cfg["data"]["eval"], 2))), processing_class=tok,
                         data_collator=AnswerOnly(tok, cfg["data"]["response_template"]))
    print("sample:", next(dialogues(1, 1))["text"], flush=True)
    trainer.train()
    trainer.save_state()
    model.eval()
    for row in dialogues(3, 3):
        prompt = row["text"].split("the", 2)[0] + "the" + row["text"].split("the", 2)[1]
        out = model.generate(torch.tensor([tok.encode(prompt, add_special_tokens=False)]), max_new_tokens=12, do_sample=False, pad_token_id=0)
        print("generated:", tok.decode(out[0]))


if __name__ == "__main__":
    main()
