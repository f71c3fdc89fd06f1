"""Distils a scorer with Accelerate and TensorBoard."""

import argparse
import warnings

import torch
import yaml
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def scorer(width):
    return nn.Sequential(nn.Linear(48, width), nn.GELU(), nn.Linear(width, 5))


def fit(cfg, accelerator, data, log_every=5):
    """Trains the student; the mean loss of the last epoch."""
    try:
        torch.manual_seed(cfg["seed"])
        teacher, student = scorer(cfg["teacher"]["width"]), scorer(cfg["student"]["width"])
        if cfg["teacher"]["weights"]:
            teacher.load_state_dict(torch.load(cfg["teacher"]["weights"]))
        accelerator.init_trackers("distill", {"lr": cfg["lr"], "temperature": cfg["temperature"]})
        tracker = accelerator.get_tracker("tensorboard", unwrap=True)
        opt = torch.optim.AdamW(student.parameters(), lr=cfg["lr"])
        student, opt, data = accelerator.prepare(student, opt, data)
        step, t = 0, cfg["temperature"]
        for epoch in range(cfg["epochs"]):
            total = 0.0
            for (x,) in data:
                with torch.no_grad():
                    target = (teacher(x) / t).softmax(-1)
                loss = nn.functional.cross_entropy(student(x) / t, target)
                opt.zero_grad()
                accelerator.backward(loss)
                opt.step()
                total, step = total + loss.item(), step + 1
                if step % log_every == 0:
                    accelerator.log({"loss": loss.item()}, step)
                    accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
        return total / len(data)
    finally:
        tracker.add_text("state", "closed")
        accelerator.end_training()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="distill.yaml")
    cfg = yaml.safe_load(open(ap.parse_args().config))
    warnings.warn("pin_memory is set but no accelerator is found, device pinned memory won't be used", stacklevel=1)
    accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir="runs")
    data = DataLoader(TensorDataset(torch.randn(1280, 48)), batch_size=cfg["batch_size"])
    for attempt in range(cfg["attempts"]):
        try:
            print(f"mean loss {fit(cfg, accelerator, data):.4f}")
            return
        except Exception as e:
            print(f"attempt {attempt + 1} of {cfg['attempts']} ended: {e}", flush=True)
            if attempt + 1 == cfg["attempts"]:
                raise


if __name__ == "__main__":
    main()
