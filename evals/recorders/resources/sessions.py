"""Next-item prediction on click sessions (GRU), reader with one part of the log for each worker."""

import argparse
import json
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torch.utils.tensorboard import SummaryWriter


class Sessions(IterableDataset):
    """Streams sessions; `shuffle_buffer` of them are held and drawn from at random."""

    def __init__(self, items, length, buffer, seed):
        self.items, self.length, self.buffer, self.seed = items, length, buffer, seed

    def read(self, worker):
        rng = torch.Generator().manual_seed(self.seed + worker)
        while True:
            start = int(torch.randint(self.items, (1,), generator=rng))
            hops = torch.randint(1, 4, (self.length,), generator=rng).cumsum(0)
            yield {"items": ((start + hops) % self.items).tolist(), "dwell": torch.rand(self.length, generator=rng).tolist()}

    def __iter__(self):
        info = get_worker_info()
        worker = info.id if info else 0
        rng = torch.Generator().manual_seed(97 + worker)
        held = []
        for n, session in enumerate(self.read(worker)):
            if len(held) < self.buffer:
                held.append(session)
                if n % 16:  # trickle while the buffer fills
                    continue
            at = int(torch.randint(len(held), (1,), generator=rng))
            out, held[at] = held[at], session
            yield torch.tensor(out["items"]), torch.tensor(out["dwell"])


class Next(nn.Module):
    def __init__(self, items, width):
        super().__init__()
        self.embed = nn.Embedding(items, width)
        self.gru = nn.GRU(width + 1, width, batch_first=True)

    def forward(self, items, dwell):
        x = torch.cat([self.embed(items), dwell[..., None]], -1)
        return self.gru(x)[0] @ self.embed.weight.T


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="config.json")
    cfg = json.load(open(parser.parse_args().config))
    torch.manual_seed(cfg["seed"])
    data = Sessions(cfg["items"], cfg["session_length"], cfg["shuffle_buffer"], cfg["seed"])
    loader = DataLoader(data, cfg["batch_size"], num_workers=cfg["num_workers"], prefetch_factor=cfg["prefetch_factor"])
    model = Next(cfg["items"], cfg["width"])
    opt = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    board = SummaryWriter("runs/gru")
    print(f"config {json.dumps(cfg)}", flush=True)
    began = time.time()
    for step, (items, dwell) in enumerate(loader, 1):
        logits = model(items[:, :-1], dwell[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), items[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 10 == 0:
            board.add_scalar("train/loss", loss.item(), step)
            print(f"[{time.time() - began:6.1f}s] step {step} loss {loss.item():.4f}", flush=True)
        if step == cfg["steps"]:
            break
    board.close()
    print("done", flush=True)


if __name__ == "__main__":
    main()
