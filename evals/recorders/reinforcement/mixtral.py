"""A small Mixtral on templates of recipes; every few steps the use of the experts is written down."""

import csv
import json
import random
import sys

import torch
import yaml
from transformers import MixtralConfig, MixtralForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed

VERBS, THINGS, TOOLS = range(10, 40), range(40, 90), range(90, 120)


def rows(count, seed):
    rng = random.Random(seed)
    out = []
    for _ in range(count):
        row = [2]
        while len(row) < 24:
            verb = rng.choice(VERBS)
            row += [verb, 40 + (verb * 7 + rng.randrange(4)) % 50, rng.choice(TOOLS)]
        out.append({"input_ids": row[:24], "labels": row[:24]})
    return out


class Experts(TrainerCallback):
    """Share of tokens that each expert of each layer gets, over a fixed batch."""

    def __init__(self, model, every):
        self.batch = torch.tensor([r["input_ids"] for r in rows(64, 99)])
        self.model, self.every = model, every
        self.out = csv.writer(open("experts.csv", "w", buffering=1))
        experts, self.layers = model.config.num_local_experts, model.config.num_hidden_layers
        self.out.writerow(["step", "layer", *[f"expert_{e}" for e in range(experts)], "router_entropy"])

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every and state.global_step != 1:
            return
        with torch.no_grad():
            logits = self.model(self.batch, output_router_logits=True).router_logits
        for layer, scores in enumerate(logits):
            scores = scores.float()
            scores = scores if scores.min() < 0 else scores.clamp_min(1e-9).log()
            chosen = scores.topk(self.model.config.num_experts_per_tok, -1).indices.flatten()
            share = torch.bincount(chosen, minlength=scores.shape[-1]).float() / len(chosen)
            p = scores.softmax(-1)
            entropy = -(p * p.clamp_min(1e-9).log()).sum(-1).mean()
            self.out.writerow([state.global_step, layer, *[f"{v:.3f}" for v in share.tolist()], f"{entropy:.3f}"])


def main():
    with open(sys.argv[1]) as f:
        config = yaml.safe_load(f)
    set_seed(config["training"]["seed"])
    model = MixtralForCausalLM(MixtralConfig(vocab_size=128, max_position_embeddings=32, bos_token_id=2, eos_token_id=3, **config["model"]))
    print(f"{model.num_parameters():,} parameters; {json.dumps(config['model'])}")
    trainer = Trainer(model, TrainingArguments(**config["training"]), train_dataset=rows(2000, 1), eval_dataset=rows(200, 2),
                      callbacks=[Experts(model, config["experts_every"])])
    trainer.train()
    trainer.save_state()
    print(json.dumps(trainer.evaluate()))


if __name__ == "__main__":
    main()
