"""Train a character-level GPT. One file, settings at the top, override them with --name=value."""

import math
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

from corpus import sentences

seed = 1337
max_iters = 400
eval_interval = 100
eval_iters = 10
log_interval = 10
batch_size = 12
gradient_accumulation_steps = 1
block_size = 64
n_layer = 2
n_head = 4
n_embd = 48
dropout = 0.0
learning_rate = 3e-3
min_lr = 3e-4
warmup_iters = 40
lr_decay_iters = 400
weight_decay = 1e-1
beta1 = 0.9
beta2 = 0.99
grad_clip = 1.0
dtype = "float32"
early_pause = 0
config_keys = [k for k, v in globals().items() if not k.startswith("_") and isinstance(v, (int, float, bool, str))]
for arg in sys.argv[1:]:
    key, val = arg.removeprefix("--").split("=")
    globals()[key] = type(globals()[key])(val)
    print(f"Overriding: {key} = {globals()[key]}")

torch.manual_seed(seed)
tokens_per_iter = gradient_accumulation_steps * batch_size * block_size
print(f"tokens per iteration will be: {tokens_per_iter:,}")
text = "\n".join(sentences(4000, seed))
chars = sorted(set(text))
data = torch.tensor([chars.index(c) for c in text])
split = int(0.9 * len(data))
train_data, val_data = data[:split], data[split:]


def get_batch(part):
    source = train_data if part == "train" else val_data
    at = torch.randint(len(source) - block_size - 1, (batch_size,))
    return torch.stack([source[i : i + block_size] for i in at]), torch.stack(
        [source[i + 1 : i + 1 + block_size] for i in at]
    )


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(len(chars), n_embd), nn.Embedding(block_size, n_embd)
        layer = nn.TransformerEncoderLayer(n_embd, n_head, 4 * n_embd, dropout, "gelu", batch_first=True, norm_first=True)
        self.h = nn.TransformerEncoder(layer, n_layer, enable_nested_tensor=False)
        self.lm_head = nn.Linear(n_embd, len(chars), bias=False)
        nn.init.normal_(self.lm_head.weight, std=0.02)

    def forward(self, idx, targets):
        mask = nn.Transformer.generate_square_subsequent_mask(idx.size(1))
        x = self.h(self.wte(idx) + self.wpe(torch.arange(idx.size(1))), mask=mask, is_causal=True)
        logits = self.lm_head(x)
        return F.cross_entropy(logits.view(-1, len(chars)).float(), targets.view(-1))


print("Initializing a new model from scratch")
model = GPT()
print(f"number of parameters: {sum(p.numel() for p in model.parameters()) / 1e6:.2f}M")
decay = [p for p in model.parameters() if p.dim() >= 2]
nodecay = [p for p in model.parameters() if p.dim() < 2]
print(f"num decayed parameter tensors: {len(decay)}, with {sum(p.numel() for p in decay):,} parameters")
print(f"num non-decayed parameter tensors: {len(nodecay)}, with {sum(p.numel() for p in nodecay):,} parameters")
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": weight_decay}, {"params": nodecay, "weight_decay": 0.0}],
    lr=learning_rate, betas=(beta1, beta2),
)
print("using fused AdamW: False")
ctx = torch.autocast("cpu", dtype=getattr(torch, dtype), enabled=dtype != "float32")


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = min(1.0, (it - warmup_iters) / (lr_decay_iters - warmup_iters))
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for part in ("train", "val"):
        with ctx:
            out[part] = sum(model(*get_batch(part)).item() for _ in range(eval_iters)) / eval_iters
    model.train()
    return out


t0, running_mfu = time.time(), -1.0
for it in range(max_iters + 1):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(it)
    if it % eval_interval == 0:
        losses = estimate_loss()
        print(f"step {it}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}", flush=True)
        if it > 0:
            print("saving checkpoint to out")
    for _ in range(gradient_accumulation_steps):
        with ctx:
            loss = model(*get_batch("train")) / gradient_accumulation_steps
        loss.backward()
    if grad_clip:
        nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    dt, t0 = time.time() - t0, time.time()
    if it % log_interval == 0:
        if it >= 5 * log_interval:
            running_mfu = 0.0001 if running_mfu < 0 else 0.9 * running_mfu + 0.1 * 0.0001
        lossf = loss.item() * gradient_accumulation_steps
        print(f"iter {it}: loss {lossf:.4f}, time {dt * 1000:.2f}ms, mfu {running_mfu * 100:.2f}%", flush=True)
    if early_pause and it == early_pause:
        time.sleep(3600)
