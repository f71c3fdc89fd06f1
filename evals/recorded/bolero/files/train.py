"""Actors and a learner for a bandit-of-contexts task: the actors write rollouts with their own copy of the policy.

The learner trains with a clipped objective on log-probabilities that the actors sent along. Settings: rollout.yaml.
"""

import json
import sys

import torch
import yaml
from torch import nn

config = yaml.safe_load(open(sys.argv[1]))
learner, actor = config["learner"], config["actor"]
torch.manual_seed(config["seed"])
CONTEXTS, ACTIONS = 24, 12
best = torch.randint(0, ACTIONS, (CONTEXTS,))


def net():
    return nn.Sequential(nn.Embedding(CONTEXTS, 32), nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, ACTIONS))


class Actor:
    """Holds a copy of the weights and says which version it is."""

    def __init__(self):
        self.model, self.version = net(), -1

    def load(self, state, version):
        self.model.load_state_dict(state)
        self.version = version

    @torch.no_grad()
    def collect(self, count):
        context = torch.randint(0, CONTEXTS, (count,))
        dist = torch.distributions.Categorical(logits=self.model(context) / actor["temperature"])
        action = dist.sample()
        gap = (action - best[context]).abs()
        reward = (gap == 0).float() + 0.2 * (gap == 1).float()
        return {"context": context, "action": action, "reward": reward, "logp": dist.log_prob(action), "version": self.version}


policy, engine = net(), Actor()
optimizer = torch.optim.Adam(policy.parameters(), lr=learner["lr"])
engine.load(policy.state_dict(), 0)
print(json.dumps(config), flush=True)
out = open("train.jsonl", "w", buffering=1)
for step in range(1, learner["steps"] + 1):
    batch = engine.collect(actor["batch"])
    advantage = (batch["reward"] - batch["reward"].mean()) / (batch["reward"].std() + 1e-6)
    before = None
    for _ in range(learner["epochs"]):
        logp = torch.distributions.Categorical(logits=policy(batch["context"])).log_prob(batch["action"])
        before = logp.detach() if before is None else before
        ratio = (logp - batch["logp"]).exp()
        clipped = ratio.clamp(1 - learner["clip"], 1 + learner["clip"])
        loss = -torch.min(ratio * advantage, clipped * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if step % actor["sync_every"] == 0:
        engine.load(policy.state_dict(), step)
    if step % 5 == 0 or step == 1:
        difference = before - batch["logp"]
        row = {"step": step, "learner_version": step - 1, "rollout_version": batch["version"], "reward": batch["reward"].mean().item(),
               "loss": loss.item(), "logp_learner": before.mean().item(), "logp_rollout": batch["logp"].mean().item(),
               "logp_abs_diff": difference.abs().mean().item(), "ratio_max": difference.exp().max().item(),
               "clip_fraction": ((ratio - 1).abs() > learner["clip"]).float().mean().item()}
        out.write(json.dumps({k: round(v, 5) for k, v in row.items()}) + "\n")
        print(f"step {step} reward {row['reward']:.3f} loss {row['loss']:.4f}", flush=True)
