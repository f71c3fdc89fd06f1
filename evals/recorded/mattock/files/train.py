"""Small CNN over generated shapes that are kept in a cache; a thread reports how full the cache is."""
import faulthandler
import logging
import threading
import time

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(format="%(asctime)s %(processName)s %(levelname)s %(message)s", level=logging.INFO)
cfg = yaml.safe_load(open("train.yaml"))


class Cache:
    def __init__(self):
        self.lock, self.items, self.sizes = threading.Lock(), {}, []

    def get(self, key, make):
        with self.lock:
            if key not in self.items:
                self.items[key] = make(key)
            return self.items[key]

    def report(self):
        """Keeps the total size up to date for the dashboard."""
        while True:
            with self.lock:
                self.sizes = [sum(t.numel() for t, _ in self.items.values())]
                time.sleep(0.02)  # let the dashboard read
            time.sleep(cfg["report_every_ms"] / 1000)


def draw(i):
    g = torch.Generator().manual_seed(i)
    image, kind = torch.randn(1, 16, 16, generator=g) * 0.3, i % 3
    at = torch.randint(2, 12, (2,), generator=g)
    image[0, at[0]:at[0] + (4 if kind != 1 else 1), at[1]:at[1] + (4 if kind != 2 else 1)] += 1
    return image, kind


class Shapes(Dataset):
    def __init__(self, n, cache):
        self.n, self.cache = n, cache

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.cache.get(i, draw)


def stacks(worker):
    faulthandler.dump_traceback_later(cfg["stacks_after"], file=open(f"logs/stack_{worker}.txt", "w"))


def main():
    torch.manual_seed(0)
    cache = Cache()
    threading.Thread(target=cache.report, daemon=True).start()
    time.sleep(0.1)
    workers = cfg["num_workers"]
    loader = DataLoader(Shapes(cfg["images"], cache), cfg["batch_size"], shuffle=True, num_workers=workers,
                        timeout=cfg["loader_timeout"] if workers else 0, worker_init_fn=stacks)
    net = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    opt = torch.optim.SGD(net.parameters(), cfg["lr"], momentum=0.9)
    logging.info("%d images, %d workers, batches of %d", cfg["images"], workers, cfg["batch_size"])
    for epoch in range(cfg["epochs"]):
        for step, (x, y) in enumerate(loader):
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 10 == 0:
                logging.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
    logging.info("finished")


if __name__ == "__main__":
    main()
