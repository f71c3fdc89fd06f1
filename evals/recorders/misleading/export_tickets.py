"""Writes the tickets of two ranks: `export_tickets.py ROWS`."""

import json
import os
import random
import sys

WORDS = "printer login invoice network password screen order slow update refund link office phone mail".split()
os.makedirs("tickets", exist_ok=True)
for rank in range(2):
    rng = random.Random(rank)
    with open(f"tickets/{rank}.jsonl", "w") as f:
        for i in range(int(sys.argv[1])):
            queue = rng.randrange(6)
            words = rng.choices(WORDS[queue * 2 : queue * 2 + 4], k=10)
            f.write(json.dumps({"id": 2 * i + rank, "subject": " ".join(words[:3]), "body": " ".join(words[3:]), "queue": queue}) + "\n")
