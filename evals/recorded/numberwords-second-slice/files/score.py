"""python score.py EXPORT FILE: exact matches and the mean edit distance."""
import sys

import torch

from numwords import pairs
from numwords.model import Seq2Seq
from third_party.editdist import distance

said, rows = torch.load(sys.argv[1]), pairs.read(sys.argv[2])
net = Seq2Seq(said["cfg"]["width"]).eval()
net.load_state_dict(said["model"])
out = net.greedy(pairs.encode(rows)[0])
print(f"{sys.argv[2]}: exact {sum(a == b for a, (_, b) in zip(out, rows)) / len(rows):.4f}, "
      f"edits {sum(distance(a, b) for a, (_, b) in zip(out, rows)) / len(rows):.3f}")
for a, (text, b) in list(zip(out, rows))[:4]:
    print(f"  {text!r}: {a}, should be {b}")
