"""Bag-of-words review rating, data-parallel over Gloo; a thread reads ahead."""

import json
import logging
import os
import queue
import sys
import threading
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=f"%(asctime)s [{RANK}] %(levelname)s %(message)s")
log = logging.getLogger("reviews")


class Reader(threading.Thread):
    """Reads the shard over and over and keeps a few batches ready."""

    def __init__(self, path, size):
        super().__init__(name="reader", daemon=True)
        self.path, self.size, self.ready = path, size, queue.Queue(4)

    def run(self):
        while True:
            with open(self.path, encoding="utf-8") as f:
                rows = []
                for line in f:
                    rows.append(json.loads(line))
                    if len(rows) == self.size:
                        self.ready.put(self.encode(rows))
                        rows = []

    @staticmethod
    def encode(rows):
        x = torch.zeros(len(rows), 512)
        for i, row in enumerate(rows):
            for word in row["text"].split():
                x[i, zlib.crc32(word.encode()) % 512] += 1
        return x, torch.tensor([float(row["stars"]) for row in rows])

    def next(self):
        return self.ready.get(timeout=4)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    log.info("joined %d processes at %s:%s", WORLD, os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
    model = DistributedDataParallel(nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    reader = Reader(f"data/part-{RANK:02d}.jsonl", 32)
    reader.start()
    for step in range(600):
        x, y = reader.next()
        loss = nn.functional.mse_loss(model(x).squeeze(-1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            log.info("step %d mse %.4f queue %d", step, loss.item(), reader.ready.qsize())
    log.info("finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
