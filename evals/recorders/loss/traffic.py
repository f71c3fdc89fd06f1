"""Road signs with a small CNN, own loop on Accelerate."""
import argparse
import csv

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def signs(n, seed):
    g = torch.Generator().manual_seed(seed)
    kinds = torch.randn(20, 3, 12, 12, generator=torch.Generator().manual_seed(4))
    y = torch.randint(0, 20, (n,), generator=g)
    return TensorDataset(kinds[y] + 1.6 * torch.randn(n, 3, 12, 12, generator=g), y)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--micro-batch", type=int, default=64)
    ap.add_argument("--accumulate", type=int, default=1)
    ap.add_argument("--lr", type=float, default=0.1)
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--out", default="base")
    args = ap.parse_args()
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 48, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(432, 64), nn.ReLU(), nn.Linear(64, 20))
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    loader = DataLoader(signs(6400, 1), args.micro_batch, shuffle=True)
    model, opt, loader = accelerator.prepare(model, opt, loader)
    held, truth = signs(800, 2).tensors
    accelerator.print(f"{vars(args)}")
    accelerator.print(f"batch {args.micro_batch} x {args.accumulate} = {args.micro_batch * args.accumulate} per update")
    update, seen = 0, []
    with open(f"{args.out}.csv", "w", newline="") as f:
        out = csv.writer(f)
        out.writerow(["update", "loss", "grad_norm", "lr"])
        for epoch in range(args.epochs):
            for n, (x, y) in enumerate(loader, 1):
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                seen.append(loss.item())
                if n % args.accumulate == 0:
                    norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
                    opt.step()
                    opt.zero_grad()
                    update += 1
                    if update % 5 == 0:
                        out.writerow([update, f"{sum(seen) / len(seen):.4f}", f"{norm.item():.4f}", args.lr])
                    seen = []
            with torch.no_grad():
                acc = (model(held).argmax(-1) == truth).float().mean().item()
            accelerator.print(f"epoch {epoch} update {update} loss {loss.item():.4f} val_acc {acc:.4f}", flush=True)


if __name__ == "__main__":
    main()
