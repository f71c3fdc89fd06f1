"""Masked language model from scratch with the Hugging Face Trainer: python train.py args.json corpus.txt"""

import collections
import json
import logging
import re
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import transformers
from transformers import BertConfig, BertForMaskedLM, HfArgumentParser, Trainer, TrainingArguments

asked = json.load(open(sys.argv[1]))
dist.init_process_group(asked["ddp_backend"], timeout=timedelta(seconds=asked.get("ddp_timeout", 1800)))
parser = HfArgumentParser(TrainingArguments)
(args,) = parser.parse_json_file(sys.argv[1])
logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", datefmt="%m/%d/%Y %H:%M:%S", level=logging.INFO)
log = logging.getLogger(__name__)
transformers.utils.logging.set_verbosity_info()
log.warning("Process rank: %s, device: %s, distributed training: %s", args.process_index, args.device, args.parallel_mode.value)
transformers.set_seed(args.seed)


def shingles(line, k=5):
    return {hash(line[i : i + k]) for i in range(len(line) - k + 1)}


def deduplicated(lines):
    """Lines of which no earlier one is nearly the same (Jaccard over shingles)."""
    kept, sets = [], []
    for number, line in enumerate(lines, 1):
        own = shingles(line)
        if all(len(own & other) < 0.8 * len(own | other) for other in sets):
            kept.append(line)
            sets.append(own)
        if number % 200 == 0:
            log.info("deduplication: %d of %d lines read, %d kept", number, len(lines), len(kept))
    return kept


with args.main_process_first(desc="corpus"):
    if args.should_save or args.local_process_index == 0:
        lines = deduplicated([line for line in open(sys.argv[2]).read().splitlines() if line])
        open("corpus.dedup.txt", "w").write("\n".join(lines))
    else:
        lines = open("corpus.dedup.txt").read().splitlines()
words = collections.Counter(w for line in lines for w in re.findall(r"\w+", line.lower()))
vocab = {w: n for n, w in enumerate(["<pad>", "<mask>", *sorted(words)])}
log.info("%d lines, %d words in the vocabulary", len(lines), len(vocab))
encoded = [[vocab[w] for w in re.findall(r"\w+", line.lower())] for line in lines]


def collate(rows):
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    masked = (torch.rand(ids.shape) < 0.15) & (ids > 0)
    return {"input_ids": ids.masked_fill(masked, 1), "attention_mask": (ids > 0).long(), "labels": ids.masked_fill(~masked, -100)}


config = BertConfig(vocab_size=len(vocab), hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, max_position_embeddings=64)
trainer = Trainer(BertForMaskedLM(config), args, train_dataset=encoded, data_collator=collate)
result = trainer.train()
trainer.log_metrics("train", result.metrics)
trainer.save_state()
