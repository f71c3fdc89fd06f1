"""Toy translation (GRU encoder-decoder) with resumable snapshots."""

import argparse
import json
import os
import time
from collections import Counter

import torch
import yaml
from torch import nn


class Translator(nn.Module):
    def __init__(self, vocab, width):
        super().__init__()
        self.source, self.target = nn.Embedding(vocab, width), nn.Embedding(vocab, width)
        self.encoder, self.decoder = nn.GRU(width, width, batch_first=True), nn.GRU(width, width, batch_first=True)

    def forward(self, x, y, candidates):
        _, h = self.encoder(self.source(x))
        return self.decoder(self.target(y), h)[0] @ self.target(candidates).T


class Timer:
    def __init__(self):
        self.total, self.now = Counter(), time.perf_counter()

    def lap(self, name):
        now = time.perf_counter()
        self.total[name] += now - self.now
        self.now = now


def snapshot(folder, step, model, opt, keep):
    os.makedirs(folder, exist_ok=True)
    path = f"{folder}/step{step:06d}.pt"
    with open(path, "wb") as out:
        torch.save({"step": step, "model": model.state_dict(), "optimizer": opt.state_dict()}, out)
        out.flush()
        os.fsync(out.fileno())
    for old in sorted(os.listdir(folder))[:-keep]:
        os.remove(f"{folder}/{old}")
    return os.path.getsize(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    cfg = yaml.safe_load(open(parser.parse_args().config))
    torch.manual_seed(cfg["seed"])
    model = Translator(cfg["vocab"], cfg["width"])
    opt = torch.optim.Adam(model.parameters(), lr=cfg["lr"], fused=True)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    metrics, timer = open("metrics.jsonl", "w"), Timer()
    began, candidates = time.perf_counter(), torch.arange(256)
    for step in range(1, cfg["steps"] + 1):
        x = torch.randint(2, 256, (cfg["batch_size"], 16))
        y = x.flip(1)
        timer.lap("data")
        loss = nn.functional.cross_entropy(model(x, y.roll(1, 1), candidates).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        timer.lap("forward+backward")
        opt.step()
        timer.lap("optimizer")
        if step % cfg["save_steps"] == 0:
            size = snapshot(cfg["out"], step, model, opt, cfg["save_total_limit"])
            metrics.write(json.dumps({"step": step, "event": "save", "bytes": size}) + "\n")
            timer.lap("snapshot")
        if step % cfg["log_every"] == 0:
            speed = step / (time.perf_counter() - began)
            metrics.write(json.dumps({"step": step, "loss": round(loss.item(), 4), "steps_per_s": round(speed, 2)}) + "\n")
            print(f"step {step:5d}  loss {loss.item():.4f}  {speed:.2f} steps/s", flush=True)
    wall = time.perf_counter() - began
    print(f"trained {cfg['steps']} steps in {wall:.1f} s")
    for name, seconds in timer.total.most_common():
        print(f"  {name:18s} {seconds:7.2f} s {100 * seconds / wall:5.1f} %")


if __name__ == "__main__":
    main()
