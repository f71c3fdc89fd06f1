"""Spam or not, from hashed character n-grams (libshingles) and a linear model."""

import ctypes
import json
import logging
import os
import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger()


class Mails(Dataset):
    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            self.rows = [json.loads(line) for line in f]
        self.lib = None

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        if self.lib is None:
            self.lib = ctypes.CDLL(os.path.abspath("libshingles.so"))
        counts = np.zeros(1024, dtype=np.float32)
        row = self.rows[i]
        self.lib.shingle(row["subject"].encode(), 3, counts.ctypes.data_as(ctypes.c_void_p))
        return torch.from_numpy(counts), float(row["spam"])


def main():
    torch.manual_seed(2)
    mails = Mails(sys.argv[1])
    log.info("%d mails, subjects of %d to %d letters, mean %.1f", len(mails), min(len(r["subject"]) for r in mails.rows), max(len(r["subject"]) for r in mails.rows),
             sum(len(r["subject"]) for r in mails.rows) / len(mails))
    model = nn.Linear(1024, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    loader = DataLoader(mails, batch_size=32, shuffle=False)
    step = 0
    with open("metrics.jsonl", "w") as out:
        for epoch in range(3):
            for x, y in loader:
                loss = nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                out.write(json.dumps({"step": step, "epoch": epoch, "loss": round(loss.item(), 5)}) + "\n")
                out.flush()
                if step % 10 == 0:
                    log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
    log.info("finished")


if __name__ == "__main__":
    main()
