"""GRPO with TRL: teach a tiny model to answer sums of one digit each. All settings come from grpo.yaml."""

import json
import random
import sys

import torch
import yaml
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import GRPOConfig, GRPOTrainer

from rewards import reward_functions

VOCABULARY = ["[PAD]", "[EOS]", "[UNK]", *[str(i) for i in range(19)], "+", "=", "answer", ":", "<answer>", "</answer>"]


def tokenizer():
    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", eos_token="[EOS]", unk_token="[UNK]", padding_side="left")


def warm(model, words, steps, known):
    """A few supervised steps on the form of an answer; `known` is the share of right sums among them."""
    rng, optimizer = random.Random(1), torch.optim.AdamW(model.parameters(), lr=4e-3)
    for _ in range(steps):
        texts = []
        for _ in range(32):
            a, b = rng.randrange(10), rng.randrange(10)
            texts.append(f"{a} + {b} = answer : {a + b if rng.random() < known else rng.randrange(19)} [EOS]")
        batch = words(texts, return_tensors="pt", padding=True, return_token_type_ids=False)
        loss = model(**batch, labels=batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"warm start: {steps} steps, loss {loss.item():.3f}", flush=True)


def main():
    with open(sys.argv[1]) as f:
        config = yaml.safe_load(f)
    set_seed(config["grpo"]["seed"])
    words = tokenizer()
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(VOCABULARY), hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=64, pad_token_id=0, eos_token_id=1, bos_token_id=1))
    warm(model, words, **config["warm_start"])
    model.save_pretrained("base")
    words.save_pretrained("base")
    rng = random.Random(2)
    pairs = [(rng.randrange(10), rng.randrange(10)) for _ in range(400)]
    rows = Dataset.from_list([{"prompt": f"{a} + {b} =", "sum": a + b} for a, b in pairs])
    args = GRPOConfig(output_dir="out", use_cpu=True, bf16=False, save_strategy="no", gradient_checkpointing=False, **config["grpo"])
    trainer = GRPOTrainer("base", reward_functions(config["rewards"]), args=args, train_dataset=rows, processing_class=words)
    trainer.train()
    trainer.save_state()
    print(json.dumps(trainer.state.log_history[-1]))


if __name__ == "__main__":
    main()
