"""Train a restorer of vowels. Alone, or as one of several ranks under torchrun."""
import argparse
import logging
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import data
from model import Restorer, size

log = logging.getLogger("vowels")


def arguments():
    ap = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    ap.convert_arg_line_to_args = str.split
    ap.add_argument("--name", default="default")
    ap.add_argument("--folder", default="data/chronicle")
    ap.add_argument("--steps", type=int, default=20000)
    ap.add_argument("--batch", type=int, default=256, help="rows a rank")
    ap.add_argument("--length", type=int, default=256)
    ap.add_argument("--dim", type=int, default=256)
    ap.add_argument("--layers", type=int, default=8)
    ap.add_argument("--width", type=int, default=5)
    ap.add_argument("--dropout", type=float, default=0.1)
    ap.add_argument("--optimizer", default="adam", choices=["adam", "sgd", "lion"])
    ap.add_argument("--lr", type=float, default=3e-4)
    ap.add_argument("--warmup", type=int, default=500)
    ap.add_argument("--clip", type=float, default=1.0)
    ap.add_argument("--log-every", type=int, default=100)
    ap.add_argument("--eval-every", type=int, default=1000)
    ap.add_argument("--save-every", type=int, default=1000)
    ap.add_argument("--backend", default="gloo")
    ap.add_argument("--resume", action="store_true")
    ap.add_argument("--seed", type=int, default=5)
    return ap.parse_args()


def optimizer(net, args):
    if args.optimizer == "sgd":
        return torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)
    if args.optimizer == "lion":
        sys.path.insert(0, "extern")
        from lion import Lion

        return Lion(net.parameters(), lr=args.lr)
    return torch.optim.Adam(net.parameters(), lr=args.lr)


def loss_of(logits, meant):
    return F.cross_entropy(logits.flatten(0, 1), meant.flatten(), ignore_index=-1)


@torch.no_grad()
def validate(net, held):
    net.eval()
    loss = loss_of(net(held[0]), held[1]).item()
    net.train()
    return loss


def save(out, net, opt, sched, gen, step):
    state = {"net": net.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "step": step,
             "gen": gen.get_state(), "torch": torch.get_rng_state()}
    torch.save(state, out / "state.part")
    os.replace(out / "state.part", out / "state.pt")


def main():
    args = arguments()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group(args.backend)
    out = Path("runs") / args.name
    out.mkdir(parents=True, exist_ok=True)
    path = out / (f"rank{rank}.log" if world > 1 else "train.log")
    logging.basicConfig(filename=path, filemode="a" if args.resume else "w", level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(args.seed)
    net = Restorer(len(data.SYMBOLS), len(data.VOWELS), args.dim, args.layers, args.width, args.dropout)
    ddp = DistributedDataParallel(net) if world > 1 else net
    torch.manual_seed(args.seed + rank)
    opt = optimizer(net, args)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) / args.warmup) * (1.0 - 0.9 * min(1.0, s / args.steps)))
    gen = torch.Generator().manual_seed(args.seed + 1000 * rank)
    chapters = data.Chapters(args.folder, rank, world)
    held = data.held_out(args.folder, args.length)
    log.info("args %s", " ".join(f"{k}={v}" for k, v in vars(args).items()))
    log.info("rank %d of %d: %s, %d characters; %d weights", rank, world, " ".join(f.name for f in chapters.files),
             len(chapters.seen), sum(p.numel() for p in net.parameters()))
    first = 0
    if args.resume and (out / "state.pt").exists():
        state = torch.load(out / "state.pt", weights_only=True)
        net.load_state_dict(state["net"])
        opt.load_state_dict(state["opt"])
        sched.load_state_dict(state["sched"])
        gen.set_state(state["gen"])
        torch.set_rng_state(state["torch"])
        first = state["step"]
        log.info("goes on from step %d", first)
    began = time.time()
    for step in range(first + 1, args.steps + 1):
        seen, meant = chapters.batch(args.batch, args.length, gen)
        logits = net(seen)
        loss = loss_of(logits, meant)
        opt.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), args.clip)
        opt.step()
        sched.step()
        if step % args.log_every == 0:
            log.info("step %d loss %.4f gnorm %.3f lr %.2e weights %.4f %.1f steps/s", step, loss.item(), norm.item(),
                     sched.get_last_lr()[0], size(net), (step - first) / (time.time() - began))
        if step % args.eval_every == 0:
            log.info("step %d val %.4f", step, validate(net, held))
        if step % args.save_every == 0 and rank == 0:
            save(out, net, opt, sched, gen, step)
    if rank == 0:
        torch.save(net.state_dict(), out / "weights.pt")
    log.info("finished, %d steps", args.steps)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
