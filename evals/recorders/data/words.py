"""Answers short questions: a word-level transformer, prompt masked. `vocab` maps words to ids."""
import json
import math
import os
import random
import sys

import torch
import yaml
from torch import nn
from torch.nn import functional as F

cfg = yaml.safe_load(open(sys.argv[1]))
torch.manual_seed(cfg["seed"])
random.seed(cfg["seed"])
vocab = json.load(open(cfg["vocab"]))
names = {i: w for w, i in vocab.items()}
PAD, EOS, UNK = vocab["<pad>"], vocab["</s>"], vocab["<unk>"]


class Model(nn.Module):
    def __init__(self, size, dim, layers, heads, length=64):
        super().__init__()
        self.embed, self.pos = nn.Embedding(size, dim), nn.Embedding(length, dim)
        block = nn.TransformerEncoderLayer(dim, heads, 4 * dim, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, size)

    def forward(self, ids):
        n = ids.shape[1]
        mask = torch.full((n, n), -math.inf).triu(1)
        return self.head(self.norm(self.blocks(self.embed(ids) + self.pos.weight[:n], mask=mask)))


def encode(text):
    return [vocab.get(w, UNK) for w in text.split()]


def read(path):
    rows = []
    for line in open(path, encoding="utf-8"):
        r = json.loads(line)
        prompt = encode("<q> " + r["prompt"] + " <a>")
        answer = encode(r["completion"]) + ([EOS] if cfg.get("add_eos", True) else [])
        rows.append((prompt, answer))
    return rows


def batch_of(rows):
    width = max(len(p) + len(a) for p, a in rows)
    ids = torch.tensor([p + a + [PAD] * (width - len(p) - len(a)) for p, a in rows])
    labels = torch.tensor([[-100] * len(p) + a + [-100] * (width - len(p) - len(a)) for p, a in rows])
    return ids, labels


def loss_of(model, rows):
    ids, labels = batch_of(rows)
    return F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)


@torch.no_grad()
def answer(model, prompt, most):
    ids = list(prompt)
    while len(ids) < len(prompt) + most:
        ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
        if ids[-1] == EOS:
            break
    return ids[len(prompt):]


os.makedirs(cfg["out"], exist_ok=True)
metrics = open(f"{cfg['out']}/metrics.jsonl", "w")
train, held = read(cfg["train"]), read(cfg["eval"])
model = Model(len(vocab), **cfg["model"])
print(f"vocabulary {cfg['vocab']}: {len(vocab)} words; {len(train)} train, {len(held)} eval; "
      f"{sum(p.numel() for p in model.parameters())} parameters")
if cfg.get("base"):
    model.load_state_dict(torch.load(f"{cfg['base']}/model.pt"))
    print(f"loaded {cfg['base']}/model.pt: <All keys matched successfully>")
opt = torch.optim.AdamW(model.parameters(), cfg["lr"])
step, micro = 0, cfg["batch_size"]
while step < cfg["steps"]:
    random.shuffle(train)
    for at in range(0, len(train), micro):
        if step % cfg["eval_every"] == 0:
            with torch.no_grad():
                ev = sum(loss_of(model, held[i:i + 16]).item() for i in range(0, len(held), 16)) / math.ceil(len(held) / 16)
            print(f"step {step:4d} | eval loss {ev:.4f}")
        loss = loss_of(model, train[at:at + micro])
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        lr = opt.param_groups[0]["lr"] = cfg["lr"] * min(1, (step + 1) / cfg["warmup"])
        opt.step()
        step += 1
        metrics.write(json.dumps({"step": step, "loss": round(loss.item(), 4), "grad_norm": round(norm.item(), 4), "lr": lr}) + "\n")
        if step % cfg["log_every"] == 0:
            print(f"step {step:4d} | loss {loss.item():.4f} | grad norm {norm.item():.3f} | lr {lr:.2e}", flush=True)
        if step >= cfg["steps"]:
            break
with open(f"{cfg['out']}/samples.txt", "w") as f:
    for prompt, _ in held[:6]:
        ids = answer(model, prompt, cfg["max_new_tokens"])
        print(" ".join(names[i] for i in [*prompt, *ids]), f"({len(ids)} tokens)", sep="\n    ", file=f)
torch.save(model.state_dict(), f"{cfg['out']}/model.pt")
json.dump({k: cfg[k] for k in ("vocab", "model", "train", "steps")}, open(f"{cfg['out']}/run.json", "w"), indent=1)
print("done")
