"""A GRU that continues small sums as text, and its evaluation by generated answers. The loss counts answers only. Settings: quiz.yaml."""

import json
import random
import re
import sys

import torch
import yaml
from torch import nn

CHARS = "\n 0123456789+=#:.QAansweri hTtl"
CHARS = "".join(dict.fromkeys(CHARS))
WIDTH = 18
ID = {c: i for i, c in enumerate(CHARS)}


def example(rng, top):
    a = rng.randrange(top)
    return f"Q: {a}+1=\n", f"A: {a + 1}.\n", str(a + 1)


def tokens(rows):
    """Ids of questions with answers, and which of them are of an answer."""
    ids = torch.tensor([[ID[c] for c in (q + a).ljust(WIDTH)] for q, a, _ in rows])
    place = torch.arange(WIDTH)
    return ids, torch.stack([(place >= len(q)) & (place < len(q + a)) for q, a, _ in rows])


def loss_of(model, ids, answer):
    losses = nn.functional.cross_entropy(model(ids[:, :-1])[0].transpose(1, 2), ids[:, 1:], reduction="none")
    return losses[answer[:, 1:]].mean()


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.embed = nn.Embedding(len(CHARS), 24)
        self.rnn = nn.GRU(24, dim, batch_first=True)
        self.head = nn.Linear(dim, len(CHARS))

    def forward(self, ids, state=None):
        h, state = self.rnn(self.embed(ids), state)
        return self.head(h), state

    @torch.no_grad()
    def continue_(self, text, limit):
        logits, state = self(torch.tensor([[ID[c] for c in text]]))
        out = ""
        while len(out) < limit and not out.endswith("\n"):
            out += CHARS[int(logits[0, -1].argmax())]
            logits, state = self(torch.tensor([[ID[out[-1]]]]), state)
        return out


def main():
    config = yaml.safe_load(open(sys.argv[1]))
    print(json.dumps(config), flush=True)
    rng = random.Random(config["seed"])
    torch.manual_seed(config["seed"])
    model = Model(config["dim"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=float(config["lr"]))
    held = tokens([example(rng, config["top"]) for _ in range(64)])
    with open("metrics.jsonl", "w", buffering=1) as out:
        for step in range(1, config["steps"] + 1):
            loss = loss_of(model, *tokens([example(rng, config["top"]) for _ in range(config["batch_size"])]))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % config["log_every"] == 0:
                with torch.no_grad():
                    val = loss_of(model, *held).item()
                out.write(json.dumps({"step": step, "loss": round(loss.item(), 4), "val_loss": round(val, 4)}) + "\n")
                print(f"step {step}/{config['steps']} loss {loss.item():.4f} val {val:.4f}", flush=True)
    harness, right, answered = config["eval"], 0, 0
    pattern = re.compile(harness["answer_pattern"])
    with open("generations.jsonl", "w") as out:
        for number in range(harness["questions"]):
            question, _, wanted = example(rng, config["top"])
            shots = "".join(q + a for q, a, _ in (example(rng, config["top"]) for _ in range(harness["shots"])))
            text = model.continue_(shots + question, harness["max_new_chars"])
            found = pattern.search(text)
            answered += found is not None
            right += bool(found) and found[1] == wanted
            if number < 40:
                out.write(json.dumps({"question": question, "generated": text, "extracted": found and found[1], "reference": wanted}) + "\n")
    print(json.dumps({"exact_match": right / harness["questions"], "shots": harness["shots"], "questions": harness["questions"]}))


if __name__ == "__main__":
    main()
