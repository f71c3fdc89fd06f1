"""Go on by reward: python grpo.py CONFIG [name=value ...]"""
import copy
import json
import sys
import time
from pathlib import Path

import torch

from tally import objective, settings, task
from tally.policy import load, save

cfg = settings.load(sys.argv[1], sys.argv[2:])
torch.manual_seed(cfg.seed)
gen = torch.Generator().manual_seed(cfg.seed + 1)
out = Path("runs") / cfg.name
out.mkdir(parents=True, exist_ok=True)
policy = load(cfg.start)
reference = copy.deepcopy(policy).requires_grad_(False)
opt = torch.optim.AdamW(policy.parameters(), lr=cfg.lr, betas=(0.9, 0.95), weight_decay=0.0)
held = task.read("data/heldout.txt")
print(f"{cfg.name}: {cfg.steps} steps of {cfg.prompts} prompts x {cfg.group} answers, lr {cfg.lr}, kl {cfg.kl_coef}, from {cfg.start}")
print(f"step    0  held-out exact {policy.exact(held):.3f}")
rows = (out / "log.jsonl").open("w")
for step in range(1, cfg.steps + 1):
    began = time.time()
    prompt = task.prompts(cfg.prompts, cfg.length, gen).repeat_interleave(cfg.group, 0)
    said = policy.sample(prompt, cfg.length + 1, cfg.temperature)
    rewards = task.reward(prompt, said, cfg.exact_only)
    adv = objective.advantages(rewards, cfg.group)
    with torch.no_grad():
        old, ref = policy.logprobs(prompt, said)[0], reference.logprobs(prompt, said)[0]
    for _ in range(cfg.inner):
        new, entropy = policy.logprobs(prompt, said)
        loss, gain, kl = objective.objective(new, old, ref, adv, cfg.clip, cfg.kl_coef)
        opt.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), cfg.max_norm)
        opt.step()
    if step == 1 or step % cfg.log_every == 0:
        groups = rewards.view(-1, cfg.group)
        row = {"step": step, "loss": loss.item(), "policy_loss": gain.item(), "kl": kl.item(), "reward": rewards.mean().item(),
               "reward_std": groups.std(1).mean().item(), "flat_groups": (groups.std(1) == 0).float().mean().item(),
               "entropy": entropy.mean().item(), "grad_norm": norm.item(), "seconds": time.time() - began}
        rows.write(json.dumps({k: round(v, 6) for k, v in row.items()}) + "\n")
        rows.flush()
        print("step {step:4d}  loss {loss:.5f}  kl {kl:.4f}  reward {reward:.3f} +- {reward_std:.3f}  entropy {entropy:.3f}  "
              "gnorm {grad_norm:.3f}".format(**row), flush=True)
    if step % cfg.eval_every == 0:
        print(f"step {step:4d}  held-out exact {policy.exact(held):.3f}", flush=True)
    if step % cfg.save_every == 0:
        save(out / "policy.pt", policy, policy.embed.embedding_dim)
save(out / "policy.pt", policy, policy.embed.embedding_dim)
(out / "settings.json").write_text(json.dumps(vars(cfg), indent=1))
print(f"finished {cfg.steps} steps, {out / 'policy.pt'}")
