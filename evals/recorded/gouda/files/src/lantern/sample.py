"""Write a letter: python -m lantern.sample runs/NAME/model.pt --prompt "Dear sister,"."""

from __future__ import annotations

import argparse

import torch

from .config import ModelConfig
from .data import Alphabet
from .model import LetterModel


def main():
    ap = argparse.ArgumentParser(prog="lantern.sample")
    ap.add_argument("weights")
    ap.add_argument("--prompt", default="Dear sister,")
    ap.add_argument("--length", type=int, default=400)
    ap.add_argument("--temperature", type=float, default=0.8)
    args = ap.parse_args()
    state = torch.load(args.weights, weights_only=True)
    alphabet = Alphabet()
    model = LetterModel(ModelConfig(**state["config"]["model"]), len(alphabet)).eval()
    model.load_state_dict({k.removeprefix("_orig_mod."): v for k, v in state["model"].items()})
    print(alphabet.decode(model.generate(alphabet.encode(args.prompt)[None], args.length, args.temperature)[0].tolist()))


if __name__ == "__main__":
    main()
