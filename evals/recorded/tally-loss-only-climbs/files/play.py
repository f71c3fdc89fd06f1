import sys

import torch

from tally import task
from tally.policy import load

prompt = torch.tensor([[int(c) for c in sys.argv[2].split()] + [task.EQUALS]])
print(" ".join("0123456789_=."[t] for t in load(sys.argv[1]).sample(prompt, prompt.shape[1], 0)[0].tolist()))
