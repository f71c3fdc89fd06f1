"""Regression of house energy use with processes of our own; serves its progress as /metrics for the dashboard."""

import csv
import logging
import os
import threading
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import yaml
from torch import nn
from torch.nn.parallel import DistributedDataParallel

cfg = yaml.safe_load(Path("energy.yaml").read_text())
progress = {"train_step": 0, "train_loss": 0.0}


class Metrics(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write("".join(f"{k} {v}\n" for k, v in progress.items()).encode())

    def log_message(self, *_):
        pass


def rows(count, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 10, generator=g)
    y = 2 * x[:, 0] - x[:, 1] * x[:, 2] + torch.sin(2 * x[:, 3]) + 0.1 * torch.randn(count, generator=g)
    return x, y


def work(rank, world):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(cfg["master_port"]))
    logging.basicConfig(level=logging.INFO, filename=f"logs/worker{rank}.log", format="%(asctime)s %(levelname)-7s %(message)s")
    log = logging.getLogger()
    log.info("worker %d of %d joins at port %d", rank, world, cfg["master_port"])
    dist.init_process_group("gloo", rank=rank, world_size=world)
    log.info("all workers are here")
    if rank == 0 and cfg["metrics_port"]:
        server = HTTPServer(("0.0.0.0", cfg["metrics_port"]), Metrics)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        log.info("metrics at :%d/metrics", cfg["metrics_port"])
    torch.manual_seed(cfg["seed"])
    net = DistributedDataParallel(nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(net.parameters(), lr=cfg["lr"], momentum=0.9)
    x, y = rows(cfg["rows"], 1)
    x, y = x[rank::world], y[rank::world]
    vx, vy = rows(1000, 2)
    table = csv.writer(open(f"logs/worker{rank}.csv", "w", buffering=1))
    table.writerow(["epoch", "train_mse", "valid_mse", "weight_sum"])
    micro = 0
    for epoch in range(1, cfg["epochs"] + 1):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch)).split(cfg["micro_batch"])
        total = 0.0
        for part in order:
            micro += 1
            update = micro % cfg["accumulate"] == 0
            # gradients travel once per update only, it is much faster on this network
            with nullcontext() if (micro - 1) % cfg["accumulate"] == 0 else net.no_sync():
                loss = nn.functional.mse_loss(net(x[part]).squeeze(1), y[part]) / cfg["accumulate"]
                loss.backward()
            total += loss.item() * cfg["accumulate"]
            if update:
                optimizer.step()
                optimizer.zero_grad()
                progress.update(train_step=micro, train_loss=loss.item())
        with torch.no_grad():
            valid = nn.functional.mse_loss(net.module(vx).squeeze(1), vy).item()
            weights = sum(p.double().sum() for p in net.parameters()).item()
        table.writerow([epoch, f"{total / len(order):.5f}", f"{valid:.5f}", f"{weights:.6f}"])
        log.info("epoch %2d train mse %.4f valid mse %.4f", epoch, total / len(order), valid)
    if rank == 0:
        torch.save(net.module.state_dict(), "energy.pt")
        log.info("saved energy.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    Path("logs").mkdir(exist_ok=True)
    mp.spawn(work, (cfg["workers"],), cfg["workers"])
    print("done")
