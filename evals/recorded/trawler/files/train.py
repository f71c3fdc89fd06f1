"""Intent classification from sharded JSONL files with Accelerate; each process streams its own shards."""

import argparse
import faulthandler
import json
import logging
import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.logging import get_logger
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

parser = argparse.ArgumentParser()
parser.add_argument("--shards", default="shards")
parser.add_argument("--batch_size", type=int, default=32)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--logging_dir", default="tracking")
parser.add_argument("--group_timeout", type=int, default=1800)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=args.group_timeout))])
rank, world = accelerator.process_index, accelerator.num_processes
Path(args.logging_dir).mkdir(exist_ok=True)
logging.basicConfig(level=logging.INFO, filename=f"{args.logging_dir}/process_{rank}.log", format="%(asctime)s %(name)s %(levelname)s %(message)s")
log = get_logger("intent", log_level="INFO")
log.info(accelerator.state, main_process_only=False)
log.info("pid %d", os.getpid(), main_process_only=False)
faulthandler.register(signal.SIGUSR1, open(f"{args.logging_dir}/stack_{rank}.log", "w"))
set_seed(args.seed)


class Shards(IterableDataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*.jsonl"))[rank::world]

    def __iter__(self):
        for file in self.files:
            log.info("reading %s", file.name, main_process_only=False)
            for line in file.open():
                row = json.loads(line)
                yield torch.tensor(row["tokens"]), row["intent"]


class Intent(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.gru = nn.Embedding(120, 32), nn.GRU(32, 48, batch_first=True)
        self.out = nn.Linear(48, 6)

    def forward(self, ids):
        return self.out(self.gru(self.emb(ids))[0].mean(1))


model = Intent()
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
model, optimizer = accelerator.prepare(model, optimizer)
loader = DataLoader(Shards(args.shards), args.batch_size)  # already split by process
step, seen = 0, 0
for epoch in range(args.epochs):
    model.train()
    for ids, intent in loader:
        began = time.time()
        loss = nn.functional.cross_entropy(model(ids), intent)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step, seen = step + 1, seen + len(ids)
        if step % 20 == 0:
            log.info("epoch=%d step=%d seen=%d loss=%.4f sec=%.3f", epoch, step, seen, loss.item(), time.time() - began, main_process_only=False)
    log.info("epoch %d finished after %d steps, saving", epoch, step, main_process_only=False)
    accelerator.wait_for_everyone()
    accelerator.save(accelerator.unwrap_model(model).state_dict(), f"intent-{epoch}.bin")
log.info("all %d epochs done", args.epochs, main_process_only=False)
accelerator.end_training()
