"""Writes the shards: intents.py FOLDER ROWS [ROWS ...], one file for each number."""

import json
import random
import sys
from pathlib import Path

folder = Path(sys.argv[1])
folder.mkdir(exist_ok=True)
rng = random.Random(1)
for number, rows in enumerate(map(int, sys.argv[2:])):
    with (folder / f"part-{number:05d}.jsonl").open("w") as file:
        for _ in range(rows):
            intent = rng.randrange(6)
            tokens = [rng.randrange(120) if rng.random() < 0.6 else intent * 20 + rng.randrange(20) for _ in range(12)]
            file.write(json.dumps({"tokens": tokens, "intent": intent}) + "\n")
