"""Writes names.csv: `surnames.py ROWS`."""

import random
import sys

ENDS = ["son wood ley ton".split(), "ova ski enko ich".split(), "ez illo ado era".split(), "ini ucci elli ano".split()]
rng = random.Random(9)
with open("names.csv", "w") as f:
    f.write("name,language\n")
    for _ in range(int(sys.argv[1])):
        language = rng.randrange(4)
        stem = "".join(rng.choice("bcdfglmnprst") + rng.choice("aeiou") for _ in range(rng.randint(1, 3)))
        f.write(f"{stem.title()}{rng.choice(ENDS[language])},{language}\n")
