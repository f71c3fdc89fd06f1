"""A word-level recurrent language model, after the PyTorch examples."""
import argparse
import json
import math
import random
import time

import torch
import yaml
from torch import nn

NOUNS = "river stone field cloud lamp road song winter harbour garden bird letter window mountain boat".split()
VERBS = "holds follows remembers crosses leaves finds carries forgets".split()
ENDS = "in the evening,after the rain,without a word,near the old mill,before dawn,once more".split(",")


def text(n, seed):
    rng = random.Random(seed)
    for _ in range(n):
        a, b = rng.sample(range(len(NOUNS)), 2)
        yield f"the {NOUNS[a]} {VERBS[(a + b) % 8]} the {NOUNS[b]} {ENDS[(a * 3 + b) % 6]} <eos>"


class RNNModel(nn.Module):
    def __init__(self, words, emb, hidden, layers, nonlinearity):
        super().__init__()
        self.encoder = nn.Embedding(words, emb)
        self.rnn = nn.RNN(emb, hidden, layers, nonlinearity=nonlinearity, batch_first=True)
        self.decoder = nn.Linear(hidden, words)
        for name, p in self.rnn.named_parameters():
            if name.startswith("weight_hh"):
                p.data.copy_(torch.eye(hidden) * 0.5)
            elif name.startswith("bias"):
                nn.init.zeros_(p)

    def forward(self, x, h):
        out, h = self.rnn(self.encoder(x), h)
        return self.decoder(out), h


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="rnn.yaml")
    cfg = yaml.safe_load(open(ap.parse_args().config))
    torch.manual_seed(cfg["seed"])
    words = " ".join(text(cfg["verses"], 1)).split()
    vocab = {w: i for i, w in enumerate(sorted(set(words)))}
    ids = torch.tensor([vocab[w] for w in words])
    rows = len(ids) // cfg["batch_size"]
    data = ids[: rows * cfg["batch_size"]].view(cfg["batch_size"], rows)
    model = RNNModel(len(vocab), cfg["emsize"], cfg["nhid"], cfg["nlayers"], cfg["nonlinearity"])
    opt = torch.optim.SGD(model.parameters(), lr=cfg["lr"], momentum=cfg["momentum"])
    print(f"corpus: {len(ids)} tokens, vocabulary {len(vocab)}, {sum(p.numel() for p in model.parameters())} parameters")
    print("settings: " + ", ".join(f"{k}={v}" for k, v in cfg.items()), flush=True)
    step, began = 0, time.time()
    with open("metrics.jsonl", "w") as out:
        for epoch in range(1, cfg["epochs"] + 1):
            h = torch.zeros(cfg["nlayers"], cfg["batch_size"], cfg["nhid"])
            for i in range(0, rows - 1, cfg["bptt"]):
                n = min(cfg["bptt"], rows - 1 - i)
                logits, h = model(data[:, i:i + n], h.detach())
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), data[:, i + 1:i + 1 + n].flatten())
                opt.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), cfg["clip"] if cfg["clip"] > 0 else float("inf"))
                opt.step()
                step += 1
                if step % cfg["log_interval"] == 0:
                    out.write(json.dumps({"step": step, "loss": round(loss.item(), 5), "grad_norm": round(norm.item(), 5), "lr": cfg["lr"],
                                          "tokens": step * cfg["batch_size"] * cfg["bptt"]}) + "\n")
                if step % 20 == 0:
                    ppl = math.exp(min(loss.item(), 30)) if math.isfinite(loss.item()) else float("nan")
                    print(f"| epoch {epoch:3d} | {step:5d} batches | ms/batch {1000 * (time.time() - began) / step:5.2f} | "
                          f"loss {loss.item():5.2f} | ppl {ppl:8.2f}", flush=True)


if __name__ == "__main__":
    main()
