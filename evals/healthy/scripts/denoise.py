"""A toy diffusion model: the loss falls at once and then is noise around its floor."""

import torch
from torch import nn
from tqdm import tqdm

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 2))
ema = [p.detach().clone() for p in model.parameters()]
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)
for epoch in range(12):
    bar = tqdm(range(40), desc=f"Epoch {epoch}", mininterval=0.05)
    for _ in bar:
        angle = torch.rand(32) * 6.28
        clean = torch.stack([angle.cos(), angle.sin()], 1)
        t, noise = torch.randint(1000, (32,)), torch.randn(32, 2)
        noisy = alphas[t, None].sqrt() * clean + (1 - alphas[t, None]).sqrt() * noise
        loss = nn.functional.mse_loss(model(torch.cat([noisy, t[:, None] / 1000], 1)), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for kept, p in zip(ema, model.parameters(), strict=True):
            kept.lerp_(p.detach(), 0.01)
        bar.set_postfix(loss=loss.item(), lr=1e-3)
    print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
