"""Scores on the validation pictures."""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader


@torch.no_grad()
def evaluate(model, valid, batch_size):
    """Loss and accuracy over the validation set, on the main process; None on the others."""
    if dist.get_rank() != 0:
        return None
    model.eval()
    totals = torch.zeros(3)
    for image, label in DataLoader(valid, batch_size):
        out = model(image)
        totals += torch.stack([
            torch.nn.functional.cross_entropy(out, label, reduction="sum"),
            (out.argmax(1) == label).sum(),
            torch.tensor(float(len(label))),
        ])
    model.train()
    dist.all_reduce(totals)
    return {"loss": (totals[0] / totals[2]).item(), "accuracy": (totals[1] / totals[2]).item()}
