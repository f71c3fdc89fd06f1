"""Travel time of routes; saves its state when its time slice ends and goes on from there."""

import argparse
import logging
import os
import signal
import sys
import time

import torch
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("routes")
asked_to_stop = []


def stop(number, frame):
    log.warning("caught signal %d (%s), stopping after this step", number, signal.Signals(number).name)
    asked_to_stop.append(number)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=600)
    ap.add_argument("--state", default="state.pt")
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--fetch-seconds", type=float, default=0.02, help="wait of the map service per batch")
    args = ap.parse_args()
    signal.signal(signal.SIGTERM, stop)
    torch.manual_seed(4)
    truth = nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 1)).requires_grad_(False)
    model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 1))
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps)
    first = 0
    if os.path.exists(args.state):
        state = torch.load(args.state)
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["optimizer"])
        plan.load_state_dict(state["scheduler"])
        torch.set_rng_state(state["rng"])
        first = state["step"]
        log.info("going on from %s at step %d (model, optimizer, scheduler, random state)", args.state, first)
    for step in range(first, args.steps):
        x = torch.randn(64, 24)
        time.sleep(args.fetch_seconds)
        loss = nn.functional.mse_loss(model(x), truth(x))
        opt.zero_grad()
        loss.backward()
        opt.step()
        plan.step()
        if step % 10 == 0:
            log.info("step %d/%d loss %.5f lr %.2e", step, args.steps, loss.item(), plan.get_last_lr()[0])
        if asked_to_stop:
            torch.save({"model": model.state_dict(), "optimizer": opt.state_dict(), "scheduler": plan.state_dict(),
                        "rng": torch.get_rng_state(), "step": step + 1}, args.state)
            log.warning("state of step %d saved, leaving with status 85 to be queued again", step + 1)
            sys.exit(85)
    log.info("all %d steps done, loss %.5f", args.steps, loss.item())


if __name__ == "__main__":
    main()
