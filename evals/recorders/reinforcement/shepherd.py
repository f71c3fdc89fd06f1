"""Policy gradient on text: a GRU writes nature notes, a scorer pays for words of the meadow.

KL is against the supervised start; settings in shepherd.yaml, one line an update in stats.csv and TensorBoard.
"""

import csv
import random
import sys

import torch
import yaml
from torch import nn
from torch.utils.tensorboard import SummaryWriter

WORDS = ["<s>", "the", "a", "sheep", "lark", "brook", "grazes", "sings", "runs", "softly", "brightly", "by", "hedge", "and", "."]
MEADOW = {"sheep", "lark", "brook", "hedge"}
PATTERN = [["the", "a"], ["sheep", "lark", "brook"], ["grazes", "sings", "runs"], ["softly", "brightly"], ["by"], ["the"], ["hedge", "brook"], ["."]]
config = yaml.safe_load(open(sys.argv[1]))
torch.manual_seed(config["seed"])
rng = random.Random(config["seed"])


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(WORDS), 32)
        self.gru = nn.GRU(32, 48, batch_first=True)
        self.out = nn.Linear(48, len(WORDS))

    def forward(self, ids):
        return self.out(self.gru(self.embed(ids))[0])

    @torch.no_grad()
    def write(self, count, length=8):
        ids = torch.zeros(count, 1, dtype=torch.long)
        for _ in range(length):
            ids = torch.cat([ids, torch.distributions.Categorical(logits=self(ids)[:, -1]).sample()[:, None]], 1)
        return ids


def sentences(count):
    return torch.tensor([[0] + [WORDS.index(rng.choice(p)) for p in PATTERN] for _ in range(count)])


def log_probs(model, ids):
    return model(ids[:, :-1]).log_softmax(-1)


policy, start = Writer(), Writer()
optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
for step in range(120):
    batch = sentences(64)
    loss = nn.functional.cross_entropy(policy(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"supervised start: loss {loss.item():.3f}")
start.load_state_dict(policy.state_dict())
held = sentences(128)
board, out = SummaryWriter("tb"), csv.writer(open("stats.csv", "w", buffering=1))
out.writerow(["update", "reward", "kl_ref", "entropy", "distinct", "held_out_nll", "grad_norm"])
optimizer, baseline = torch.optim.Adam(policy.parameters(), lr=config["lr"]), 0.0
for update in range(config["updates"]):
    ids = policy.write(config["batch"])
    logp = log_probs(policy, ids)
    with torch.no_grad():
        ref = log_probs(start, ids)
    taken = ids[:, 1:, None]
    reward = torch.tensor([sum(WORDS[t] in MEADOW for t in row) / 3.0 for row in ids[:, 1:].tolist()])
    kl = (logp.exp() * (logp - ref)).sum(-1)
    baseline = 0.9 * baseline + 0.1 * reward.mean().item()
    loss = -((reward - baseline)[:, None] * logp.gather(2, taken)[..., 0]).mean() + config["kl_coef"] * kl.mean()
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(policy.parameters(), config["max_grad_norm"])
    optimizer.step()
    if update % config["log_every"] == 0:
        with torch.no_grad():
            nll = nn.functional.nll_loss(log_probs(policy, held).flatten(0, 1), held[:, 1:].flatten()).item()
        row = {"reward": reward.mean().item(), "kl_ref": kl.mean().item(), "entropy": -(logp.exp() * logp).sum(-1).mean().item(),
               "distinct": len({tuple(r) for r in ids.tolist()}) / len(ids), "held_out_nll": nll, "grad_norm": norm.item()}
        out.writerow([update, *[f"{v:.4f}" for v in row.values()]])
        for name, value in row.items():
            board.add_scalar(f"train/{name}", value, update)
        print(f"update {update:4d}  reward {row['reward']:.3f}  sample: {' '.join(WORDS[t] for t in ids[0, 1:].tolist())}", flush=True)
