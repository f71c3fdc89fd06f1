"""A training loop of one's own with accelerate."""

import argparse
import math
import time

import torch
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import set_seed
from datasets_toy import TextRows
from torch.utils.data import DataLoader
from transformers import DataCollatorForLanguageModeling, get_scheduler

from corpus import sentences, tiny_llama, tokenizer

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--per-device-batch", type=int, default=16)
parser.add_argument("--accumulate", type=int, default=2)
parser.add_argument("--mixed-precision", default="no")
parser.add_argument("--project", default="")
args = parser.parse_args()
import logging

logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", datefmt="%m/%d/%Y %H:%M:%S", level=logging.INFO)
logger = get_logger(__name__)
accelerator = Accelerator(
    gradient_accumulation_steps=args.accumulate, mixed_precision=args.mixed_precision,
    log_with="tensorboard" if args.project else None, project_dir=args.project or None,
)
logger.info(accelerator.state, main_process_only=False)
set_seed(7)
words = tokenizer()
collate = DataCollatorForLanguageModeling(words, mlm=False)
train = DataLoader(TextRows(words, sentences(2400, 1)), args.per_device_batch, shuffle=True, collate_fn=collate)
held = DataLoader(TextRows(words, sentences(160, 2)), args.per_device_batch, collate_fn=collate)
model = tiny_llama(len(words))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
scheduler = get_scheduler("linear", optimizer, 10, args.epochs * 2400 // args.per_device_batch // args.accumulate)
model, optimizer, train, held, scheduler = accelerator.prepare(model, optimizer, train, held, scheduler)
if args.project:
    accelerator.init_trackers("loop", config=vars(args))
logger.info("***** Running training *****")
logger.info(f"  Num examples = 2400, Num Epochs = {args.epochs}")
logger.info(f"  Instantaneous batch size per device = {args.per_device_batch}")
logger.info(f"  Gradient Accumulation steps = {args.accumulate}")
done = 0
for epoch in range(args.epochs):
    model.train()
    began = time.time()
    for batch in train:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            done += 1
            if done % 4 == 0:
                logger.info(f"epoch {epoch} step {done}: loss={loss.item():.4f} lr={scheduler.get_last_lr()[0]:.2e}")
            if args.project:
                accelerator.log({"train_loss": loss.item(), "lr": scheduler.get_last_lr()[0]}, step=done)
    model.eval()
    losses = []
    with torch.no_grad():
        for batch in held:
            losses.append(accelerator.gather_for_metrics(model(**batch).loss.repeat(args.per_device_batch)))
    mean = torch.cat(losses).mean().item()
    logger.info(f"epoch {epoch}: perplexity: {math.exp(mean):.4f} eval_loss: {mean:.4f} time: {time.time() - began:.1f}s")
accelerator.end_training()
