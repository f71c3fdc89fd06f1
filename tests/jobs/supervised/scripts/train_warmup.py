"""Training with a scheduler of a package."""

import torch
from torch import nn

from warmup_cosine_schedules import WarmupCosine

model = nn.Linear(8, 1)
schedule = WarmupCosine(torch.optim.SGD(model.parameters(), lr=0.1))
