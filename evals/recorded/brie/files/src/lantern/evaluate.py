"""The loss of saved weights on a collection: python -m lantern.evaluate runs/NAME/model.pt --data data/harbourlog."""

from __future__ import annotations

import argparse
import math

import torch

from .config import ModelConfig
from .data import Alphabet, batch, read
from .model import LetterModel


@torch.no_grad()
def main():
    ap = argparse.ArgumentParser(prog="lantern.evaluate")
    ap.add_argument("weights")
    ap.add_argument("--data", default="data/letters")
    ap.add_argument("--batches", type=int, default=50)
    ap.add_argument("--batch_size", type=int, default=64)
    args = ap.parse_args()
    state = torch.load(args.weights, weights_only=True)
    alphabet = Alphabet()
    c = ModelConfig(**state["config"]["model"])
    model = LetterModel(c, len(alphabet)).eval()
    model.load_state_dict({k.removeprefix("_orig_mod."): v for k, v in state["model"].items()})
    _, row = read(args.data, 9, alphabet)
    g = torch.Generator().manual_seed(0)
    total = sum(model(*batch(row, args.batch_size, c.context, g))[1].item() for _ in range(args.batches)) / args.batches
    print(f"loss {total:.4f} | bits a character {total / math.log(2):.3f}")


if __name__ == "__main__":
    main()
