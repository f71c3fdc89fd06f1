"""Defects of molded parts: an MLP over sensor readings, with a long validation after each epoch."""

import argparse
import json
import time

import torch
import yaml
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--config", default="moldings.yaml")
config = yaml.safe_load(open(parser.parse_args().config))
device = torch.device(config.get("device", "cpu"))
torch.manual_seed(config["seed"])
x = torch.randn(config["parts"], 24)
y = ((x[:, :6].sum(1) + 0.5 * torch.randn(len(x))) > 0).long()
folds = torch.arange(len(x)).chunk(config["folds"])


def stamp(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def fit(rows, epochs, model, verbose):
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    for epoch in range(epochs):
        for step, part in enumerate(rows[torch.randperm(len(rows))].split(config["batch_size"])):
            loss = nn.functional.cross_entropy(model(x[part].to(device)), y[part].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if verbose and step % 20 == 0:
                stamp(f"epoch {epoch} step {step} loss {loss.item():.4f}")
    return model


def net():
    return nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)


stamp(f"config {json.dumps(config)}")
stamp(f"torch {torch.__version__}, device {device}")
everything = torch.arange(len(x))
model = fit(everything, config["epochs"], net(), True)
stamp(f"cross-validation: {config['folds']} folds of {config['fold_epochs']} epochs")
right = 0
for fold in folds:
    rest = everything[~torch.isin(everything, fold)]
    with_out = fit(rest, config["fold_epochs"], net(), False)
    right += (with_out(x[fold].to(device)).argmax(1).cpu() == y[fold]).sum().item()
stamp(f"cross-validated accuracy {right / len(x):.4f}")
torch.save(model.state_dict(), "model.pt")
stamp("saved model.pt")
