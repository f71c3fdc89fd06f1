"""Masked words on our mail: python pretrain.py CONFIG"""
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import BertForMaskedLM, HfArgumentParser

from deskcls import model as models
from deskcls.data import pad
from deskcls.settings import Pretrain
from deskcls.words import MARKS, MASK, Words


def main(path):
    cfg, = HfArgumentParser(Pretrain).parse_yaml_file(path)
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), mixed_precision=cfg.mixed_precision)
    set_seed(cfg.seed)
    words = Words(cfg.words)
    rows = [words(line, cfg.max_words) for line in open(cfg.text, encoding="utf-8") if line.strip()]
    net = BertForMaskedLM(models.small(len(words), cfg.layers, cfg.hidden, cfg.heads))
    opt = torch.optim.AdamW(net.parameters(), lr=cfg.lr)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, cfg.lr, total_steps=cfg.steps)
    net, opt = accelerator.prepare(net, opt)
    accelerator.print(f"{cfg.name}: {len(rows)} lines, {len(words)} words, {models.size(net.parameters())} parameters")
    mean = 0.0
    for step in range(1, cfg.steps + 1):
        ids, mask = pad([rows[i] for i in torch.randint(len(rows), (cfg.batch_size,))])
        hidden = (torch.rand(ids.shape) < cfg.mask) & (ids >= len(MARKS))
        loss = net(input_ids=ids.masked_fill(hidden, MASK), attention_mask=mask, labels=ids.masked_fill(~hidden, -100)).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad()
        mean += loss.item() / 50
        if step % 50 == 0:
            accelerator.print(f"step {step} loss {mean:.4f}")
            mean = 0.0
    out = Path("results") / cfg.name
    accelerator.unwrap_model(net).save_pretrained(out)
    accelerator.print(f"saved {out}")


if __name__ == "__main__":
    main(sys.argv[1])
