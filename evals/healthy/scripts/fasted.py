"""Tabular-like classification with fastai."""

import torch
from fastai.basics import *
from fastai.callback.all import *
from fastai.torch_core import set_seed

set_seed(3)
centres = torch.randn(5, 16)


def rows(count):
    y = torch.randint(5, (count,))
    return torch.utils.data.TensorDataset(centres[y] + 1.3 * torch.randn(count, 16), y)


dls = DataLoaders.from_dsets(rows(1600), rows(320), bs=32, device="cpu")
dls.c = 5
model = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 5))
learn = Learner(dls, model, loss_func=CrossEntropyLossFlat(), metrics=accuracy, cbs=[CSVLogger("history.csv")])
with learn.no_bar():
    learn.fit_one_cycle(8, 3e-3)
