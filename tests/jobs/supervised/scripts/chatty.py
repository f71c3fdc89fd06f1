"""A small regression that tells of every step."""

import argparse
import logging
import os
import subprocess
import sys
import time
import warnings

import torch
from torch import nn

logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr, level=logging.INFO)
log = logging.getLogger("trainer")


def fetch(attempt):
    if attempt < 2:
        raise ConnectionError("tracker did not answer")
    return "tracker-3"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--frightening", action="store_true")
    parser.add_argument("--unicode", action="store_true")
    parser.add_argument("--daemon", action="store_true")
    parser.add_argument("--long-save", type=float, default=0)
    args = parser.parse_args()
    if args.frightening:
        warnings.warn("lr_scheduler.step() was called before optimizer.step()", UserWarning, stacklevel=1)
        log.warning("NCCL_DEBUG is not set; error handling: async error handling enabled, timeout 600000 ms")
        for attempt in range(3):
            try:
                log.info("logging to %s", fetch(attempt))
            except ConnectionError as e:
                log.warning("attempt %d failed: %s; trying again", attempt, e)
    if args.daemon:
        subprocess.Popen(["sleep", "3"], start_new_session=True)
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, args.steps + 1):
        x = torch.randn(32, 8)
        loss = (model(x) - x.sum(-1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if args.unicode:
            print(f"étape {step} → loss {loss.item():.4f} ✓ 损失 \x1b[32mok\x1b[0m", flush=True)
        else:
            print(f"step {step}/{args.steps} loss {loss.item():.4f} errors 0 error_rate 0.00 nan_count 0", flush=True)
    if args.frightening:
        log.info("0 errors, 0 failed batches, 0 out of memory events, killed workers: 0")
    if args.long_save:
        print("saving final checkpoint ...", flush=True)
        time.sleep(args.long_save)
        os.makedirs("out", exist_ok=True)
        torch.save(model.state_dict(), "out/final.pt")
        print("saved out/final.pt", flush=True)
    print(f"training finished after {args.steps} steps", flush=True)


if __name__ == "__main__":
    main()
