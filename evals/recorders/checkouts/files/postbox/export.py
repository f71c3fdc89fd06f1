"""Write an ONNX file of saved weights."""

import argparse

import torch


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("weights")
    ap.add_argument("--onnx", default="mail.onnx")
    ap.add_argument("--max_words", type=int, default=512)
    args = ap.parse_args()
    saved = torch.load(args.weights, map_location="cuda")
    torch.onnx.export(saved["model"], torch.zeros(1, args.max_words, dtype=torch.long), args.onnx)


if __name__ == "__main__":
    main()
