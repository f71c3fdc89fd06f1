"""Joins a group and makes a few steps."""

import datetime
import os

import torch
import torch.distributed as dist


def main():
    wait = datetime.timedelta(seconds=float(os.environ.get("JOIN_SECONDS", "1800")))
    print(f"joining as rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}", flush=True)
    dist.init_process_group("gloo", timeout=wait)
    for step in range(1, 6):
        value = torch.ones(1)
        dist.all_reduce(value)
        print(f"step {step} sum {value.item():.1f}", flush=True)
    dist.destroy_process_group()
    print("training finished", flush=True)


if __name__ == "__main__":
    main()
