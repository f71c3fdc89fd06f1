"""Sequence to sequence with DeepSpeed: reverses digit strings. deepspeed train.py --deepspeed_config ds.json"""

import argparse
import logging
import sys

import deepspeed
import torch
from torch import nn

parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
parser.add_argument("--local_rank", type=int, default=-1)
parser.add_argument("--steps", type=int, default=60)
args = parser.parse_args()
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(name)s: %(message)s")
log = logging.getLogger("seq2seq")
deepspeed.init_distributed("gloo")
torch.manual_seed(2)


class Reverse(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.emb, self.pos = nn.Embedding(12, dim), nn.Parameter(0.02 * torch.randn(10, dim))
        self.body = nn.Transformer(dim, 4, 1, 1, 64, 0.0, batch_first=True)
        self.out = nn.Linear(dim, 12)

    def forward(self, src, tgt):
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
        return self.out(self.body(self.emb(src) + self.pos[: src.shape[1]], self.emb(tgt) + self.pos[: tgt.shape[1]], tgt_mask=mask))


model = Reverse()
engine, _, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
gen = torch.Generator().manual_seed(engine.global_rank)
for step in range(1, args.steps + 1):
    src = torch.randint(2, 12, (engine.train_micro_batch_size_per_gpu(), 9), generator=gen)
    tgt = torch.cat([torch.ones(len(src), 1, dtype=torch.long), src.flip(1)], 1)
    loss = nn.functional.cross_entropy(engine(src, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten())
    engine.backward(loss)
    engine.step()
    if step % 5 == 0:
        log.info("rank %d step %d loss %.4f", engine.global_rank, step, loss.item())
log.info("rank %d finished", engine.global_rank)
