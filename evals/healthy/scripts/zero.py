"""DeepSpeed on the CPU; everything else is in the JSON file."""

import argparse

import deepspeed
import torch
from datasets_toy import TextRows
from transformers import DataCollatorForLanguageModeling

from corpus import sentences, tiny_llama, tokenizer

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
parser.add_argument("--steps", type=int, default=120)
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
deepspeed.init_distributed("gloo")
torch.manual_seed(3)
words = tokenizer()
model = tiny_llama(len(words))
engine, _, loader, _ = deepspeed.initialize(
    args=args, model=model, model_parameters=model.parameters(), training_data=TextRows(words, sentences(4000, 1)),
    collate_fn=DataCollatorForLanguageModeling(words, mlm=False),
)
for step, batch in enumerate(loader, 1):
    loss = engine(**{k: v.to(engine.device) for k, v in batch.items()}).loss
    engine.backward(loss)
    engine.step()
    if step % 5 == 0 and torch.distributed.get_rank() == 0:
        norm = engine.get_global_grad_norm()
        tail = "" if norm is None else f" | grad norm {norm:.3f}"
        print(f"step {step} | lm loss {loss.item():.4f} | lr {engine.get_lr()[0]:.3e}{tail}", flush=True)
    if step >= args.steps:
        break
if torch.distributed.get_rank() == 0:
    print("finished training")
