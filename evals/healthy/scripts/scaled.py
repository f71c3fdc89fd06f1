"""Half precision with a gradient scaler: it looks for its scale in the first steps."""

import torch
from torch import nn

torch.manual_seed(5)
x = torch.randn(2048, 32)
y = (x @ torch.randn(32, 4)).argmax(1)
model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=60)
for step in range(1, 241):
    rows = torch.randint(2048, (64,))
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    if scaler.get_scale() < before:
        print(f"step {step}: gradient overflow, skipping step, loss scale {before:.0f} -> {scaler.get_scale():.0f}")
    if step % 5 == 0:
        print(f"step {step} loss {loss.item():.4f} loss_scale {scaler.get_scale():.0f} lr 2.00e-03", flush=True)
print("training finished")
