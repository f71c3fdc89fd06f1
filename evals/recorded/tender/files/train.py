"""Part-of-speech tagger whose gradients are averaged by hand (DDP did not like the packed LSTM)."""

import argparse
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--epochs", type=int, default=6)
ap.add_argument("--sentences", type=int, default=1600)
ap.add_argument("--batch", type=int, default=40)
ap.add_argument("--lr", type=float, default=5e-3)
ap.add_argument("--resume")
ap.add_argument("--out", default="out")
args = ap.parse_args()
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
os.makedirs(args.out, exist_ok=True)
torch.manual_seed(args.seed + rank)


class Tagger(nn.Module):
    def __init__(self, words=200, tags=9):
        super().__init__()
        self.emb = nn.Embedding(words, 32)
        self.lstm = nn.LSTM(32, 40, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(80, tags)

    def forward(self, ids):
        return self.out(self.drop(self.lstm(self.emb(ids))[0]))


def corpus(count, seed):
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(200, (count, 14), generator=g)
    return ids, (ids + ids.roll(1, 1) // 50) % 9


model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
ids, tags = corpus(args.sentences, 1)
ids, tags = ids[rank::world], tags[rank::world]
dev = corpus(200, 2)
log = open(f"{args.out}/rank{rank}.jsonl", "w", buffering=1)
if rank == 0:
    print(f"world size {world}, {sum(p.numel() for p in model.parameters())} parameters, {len(ids)} sentences a rank", flush=True)


def average_gradients():
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


for epoch in range(1, args.epochs + 1):
    began, order = time.time(), torch.randperm(len(ids))
    losses = []
    for part in order.split(args.batch):
        loss = nn.functional.cross_entropy(model(ids[part]).flatten(0, 1), tags[part].flatten())
        optimizer.zero_grad()
        loss.backward()
        average_gradients()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        accuracy = (model(dev[0]).argmax(-1) == dev[1]).float().mean().item()
        length = torch.cat([p.flatten() for p in model.parameters()]).norm().item()
    model.train()
    mean = torch.tensor(sum(losses) / len(losses))
    log.write(json.dumps({"epoch": epoch, "loss": mean.item(), "dev_accuracy": accuracy, "grad_norm": norm.item(), "param_norm": length}) + "\n")
    dist.all_reduce(mean)
    if rank == 0:
        print(f"epoch {epoch}: loss {mean.item() / world:.4f} ({time.time() - began:.1f} s)", flush=True)
if rank == 0:
    torch.save(model.state_dict(), f"{args.out}/tagger.pt")
    print(f"wrote {args.out}/tagger.pt", flush=True)
dist.barrier()
dist.destroy_process_group()
