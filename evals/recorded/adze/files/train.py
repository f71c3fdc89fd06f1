"""Reply ranking: which stored reply fits a question. Two loader workers, one metrics file."""
import glob
import json
import logging
import zlib

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torch.utils.tensorboard import SummaryWriter

logging.basicConfig(format="%(asctime)s | %(levelname)s | %(message)s", level=logging.INFO)
SIZE = 4096


class Pairs(Dataset):
    def __init__(self, pattern):
        self.rows = []
        for path in sorted(glob.glob(pattern)):
            rows = [json.loads(line) for line in open(path, encoding="utf-8")]
            logging.info("%s: %d records", path, len(rows))
            self.rows += rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def hashed(texts):
    out = torch.zeros(len(texts), 16, dtype=torch.long)
    for i, text in enumerate(texts):
        ids = [1 + zlib.crc32(w.encode()) % (SIZE - 1) for w in text.lower().split()][:16]
        out[i, :len(ids)] = torch.tensor(ids)
    return out


def collate(rows):
    return hashed([r["question"] for r in rows]), hashed([r["answer"] for r in rows])


class Ranker(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.words = nn.EmbeddingBag(SIZE, dim, padding_idx=0)
        self.left, self.right = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, q, a):
        return 20 * F.normalize(self.left(self.words(q)), dim=1) @ F.normalize(self.right(self.words(a)), dim=1).T


def main():
    torch.manual_seed(0)
    data = Pairs("data/part-*.jsonl")
    loader = DataLoader(data, 24, shuffle=True, num_workers=2, collate_fn=collate, drop_last=True,
                        generator=torch.Generator().manual_seed(1))
    model = Ranker()
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    tb, step = SummaryWriter("tb"), 0
    for epoch in range(8):
        for q, a in loader:
            loss = F.cross_entropy(model(q, a), torch.arange(len(q)))
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            tb.add_scalar("train/loss", loss.item(), step)
            if step % 2 == 0:
                logging.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
    logging.info("training complete")


if __name__ == "__main__":
    main()
