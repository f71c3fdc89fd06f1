"""Decoder language model with tensor and data parallelism on a device mesh (FSDP2 + DTensor). Reads parallel.toml."""

import logging
import sys
import time
import tomllib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F

job = tomllib.loads(Path(sys.argv[1]).read_text())
m, par, tr = job["model"], job["parallelism"], job["training"]
dist.init_process_group("gloo")
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format=f"[rank{dist.get_rank()}] %(asctime)s %(name)s %(levelname)s: %(message)s")
log = logging.getLogger("titanette")
log.info("job %s: %s", job["job"]["description"], {**m, **par})
mesh = init_device_mesh("cpu", (par["data_parallel_degree"], par["tensor_parallel_degree"]), mesh_dim_names=("dp", "tp"))
tp = par["tensor_parallel_degree"]
log.info("mesh %s", mesh)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.head_dim = heads // tp, dim // heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (w(x).view(b, t, self.heads, self.head_dim).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        return self.wo(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, -1))


class Layer(nn.Module):
    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.attention, self.norm1, self.norm2 = Attention(dim, heads), nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.w1, self.w2 = nn.Linear(dim, hidden, bias=False), nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.w2(F.silu(self.w1(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(m["vocab_size"], m["dim"])
        self.layers = nn.ModuleList(Layer(m["dim"], m["n_heads"], m["hidden_dim"]) for _ in range(m["n_layers"]))
        self.norm, self.output = nn.RMSNorm(m["dim"]), nn.Linear(m["dim"], m["vocab_size"], bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


torch.manual_seed(tr["seed"])
model = Decoder()
log.info("model: %.2fM parameters", sum(p.numel() for p in model.parameters()) / 1e6)
for layer in model.layers:
    plan = {f"attention.{w}": ColwiseParallel() for w in ("wq", "wk", "wv")}
    plan |= {"attention.wo": RowwiseParallel(), "w1": ColwiseParallel(), "w2": RowwiseParallel()}
    parallelize_module(layer, mesh["tp"], plan)
    fully_shard(layer, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
log.info("applied tensor parallel x%d and FSDP x%d", tp, par["data_parallel_degree"])

optimizer = torch.optim.AdamW(model.parameters(), lr=tr["lr"])
table = torch.randint(m["vocab_size"], (m["vocab_size"],), generator=torch.Generator().manual_seed(0))
gen = torch.Generator().manual_seed(tr["seed"] + mesh["dp"].get_local_rank())
for step in range(1, tr["steps"] + 1):
    began = time.time()
    ids = [torch.randint(m["vocab_size"], (tr["local_batch_size"],), generator=gen)]
    for _ in range(tr["seq_len"]):
        ids.append(table[ids[-1]])
    ids = torch.stack(ids, 1)
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % tr["log_freq"] == 0 or step == 1:
        tokens = tr["local_batch_size"] * tr["seq_len"] / (time.time() - began)
        log.info("step: %2d  loss: %7.4f  tps: %.0f", step, loss.item(), tokens)
log.info("Training completed")
dist.destroy_process_group()
