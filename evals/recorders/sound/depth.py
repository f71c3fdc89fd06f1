"""Depth from stereo strips in half precision, with a loss scaler."""

import argparse
import logging

import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
log = logging.getLogger("depth")


def strips(count, g):
    shift = torch.randint(0, 8, (count,), generator=g)
    at = 20 + 3 * torch.rand(count, 1, generator=g)
    left = torch.exp(-((torch.arange(64) - at) ** 2) / 4) + 0.05 * torch.randn(count, 64, generator=g)
    right = torch.exp(-((torch.arange(64) - at - 3 * shift[:, None]) ** 2) / 4) + 0.05 * torch.randn(count, 64, generator=g)
    return torch.stack([left, right], 1), shift


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--scale", type=float, default=2.0**22, help="where the loss scale starts")
    args = ap.parse_args()
    torch.manual_seed(2)
    g = torch.Generator().manual_seed(2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8))
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scaler = torch.amp.GradScaler("cpu", init_scale=args.scale, growth_interval=80)
    board, skipped = SummaryWriter("tb"), 0
    for step in range(args.steps):
        x, y = strips(64, g)
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.unscale_(opt)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        if scaler.get_scale() < before:
            skipped += 1
            log.warning("step %d: gradient norm %s, OVERFLOW, step skipped, loss scale %g -> %g", step, norm.item(), before,
                        scaler.get_scale())
        elif step % 10 == 0:
            log.info("step %d loss %.4f norm %.3f scale %g", step, loss.item(), norm.item(), scaler.get_scale())
        board.add_scalar("loss", loss.item(), step)
        board.add_scalar("loss_scale", before, step)
    board.close()
    log.info("finished: %d steps, %d skipped", args.steps, skipped)


if __name__ == "__main__":
    main()
