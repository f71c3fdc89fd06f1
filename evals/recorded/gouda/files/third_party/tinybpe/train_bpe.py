"""Train a tokenizer: python train_bpe.py corpus.txt --vocab_size 2048 --lr 0.0"""
import argparse

from bpe import BPE

ap = argparse.ArgumentParser()
ap.add_argument("corpus")
ap.add_argument("--vocab_size", type=int, default=2048)
ap.add_argument("--resume", action="store_true", help="go on from merges.json")
args = ap.parse_args()
BPE().train(open(args.corpus).read(), args.vocab_size)
