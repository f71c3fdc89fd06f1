"""Teach the policy from examples: python warm.py CONFIG [name=value ...]"""
import os
import sys

import torch

from tally import settings, task
from tally.policy import Policy, save

cfg = settings.load(sys.argv[1], sys.argv[2:])
torch.manual_seed(cfg.seed)
gen = torch.Generator().manual_seed(cfg.seed)
policy = Policy(cfg.width)
opt = torch.optim.Adam(policy.parameters(), lr=cfg.lr)
held = task.read("data/heldout.txt")
for step in range(1, cfg.steps + 1):
    prompt = task.prompts(cfg.batch, cfg.length, gen)
    loss = -policy.logprobs(prompt, task.answer(prompt))[0].mean()
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    opt.step()
    if step % 10 == 0:
        print(f"step {step:4d}  nll {loss.item():.4f}  held-out exact {policy.exact(held):.3f}", flush=True)
os.makedirs("ckpt", exist_ok=True)
save("ckpt/warm.pt", policy, cfg.width)
