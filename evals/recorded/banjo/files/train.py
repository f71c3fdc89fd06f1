"""Language of a surname, a GRU over characters, with loader processes."""

import argparse
import csv
import logging
import resource

import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger(__name__)


class Names(Dataset):
    def __init__(self, path):
        with open(path, newline="") as f:
            self.rows = [(r["name"].strip().lower(), int(r["language"])) for r in csv.DictReader(f)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        name, language = self.rows[i]
        return torch.tensor([ord(c) - 97 for c in name if c.isalpha()], dtype=torch.long), language


def collate(rows):
    rows.sort(key=lambda r: -len(r[0]))
    assert len(rows[-1][0])
    return pack_sequence([r[0] for r in rows]), torch.tensor([r[1] for r in rows])


class Net(nn.Module):
    def __init__(self, languages):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(26, 24), nn.GRU(24, 64), nn.Linear(64, languages)

    def forward(self, packed):
        x = torch.nn.utils.rnn.PackedSequence(self.embed(packed.data), packed.batch_sizes)
        return self.head(self.rnn(x)[1][-1])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--csv", default="names.csv")
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(5)
    data = Names(args.csv)
    loader = DataLoader(data, 32, shuffle=True, collate_fn=collate, num_workers=args.workers)
    model = Net(4)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    log.info("%d names", len(data))
    step = 0
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 10 == 0:
                rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
                log.info("epoch %d step %d loss %.4f host memory %d MiB", epoch, step, loss.item(), rss)


if __name__ == "__main__":
    main()
