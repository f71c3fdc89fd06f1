"""A variational autoencoder: reconstruction falls while the KL term grows, as it should."""

import json

import torch
from torch import nn

torch.manual_seed(4)
mixing = torch.randn(4, 40)
enc, dec = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 8)), nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 40))
optimizer = torch.optim.Adam([*enc.parameters(), *dec.parameters()], lr=1e-3)
with open("metrics.jsonl", "w") as file:
    for step in range(1, 401):
        x = torch.randn(64, 4) @ mixing + 0.1 * torch.randn(64, 40)
        mean, logvar = enc(x).chunk(2, 1)
        out = dec(mean + torch.randn_like(mean) * (0.5 * logvar).exp())
        recon = ((out - x) ** 2).sum(1).mean()
        kl = -0.5 * (1 + logvar - mean**2 - logvar.exp()).sum(1).mean()
        loss = recon + kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 0:
            print(json.dumps({"step": step, "loss": loss.item(), "recon_loss": recon.item(), "kl_loss": kl.item()}), file=file)
            print(f"Train Step: {step} Loss: {loss.item():.3f} Recon: {recon.item():.3f} KLD: {kl.item():.3f}", flush=True)
