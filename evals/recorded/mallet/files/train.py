"""Angry or not: a net over word counts."""
import csv

import pandas as pd
import torch
from sklearn.feature_extraction.text import CountVectorizer
from torch import nn
from torch.nn import functional as F

torch.manual_seed(1)
frames = {name: pd.read_csv(f"{name}.csv") for name in ("train", "test", "april")}
counts = CountVectorizer().fit(frames["train"]["text"])
sets = {k: (torch.tensor(counts.transform(f["text"]).toarray(), dtype=torch.float32), torch.tensor(f["angry"].to_numpy()))
        for k, f in frames.items()}
for name, (x, y) in sets.items():
    print(f"{name}: {len(y)} letters, {x.shape[1]} words, {y.float().mean():.1%} angry")
x, y = sets["train"]
net = nn.Sequential(nn.Linear(x.shape[1], 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 2))
opt = torch.optim.Adam(net.parameters(), 2e-3)
table = csv.writer(open("history.csv", "w"))
table.writerow(["epoch", "loss", "train_acc", "test_acc"])


def accuracy(name):
    net.eval()
    with torch.no_grad():
        got = (net(sets[name][0]).argmax(1) == sets[name][1]).float().mean().item()
    net.train()
    return got


for epoch in range(1, 31):
    total = 0.0
    for batch in torch.randperm(len(x)).split(50):
        loss = F.cross_entropy(net(x[batch]), y[batch])
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(batch) / len(x)
    row = [epoch, round(total, 4), round(accuracy("train"), 4), round(accuracy("test"), 4)]
    table.writerow(row)
    print("epoch {:2d} loss {:.4f} train_acc {:.4f} test_acc {:.4f}".format(*row), flush=True)
print(f"final: test {accuracy('test'):.4f}")
print(f"april.csv: {accuracy('april'):.4f}")
