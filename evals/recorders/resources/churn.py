"""Churn model on a customer table (MLP)."""

import argparse
import time

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=1024)
parser.add_argument("--customers", type=int, default=300_000)
parser.add_argument("--limit-steps", type=int, default=0)
parser.add_argument("--profile", action="store_true")
asked = parser.parse_args()

torch.manual_seed(1)
x = torch.randn(asked.customers, 32)
y = (x[:, :3].sum(1) > 0.5).float()
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
order = torch.randperm(len(x))
steps = len(x) // asked.batch_size
print(f"{asked.customers} customers, batch size {asked.batch_size}, {steps} steps an epoch", flush=True)


def step(n):
    rows = order[n * asked.batch_size : (n + 1) * asked.batch_size]
    loss = nn.functional.binary_cross_entropy_with_logits(model(x[rows])[:, 0], y[rows])
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss


every = max(1, min(steps, asked.limit_steps or steps) // 12)
began = time.perf_counter()
for n in range(min(steps, asked.limit_steps or steps)):
    loss = step(n)
    if (n + 1) % every == 0:
        rate = (n + 1) / (time.perf_counter() - began)
        print(f"step {n + 1}/{steps} loss {loss.item():.4f} {rate:.0f} steps/s {rate * asked.batch_size:.0f} customers/s "
              f"{1000 / rate:.2f} ms/step", flush=True)
if asked.profile:
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        for n in range(100):
            step(n)
    print(seen.key_averages().table(sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=45))
print("done")
