"""Continued pretraining of a small GPT-2 on support-desk notes, as a chain of jobs."""
import argparse
import csv
import os
import random

import torch
import yaml
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

WHO = "printer router laptop monitor scanner keyboard server tablet".split()
DID = "lost shows drops repeats refuses reports".split()
WHAT = "the signal,a blue screen,every second packet,its address,a paper jam,error 0x80,the login,its driver".split(",")
WHEN = "after the update,since monday,on battery,at night,behind the proxy,in room 12".split(",")


def notes(n, seed):
    rng = random.Random(seed)
    return [f"{rng.choice(WHO)} {rng.choice(DID)} {rng.choice(WHAT)} {rng.choice(WHEN)}. ticket {rng.randint(100, 999)}\n"
            for _ in range(n)]


class Notes(torch.utils.data.Dataset):
    def __init__(self, lines, length):
        self.rows = [torch.tensor(list(s.encode()[:length].ljust(length, b"\n"))) for s in lines]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"id": i, "input_ids": self.rows[i]}


class Collate:
    """Stacks rows; with `trace` the ids of every batch go into a CSV (data team wants them)."""

    def __init__(self, trace=None):
        self.trace = trace

    def __call__(self, rows):
        if self.trace:
            with open(self.trace, "a", newline="") as f:
                csv.writer(f).writerow([os.environ.get("JOB_ID", "0"), *[r["id"] for r in rows]])
        ids = torch.stack([r["input_ids"] for r in rows])
        return {"input_ids": ids, "labels": ids.clone()}


class JobSlice(TrainerCallback):
    """Ends a job after its share of steps, with a checkpoint; the next job of the chain goes on."""

    def __init__(self, steps):
        self.steps, self.done = steps, 0

    def on_step_end(self, args, state, control, **kwargs):
        self.done += 1
        if self.done >= self.steps and state.global_step < state.max_steps:
            print(f"job slice of {self.steps} steps used up at step {state.global_step}, saving", flush=True)
            control.should_save = control.should_training_stop = True


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--config", default="config.yaml")
    cfg = yaml.safe_load(open(p.parse_args().config))
    args = TrainingArguments(report_to=["tensorboard"], remove_unused_columns=False, disable_tqdm=True, use_cpu=True,
                             **cfg["trainer"])
    torch.manual_seed(args.seed)
    m = cfg["model"]
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=m["length"], n_embd=m["width"], n_layer=m["layers"],
                                       n_head=m["heads"], bos_token_id=10, eos_token_id=10))
    train, held = Notes(notes(cfg["data"]["rows"], 1), m["length"]), Notes(notes(128, 2), m["length"])
    trainer = Trainer(model, args, data_collator=Collate(cfg["data"].get("trace")), train_dataset=train, eval_dataset=held,
                      callbacks=[JobSlice(cfg["job"]["slice"])])
    os.makedirs(args.output_dir, exist_ok=True)
    last = get_last_checkpoint(args.output_dir)
    print(f"job {os.environ.get('JOB_ID', '0')}: {len(train)} notes, "
          f"{sum(x.numel() for x in model.parameters())} parameters, resume from {last}", flush=True)
    trainer.train(resume_from_checkpoint=last)
    print(trainer.evaluate() if trainer.state.global_step >= args.max_steps else "to be continued")


if __name__ == "__main__":
    main()
