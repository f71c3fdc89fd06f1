"""Next note of folk tunes, a GRU; the tunes come one collection after the other, as they lie on disk."""

import argparse
import json

import torch
import yaml
from torch import nn
from torch.utils.tensorboard import SummaryWriter

SCALES = {"major": [0, 2, 4, 5, 7, 9, 11], "minor": [0, 2, 3, 5, 7, 8, 10], "blues": [0, 3, 5, 6, 7, 10, 13]}


class Net(nn.Module):
    def __init__(self, notes, dim):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(notes, dim), nn.GRU(dim, dim, batch_first=True), nn.Linear(dim, notes)

    def forward(self, x):
        return self.head(self.rnn(self.embed(x))[0])


def tunes(scale, count, length, g):
    """Walks over a scale with small steps and a now and then leap."""
    steps = torch.randint(-1, 2, (count, length), generator=g) + 3 * (torch.rand(count, length, generator=g) < 0.05)
    at = steps.cumsum(1) % 14
    return 20 + torch.tensor([*SCALES[scale], *(n + 12 for n in SCALES[scale])])[at]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="melodies.yaml")
    cfg = yaml.safe_load(open(ap.parse_args().config))
    torch.manual_seed(cfg["seed"])
    g = torch.Generator().manual_seed(cfg["seed"])
    model = Net(64, cfg["dim"])
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    board = SummaryWriter("tb")
    held = torch.cat([tunes(s, 24, 33, g) for s in cfg["collections"]])
    done = []
    with open("metrics.jsonl", "w") as out:
        for step in range(cfg["steps"]):
            for group in opt.param_groups:
                group["lr"] = cfg["lr"] * min(1, (step + 1) / cfg["warmup"]) * (1 - 0.9 * step / cfg["steps"])
            collection = cfg["collections"][min(step // cfg["steps_per_collection"], len(cfg["collections"]) - 1)]
            if collection not in done:
                done.append(collection)
                print(f"step {step}: opening collection {collection}", flush=True)
            mixed = torch.cat([tunes(name, cfg["batch_size"] // len(done), 33, g) for name in done])
            loss = nn.functional.cross_entropy(model(mixed[:, :-1]).flatten(0, 1), mixed[:, 1:].flatten())
            opt.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), cfg["clip"]).item()
            opt.step()
            row = {"step": step, "loss": round(loss.item(), 4), "grad_norm": round(norm, 4), "lr": group["lr"]}
            if norm > cfg["clip"] and step > cfg["warmup"]:
                print(f"step {step}: WARNING gradient norm {norm:.2f} is above {cfg['clip']}, clipped", flush=True)
            if step % 25 == 24:
                with torch.no_grad():
                    val = nn.functional.cross_entropy(model(held[:, :-1]).flatten(0, 1), held[:, 1:].flatten()).item()
                row["val_loss"] = round(val, 4)
                print(f"step {step} loss {loss.item():.4f} val loss {val:.4f} norm {norm:.3f}", flush=True)
            for key, value in row.items():
                if key != "step":
                    board.add_scalar(key, value, step)
            out.write(json.dumps(row) + "\n")
    board.close()
    print(f"trained {cfg['steps']} steps", flush=True)


if __name__ == "__main__":
    main()
