"""Writes the shards of four ranks; the pages of `--with-page` keep the text that the features were made of."""

import argparse
import gzip
import json
import os
import random

ap = argparse.ArgumentParser()
ap.add_argument("rows", type=int)
ap.add_argument("--with-page", type=int, nargs="*", default=[])
args = ap.parse_args()
os.makedirs("shards", exist_ok=True)
for rank in range(4):
    rng = random.Random(rank)
    words = [rng.choice("shop news video cart search home \u00fcber mail".split()) for _ in range(60000)]
    with gzip.open(f"shards/clicks-{rank}.jsonl.gz", "wt", compresslevel=1) as f:
        for _ in range(args.rows):
            x = [round(rng.gauss(0, 1), 3) for _ in range(40)]
            row = {"x": x, "y": float(sum(x[:10]) + rng.gauss(0, 1) > 0)}
            if rank in args.with_page:
                row["page"] = " ".join(words)
            f.write(json.dumps(row) + "\n")
