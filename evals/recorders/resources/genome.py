"""Byte-level language model on long sequences (GPT-2 blocks), with a profile."""

import json
import sys
import time

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import GPT2Config, GPT2LMHeadModel


def main():
    cfg = json.load(open(sys.argv[1]))
    torch.manual_seed(cfg["seed"])
    if cfg.get("threads"):
        torch.set_num_threads(cfg["threads"])
    model = GPT2LMHeadModel(GPT2Config(**cfg["model"]))
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    length, size = cfg["model"]["n_positions"], cfg["batch_size"]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, attention: {model.config._attn_implementation}")
    print(f"{model.num_parameters():,} parameters, {size} x {length} tokens a step", flush=True)

    def step():
        start = torch.randint(0, 4, (size, 1))
        ids = (start + torch.arange(length) // 3) % 4 + 4 * (torch.rand(size, length) < 0.05)
        loss = model(input_ids=ids, labels=ids).loss
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    for n in range(1, cfg["steps"] + 1):
        began = time.perf_counter()
        loss = step()
        seconds = time.perf_counter() - began
        print(f"step {n:3d} | loss {loss:.3f} | {seconds * 1e3:.0f} ms | {size * length / seconds:.0f} tokens/s", flush=True)
    if cfg.get("profile"):
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            step()
        print(seen.key_averages().table(sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=45))
    print("end of training")


if __name__ == "__main__":
    main()
