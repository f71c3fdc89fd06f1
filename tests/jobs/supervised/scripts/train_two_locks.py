"""A loop that saves in a thread of its own while it trains."""

import threading
import time

import torch
from torch import nn

weights, journal = threading.Lock(), threading.Lock()


def saver(model):
    while True:
        time.sleep(3.0)
        with journal:
            time.sleep(0.2)
            with weights:
                torch.save(model.state_dict(), "latest.pt")


def main():
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    threading.Thread(target=saver, args=(model,), daemon=True).start()
    for step in range(1, 2000):
        with weights:
            loss = (model(torch.randn(16, 8)) - 1).pow(2).mean()
            model.zero_grad()
            loss.backward()
            for p in model.parameters():
                p.data -= 0.01 * p.grad
            time.sleep(0.02)
            with journal:
                print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
