"""Writes the shards: `shards.py COUNT RECORDS`."""

import json
import os
import random
import sys

count, records = int(sys.argv[1]), int(sys.argv[2])
os.makedirs("data", exist_ok=True)
for shard in range(count):
    rng = random.Random(shard)
    with open(f"data/shard-{shard}.jsonl", "w") as f:
        for _ in range(records):
            kind = rng.randrange(4)
            box = [rng.randrange(6), rng.randrange(6), 3 + 5 * (kind & 1), 3 + 5 * (kind >> 1)]
            f.write(json.dumps({"kind": kind, "box": box, "shade": round(rng.uniform(0.5, 1), 2)}) + "\n")
