"""A denoising autoencoder; a thread writes the snapshots so that training goes on."""

import argparse
import logging
import os
import threading

import torch
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(asctime)s | %(levelname)s | %(name)s | %(message)s")
log = logging.getLogger("denoiser")
try:
    from apex.normalization import FusedLayerNorm as LayerNorm
except ImportError:
    log.exception("apex cannot be imported, FusedLayerNorm is not available; taking torch.nn.LayerNorm")
    from torch.nn import LayerNorm


class Snapshots:
    def __init__(self, folder):
        self.folder, self.thread = folder, None
        os.makedirs(folder, exist_ok=True)

    def write(self, name, state):
        self.wait()
        self.thread = threading.Thread(target=self._write, args=(name, {k: v.clone() for k, v in state.items()}))
        self.thread.start()

    def _write(self, name, state):
        try:
            torch.save(state, f"{self.folder}/{name}")
        except (OSError, RuntimeError) as e:
            log.info("snapshot %s skipped: %s", name, str(e).splitlines()[0])

    def wait(self):
        if self.thread:
            self.thread.join()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=600)
    ap.add_argument("--hidden", type=int, default=96)
    ap.add_argument("--save-every", type=int, default=60)
    ap.add_argument("--out", default="out")
    args = ap.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, args.hidden), LayerNorm(args.hidden), nn.GELU(), nn.Linear(args.hidden, 128))
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    basis, best, snapshots = torch.randn(12, 128), float("inf"), Snapshots(args.out)
    for step in range(1, args.steps + 1):
        clean = torch.randn(64, 12) @ basis
        loss = nn.functional.mse_loss(model(clean + torch.randn_like(clean)), clean)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            log.info("step %4d loss %.4f", step, loss.item())
        if step % args.save_every == 0:
            snapshots.write(f"step-{step}.pt", model.state_dict())
            if loss.item() < best:
                best, name = loss.item(), f"step-{step}.pt"
    snapshots.wait()
    log.info("loading the best weights (%s, loss %.4f) for the test", name, best)
    model.load_state_dict(torch.load(f"{args.out}/{name}"))
    model.eval()
    with torch.no_grad():
        clean = torch.randn(512, 12) @ basis
        log.info("test loss %.4f", nn.functional.mse_loss(model(clean + torch.randn_like(clean)), clean).item())


if __name__ == "__main__":
    main()
