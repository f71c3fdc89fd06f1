"""Bird calls from spectral features, several species in a clip."""
import argparse
import logging

import torch
import yaml
from torch import nn
from torch.utils.tensorboard import SummaryWriter

log = logging.getLogger("species")


def features(n, classes, dim, seed):
    """Each clip has one to three species; what is heard is the sum of their spectra."""
    g = torch.Generator().manual_seed(seed)
    spectra = torch.randn(classes, dim, generator=torch.Generator().manual_seed(99)) * 2.2
    y = torch.zeros(n, classes).scatter_(1, torch.randint(0, classes, (n, 3), generator=g), 1.0)
    return y @ spectra + 0.5 * torch.randn(n, dim, generator=g), y


class Net(nn.Module):
    def __init__(self, dim, width, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(dim, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.body(x))


def focal(logits, y, gamma):
    """Focal loss over independent species (Lin et al., 2017)."""
    p = torch.sigmoid(logits)
    present = y * (1 - p) ** gamma * torch.log(p)
    absent = (1 - y) * p ** gamma * torch.log(1 - p)
    return -(present + absent).sum(-1).mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="species.yaml")
    cfg = yaml.safe_load(open(ap.parse_args().config))
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    torch.manual_seed(cfg["seed"])
    x, y = features(cfg["clips"], cfg["classes"], cfg["dim"], 1)
    vx, vy = features(400, cfg["classes"], cfg["dim"], 2)
    net = Net(cfg["dim"], cfg["width"], cfg["classes"])
    opt = torch.optim.AdamW(net.parameters(), lr=cfg["lr"], weight_decay=cfg["weight_decay"])
    sched = torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, cfg["warmup"])
    board = SummaryWriter("tb")
    log.info("%d clips, %d classes, %d parameters, fp32", len(x), cfg["classes"], sum(p.numel() for p in net.parameters()))
    for step in range(1, cfg["steps"] + 1):
        i = torch.randint(0, len(x), (cfg["batch_size"],))
        loss = focal(net(x[i]), y[i], cfg["gamma"])
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), cfg["clip"])
        opt.step()
        sched.step()
        board.add_scalar("train/loss", loss.item(), step)
        board.add_scalar("train/grad_norm", norm.item(), step)
        board.add_scalar("train/lr", sched.get_last_lr()[0], step)
        if step % 10 == 0:
            log.info("step %d loss %.5f grad_norm %.4f lr %.2e", step, loss.item(), norm.item(), sched.get_last_lr()[0])
        if step % 100 == 0:
            with torch.no_grad():
                acc = ((net(vx) > 0) == (vy > 0.5)).all(-1).float().mean().item()
            log.info("step %d val_exact %.4f", step, acc)
            board.add_scalar("val/exact", acc, step)
    board.close()


if __name__ == "__main__":
    main()
