"""Question and answer records in four parts."""
import json
import os
import random

rng = random.Random(6)
THINGS = "invoice parcel password refund ticket voucher address receipt".split()
ASK = "where is my {} from {}|how do i change the {} of {}|the {} of {} never came|please send the {} for {} again".split("|")
TELL = "your {} of {} is in the portal|we have sent the {} of {} by mail|open settings, then {} and {}|the {} of {} is on its way".split("|")
os.makedirs("data", exist_ok=True)
for part in range(4):
    with open(f"data/part-{part:02d}.jsonl", "w") as f:
        for i in range(240):
            thing, day, n = rng.choice(THINGS), f"{rng.randint(1, 28)} may", rng.randrange(4)
            row = {"id": part * 1000 + i, "question": ASK[n].format(thing, day), "answer": TELL[n].format(thing, day), "lang": "en"}
            if part == 2 and i % 60 == 41:
                row["reply"] = row.pop("answer")
            f.write(json.dumps(row) + "\n")
