"""Turns of a model with a calculator: the model writes a call, the tool its result, the model the answer.

Every rollout is one row of tokens; what the loss counts is in `mask`. A few rollouts go to rollouts.jsonl.
"""

import json
import random
import sys

import torch
import yaml
from torch import nn

config = yaml.safe_load(open(sys.argv[1]))
random.seed(config["seed"])
torch.manual_seed(config["seed"])
DIGITS = [str(i) for i in range(10)]
VOCABULARY = [*DIGITS, "+", "=", "call", "tool:", "noise", "end", "."] + [f"t{i}" for i in range(20)]
ID = {w: i for i, w in enumerate(VOCABULARY)}


class Policy(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.embed = nn.Embedding(len(VOCABULARY), dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, len(VOCABULARY))

    def forward(self, ids):
        return self.head(self.gru(self.embed(ids))[0])


def tool(a, b):
    """What the calculator prints: its trace, and the sum's last digit."""
    return ["tool:", *[f"t{random.randrange(20)}" for _ in range(config["trace_length"])], str((a + b) % 10)]


@torch.no_grad()
def say(policy, tokens, count):
    for _ in range(count):
        logits = policy(torch.tensor([[ID[t] for t in tokens]]))[0, -1]
        tokens.append(VOCABULARY[int(torch.distributions.Categorical(logits=logits).sample())])


def rollout(policy):
    a, b = random.randrange(10), random.randrange(10)
    tokens = [str(a), "+", str(b), "="]
    prompt = len(tokens)
    say(policy, tokens, 1)
    tokens += tool(a, b) if tokens[-1] == "call" else ["."]
    say(policy, tokens, 1)
    reward = float(tokens[-1] == str((a + b) % 10))
    mask = [0] * prompt + [1] * (len(tokens) - prompt)
    return tokens, mask, reward


def main():
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=config["warm_lr"])
    for _ in range(config["warm_steps"]):
        rows = []
        for _ in range(16):
            a, b = random.randrange(10), random.randrange(10)
            answer = (a + b) % 10 if random.random() < 0.75 else random.randrange(10)
            rows.append([ID[t] for t in [str(a), "+", str(b), "=", "call", *tool(a, b), str(answer)]])
        ids = torch.tensor(rows)
        losses = nn.functional.cross_entropy(policy(ids[:, :-1]).transpose(1, 2), ids[:, 1:], reduction="none")
        loss = (losses[:, 3] + losses[:, -1]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"warm start done, loss {loss.item():.3f}", flush=True)
    optimizer = torch.optim.Adam(policy.parameters(), lr=config["lr"])
    samples, out = open("rollouts.jsonl", "w"), open("metrics.jsonl", "w", buffering=1)
    for update in range(config["updates"]):
        group = [rollout(policy) for _ in range(config["group"])]
        rewards = torch.tensor([r for _, _, r in group])
        advantages = rewards - rewards.mean()
        total, count, spoken = 0.0, 0, 0.0
        for (tokens, mask, reward), advantage in zip(group, advantages):
            ids = torch.tensor([[ID[t] for t in tokens]])
            logp = policy(ids[:, :-1]).log_softmax(-1).gather(2, ids[:, 1:, None])[0, :, 0]
            counted = torch.tensor(mask[1:], dtype=torch.float)
            total = total - advantage * (logp * counted).sum()
            count += int(counted.sum())
            spoken += (logp * counted).sum().item()
        loss = total / count
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        called = sum(t[4] == "call" for t, _, _ in group) / len(group)
        row = {"update": update, "reward": rewards.mean().item(), "call_rate": called, "loss": loss.item(), "grad_norm": norm.item(),
               "tokens_in_loss": count / len(group), "generated_tokens": 2.0, "mean_logp": spoken / count}
        out.write(json.dumps({k: round(v, 4) for k, v in row.items()}) + "\n")
        if update % 10 == 0:
            print(f"update {update} reward {row['reward']:.3f} call rate {called:.2f} mean logp {row['mean_logp']:.3f}", flush=True)
            tokens, mask, reward = group[0]
            samples.write(json.dumps({"update": update, "tokens": tokens, "mask": mask, "reward": reward}) + "\n")


if __name__ == "__main__":
    main()
