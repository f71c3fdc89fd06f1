"""Write shards of pairs: `pairs.py FOLDER SHARDS ROWS`."""

import sys
from pathlib import Path

import torch

folder, shards, rows = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
folder.mkdir(exist_ok=True)
torch.manual_seed(17)
topics = torch.randn(40, 12)
for n in range(shards):
    topic = torch.randint(40, (rows,))
    words = (topic[:, None] * 5 + torch.randint(5, (rows, 16))) % 200
    torch.save((topics[topic] + 0.2 * torch.randn(rows, 12), words), folder / f"pairs-{n:05d}.pt")
