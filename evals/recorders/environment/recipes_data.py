import json
import random

rng = random.Random(5)
WORDS = [a + b for a in ("sal", "pep", "oni", "gar", "but", "flo", "sug", "mil") for b in ("t", "per", "on", "lic", "ter", "ur", "ar", "k", "a", "o")]
with open("recipes.jsonl", "w") as f:
    for i in range(6000):
        f.write(json.dumps({"text": " ".join(rng.choice(WORDS) for _ in range(rng.randrange(12, 40)))}) + "\n")
