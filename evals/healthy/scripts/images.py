"""Train a small CNN on made-up images; meters and lines as in the ImageNet example."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("-b", "--batch-size", type=int, default=32)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--wd", "--weight-decay", dest="weight_decay", type=float, default=1e-4)
parser.add_argument("-p", "--print-freq", type=int, default=10)
parser.add_argument("-j", "--workers", type=int, default=0)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--noise", type=float, default=1.5)
args = parser.parse_args()


class AverageMeter:
    def __init__(self, name, fmt):
        self.name, self.fmt, self.sum, self.count, self.val = name, fmt, 0.0, 0, 0.0

    def update(self, val, n=1):
        self.val, self.sum, self.count = val, self.sum + val * n, self.count + n

    def __str__(self):
        return f"{self.name} {self.val:{self.fmt}} ({self.sum / max(self.count, 1):{self.fmt}})"


def accuracy(output, target, k):
    return output.topk(k, 1)[1].eq(target[:, None]).any(1).float().mean().item() * 100


torch.manual_seed(args.seed)
print("=> creating model 'smallnet'")
print("using CPU, this will be slow")
patterns = torch.randn(10, 3, 16, 16)


def images(count):
    target = torch.randint(10, (count,))
    return TensorDataset(patterns[target] + args.noise * torch.randn(count, 3, 16, 16), target)


train = DataLoader(images(1600), args.batch_size, shuffle=True, num_workers=args.workers)
held = DataLoader(images(320), args.batch_size)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
    nn.Linear(512, 10),
)  # fmt: skip
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)


def one_pass(loader, prefix, learn):
    meters = [
        AverageMeter("Time", "6.3f"), AverageMeter("Data", "6.3f"), AverageMeter("Loss", ".4e"),
        AverageMeter("Acc@1", "6.2f"), AverageMeter("Acc@5", "6.2f"),
    ]  # fmt: skip
    if not learn:
        del meters[1]
    model.train(learn)
    end = time.time()
    for i, (x, y) in enumerate(loader):
        waited = time.time() - end
        with torch.set_grad_enabled(learn):
            output = model(x)
            loss = criterion(output, y)
        if learn:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        values = [time.time() - end, waited, loss.item(), accuracy(output, y, 1), accuracy(output, y, 5)]
        for meter, value in zip(meters, values if learn else values[:1] + values[2:], strict=True):
            meter.update(value, len(y))
        end = time.time()
        if i % args.print_freq == 0:
            print("\t".join([f"{prefix}[{i + 1:3d}/{len(loader)}]", *map(str, meters)]), flush=True)
    if not learn:
        print(f" *   Acc@1 {meters[-2].sum / meters[-2].count:.3f} Acc@5 {meters[-1].sum / meters[-1].count:.3f}")


for epoch in range(args.epochs):
    one_pass(train, f"Epoch: [{epoch}]", True)
    one_pass(held, "Test: ", False)
    scheduler.step()
