"""Contrastive learning of two views, as in CLIP; the loss starts at the logarithm of the batch."""

import logging
import math
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s | %(levelname)s | %(message)s", datefmt="%Y-%m-%d,%H:%M:%S")
torch.manual_seed(2)
batch = 64
epochs = 4
steps = 40
shared = torch.randn(64, 8)
image, text = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)), nn.Linear(48, 32)
a, b = torch.randn(8, 64), torch.randn(8, 48)
logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
optimizer = torch.optim.AdamW([*image.parameters(), *text.parameters(), logit_scale], lr=2e-3, weight_decay=0.2)
for epoch in range(epochs):
    for step in range(steps):
        began = time.time()
        hidden = torch.randn(batch, 8)
        left = F.normalize(image(hidden @ a + 0.5 * torch.randn(batch, 64)), dim=-1)
        right = F.normalize(text(hidden @ b + 0.5 * torch.randn(batch, 48)), dim=-1)
        logits = logit_scale.exp() * left @ right.t()
        loss = (F.cross_entropy(logits, torch.arange(batch)) + F.cross_entropy(logits.t(), torch.arange(batch))) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            logit_scale.clamp_(0, math.log(100))
        if step % 4 == 0:
            spent = time.time() - began
            logging.info(
                f"Train Epoch: {epoch} [{step * batch:>5}/{steps * batch} ({100 * step / steps:.0f}%)] Data (t): 0.000 "
                f"Batch (t): {spent:.3f}, {batch / spent:#g}/s, LR: 0.002000 Logit Scale: {logit_scale.exp().item():.3f} "
                f"Contrastive_loss: {loss.item():#.5g} Loss: {loss.item():#.5g}"
            )
