"""Tile images, four experts by patch: a mixture in place of the MLP. Gradient norms by part of the model in grads.jsonl."""

import json
import logging
import sys

import torch
import yaml
from torch import nn

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("tiles")


class Mixture(nn.Module):
    """The two best experts of each token, weighted by the router."""

    def __init__(self, dim, experts):
        super().__init__()
        self.router = nn.Linear(dim, experts)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim)) for _ in range(experts))

    def forward(self, x):
        scores = self.router(x)
        weight, index = scores.softmax(-1).topk(2, -1)
        dispatch = torch.zeros_like(scores).scatter_(-1, index, (weight > 0).float() / 2)
        load = dispatch.mean((0, 1))
        self.balance = len(self.experts) * (load * load).sum()
        self.load = load.tolist()
        out = 0
        for e, expert in enumerate(self.experts):
            out = out + dispatch[..., e:e + 1] * expert(x)
        return out


class Tiles(nn.Module):
    def __init__(self, dim, experts, classes):
        super().__init__()
        self.embed = nn.Linear(16, dim)
        self.moe = Mixture(dim, experts)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        h = self.embed(x)
        return self.head((h + self.moe(self.norm(h))).mean(1))


def tiles(count, centres):
    kinds = torch.randint(0, len(centres), (count,))
    return centres[kinds][:, None] * torch.randn(count, 9, 1) + 0.7 * torch.randn(count, 9, 16), kinds


def main():
    config = yaml.safe_load(open(sys.argv[1]))
    torch.manual_seed(config["seed"])
    centres = torch.randn(6, 16)
    model = Tiles(config["dim"], config["experts"], 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    log.info("config %s", json.dumps(config))
    with open("grads.jsonl", "w", buffering=1) as out:
        for step in range(1, config["steps"] + 1):
            x, y = tiles(64, centres)
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y) + config["balance_coef"] * model.moe.balance
            optimizer.zero_grad()
            loss.backward()
            if step % 5 == 0:
                norms = {}
                for part in ("embed", "moe.router", "moe.experts", "norm", "head"):
                    grads = [p.grad for n, p in model.named_parameters() if n.startswith(part) and p.grad is not None]
                    norms[part] = round(float(torch.cat([g.flatten() for g in grads]).norm()), 5) if grads else None
                row = {"step": step, "loss": round(loss.item(), 4), "balance": round(float(model.moe.balance), 4),
                       "load": [round(v, 3) for v in model.moe.load], "grad_norm": norms}
                out.write(json.dumps(row) + "\n")
            if step % 25 == 0:
                log.info("step %d loss %.4f acc %.3f", step, loss.item(), (logits.argmax(-1) == y).float().mean())
            optimizer.step()


if __name__ == "__main__":
    main()
