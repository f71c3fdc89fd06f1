"""Exact match of a model's own answers."""

import json
import logging
import sys
from dataclasses import dataclass, field

import torch
from transformers import AutoModelForCausalLM, HfArgumentParser

from larder import tokens
from larder.scores import same
from larder.templates import prompt

log = logging.getLogger("run_eval")


@dataclass
class EvalArguments:
    model: str = field(metadata={"help": "folder of a trained model"})
    file: str = "data/handbook_eval.jsonl"
    tokens: str = "assets/words.json"
    template: str = "chat"
    max_new_tokens: int = 12
    show: int = 6


@torch.no_grad()
def main():
    (args,) = HfArgumentParser(EvalArguments).parse_args_into_dataclasses()
    logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", level=logging.INFO, stream=sys.stdout)
    tokenizer = tokens.load(args.tokens)
    model = AutoModelForCausalLM.from_pretrained(args.model).eval()
    rows = [json.loads(line) for line in open(args.file, encoding="utf-8")]
    right = 0
    for n, row in enumerate(rows):
        ids = tokenizer(prompt(args.template, row["question"]), return_tensors="pt")["input_ids"]
        new = ids
        for _ in range(args.max_new_tokens):
            token = model(new).logits[:, -1].argmax(-1, keepdim=True)
            if token.item() == tokenizer.eos_token_id:
                break
            new = torch.cat([new, token], dim=1)
        said = tokenizer.decode(new[0, ids.shape[1] :])
        right += same(said, row["answer"])
        if n < args.show:
            log.info("%r -> %r (%r)", tokenizer.decode(ids[0]), said, row["answer"])
    log.info("exact match %.3f (%d of %d)", right / len(rows), right, len(rows))
    with open(f"{args.model}/exact_match.json", "w") as f:
        json.dump({"exact_match": right / len(rows), "count": len(rows)}, f)


if __name__ == "__main__":
    main()
