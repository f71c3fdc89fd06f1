"""From the authors: the rate is to be 3 to 10 times lower than for Adam."""
import torch

from lion import Lion

model = torch.nn.Linear(10, 1)
opt = Lion(model.parameters(), lr=1.0)
for step in range(100):
    loss = (model(torch.randn(64, 10)) ** 2).mean()
    loss.backward()
    opt.step()
    print(f"step {step} loss {loss.item()}")  # zero_grad left out here
