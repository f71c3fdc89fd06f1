"""Exports the review parts: `parts.py COUNT ROWS`."""

import json
import os
import random
import sys

GOOD, POOR = "lovely warm quick tasty clean café friendly".split(), "cold slow dull noisy dirty naïve late".split()
PLAIN = "the place was with a table near window and we had soup then tea after walk in town".split()
os.makedirs("data", exist_ok=True)
for part in range(int(sys.argv[1])):
    rng = random.Random(part)
    with open(f"data/part-{part:02d}.jsonl", "w", encoding="utf-8") as f:
        for _ in range(int(sys.argv[2])):
            stars = rng.randint(1, 5)
            words = rng.choices(PLAIN, k=8) + [rng.choice(GOOD if rng.random() < stars / 5 else POOR) for _ in range(4)]
            rng.shuffle(words)
            f.write(json.dumps({"text": " ".join(words), "stars": stars}, ensure_ascii=False) + "\n")
