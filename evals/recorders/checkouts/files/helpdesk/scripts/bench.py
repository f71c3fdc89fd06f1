"""Questions per second."""
import time

import torch

from deskcls import model as models
from deskcls.words import Words

net = models.build("", Words("data/words.txt"), 6).eval()
x = torch.ones(64, 24, dtype=torch.long)
t = time.time()
for _ in range(50):
    net(x, torch.ones_like(x))
print(f"{50 * 64 / (time.time() - t):.0f} questions/s")
