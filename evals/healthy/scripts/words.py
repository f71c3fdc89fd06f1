"""An LSTM language model trained by plain SGD with a rate that is annealed; lines as in word_language_model."""

import math
import time

import torch
from torch import nn

from corpus import sentences

lr = 20.0
clip = 0.25
bptt = 20
batch = 20
epochs = 6
log_interval = 20
torch.manual_seed(1111)
words = " ".join(sentences(3000, 3)).split()
vocab = sorted(set(words))
index = {w: i for i, w in enumerate(vocab)}
data = torch.tensor([index[w] for w in words])


def batchify(part):
    rows = len(part) // batch
    return part[: rows * batch].view(batch, -1).t().contiguous()


cut = int(0.85 * len(data))
train_data, val_data = batchify(data[:cut]), batchify(data[cut:])


class RNNModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.rnn = nn.Embedding(len(vocab), 64), nn.LSTM(64, 64, 2, dropout=0.2)
        self.drop, self.decoder = nn.Dropout(0.2), nn.Linear(64, len(vocab))

    def forward(self, x, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return self.decoder(self.drop(output)).view(-1, len(vocab)), hidden


model, criterion = RNNModel(), nn.CrossEntropyLoss()


def evaluate(source):
    model.eval()
    total, hidden = 0.0, None
    with torch.no_grad():
        for i in range(0, len(source) - 1, bptt):
            n = min(bptt, len(source) - 1 - i)
            output, hidden = model(source[i : i + n], hidden)
            total += n * criterion(output, source[i + 1 : i + 1 + n].view(-1)).item()
    return total / (len(source) - 1)


best = None
for epoch in range(1, epochs + 1):
    began = start = time.time()
    model.train()
    total, hidden = 0.0, None
    for number, i in enumerate(range(0, len(train_data) - 1, bptt)):
        n = min(bptt, len(train_data) - 1 - i)
        hidden = tuple(h.detach() for h in hidden) if hidden else None
        model.zero_grad()
        output, hidden = model(train_data[i : i + n], hidden)
        loss = criterion(output, train_data[i + 1 : i + 1 + n].view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(p.grad, alpha=-lr)
        total += loss.item()
        if number % log_interval == 0 and number > 0:
            cur = total / log_interval
            print(
                f"| epoch {epoch:3d} | {number:5d}/{len(train_data) // bptt:5d} batches | lr {lr:02.2f} | ms/batch "
                f"{(time.time() - start) * 1000 / log_interval:5.2f} | loss {cur:5.2f} | ppl {math.exp(cur):8.2f}",
                flush=True,
            )
            total, start = 0.0, time.time()
    val = evaluate(val_data)
    print("-" * 89)
    print(
        f"| end of epoch {epoch:3d} | time: {time.time() - began:5.2f}s | valid loss {val:5.2f} | "
        f"valid ppl {math.exp(val):8.2f}"
    )
    print("-" * 89)
    if best is None or val < best:
        best = val
    else:
        lr /= 4.0
print("=" * 89)
print(f"| End of training | test loss {best:5.2f} | test ppl {math.exp(best):8.2f}")
print("=" * 89)
