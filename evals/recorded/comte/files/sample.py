"""Fill the gaps of a line: python sample.py WEIGHTS "th* m*ll" """
import sys

import torch

import data
from model import Restorer

net = Restorer(len(data.SYMBOLS), len(data.VOWELS), 20, 2)
net.load_state_dict(torch.load(sys.argv[1], map_location="cpu"), strict=False)
ids = torch.tensor([data.INDEX[c] for c in sys.argv[2]])
best = net(ids[None])[0].argmax(-1)
print("".join(data.VOWELS[b] if c == "*" else c for c, b in zip(sys.argv[2], best)))
