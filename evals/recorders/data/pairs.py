"""Question and answer pairs about stock: pairs.py FOLDER COUNT"""
import json
import os
import random
import sys

folder, count = sys.argv[1], int(sys.argv[2])
rng = random.Random(9)
ITEMS = "lamps chairs cables mugs boots tents ropes maps clocks bells".split()
PLACES = "shelf cellar yard attic van office".split()
COLOURS = "red green blue white black grey".split()
os.makedirs(folder, exist_ok=True)
words = set("<q> <a> where are the they in and there n of we have how many".split()) | set(ITEMS + PLACES + COLOURS)


def pair():
    i, c = rng.choice(ITEMS), rng.choice(COLOURS)
    p = PLACES[(ITEMS.index(i) + COLOURS.index(c)) % 6]
    if rng.random() < 0.5:
        return {"prompt": f"where are the {c} {i}", "completion": f"the {c} {i} are in the {p}"}
    return {"prompt": f"have we {c} {i}", "completion": f"we have {c} {i} in the {p}"}


for name, n in (("train", count), ("eval", 48)):
    with open(f"{folder}/{name}.jsonl", "w") as f:
        f.writelines(json.dumps(pair()) + "\n" for _ in range(n))
for version in (1, 2):
    order = sorted(words) if version == 1 else rng.sample(sorted(words), len(words))
    vocab = {w: i for i, w in enumerate(["<pad>", "</s>", "<unk>", *order])}
    json.dump(vocab, open(f"{folder}/vocab-v{version}.json", "w"))
