"""Letters of January to March into train.csv and test.csv, those of April into april.csv."""
import random

import pandas as pd

rng = random.Random(12)
WORDS = [a + b for a in "ka lo mi ne pu ro sa te vi zu".split() for b in "bel dor fin gas hum kit lan mor nap rus".split()]


def letters(months, n):
    rows = []
    for i in range(n):
        words = rng.choices(WORDS, k=9)
        angry = sum(w[0] in "klm" for w in words) + rng.gauss(0, 2.4) > 2.7
        rows.append({"month": rng.choice(months), "text": " ".join(words), "angry": int(angry)})
    return pd.DataFrame(rows)


frame = letters(["jan", "feb", "mar"], 1000)
test = frame.sample(200, random_state=1)
train = frame.sample(frac=1.0, random_state=2)
train.to_csv("train.csv", index=False)
test.to_csv("test.csv", index=False)
letters(["apr"], 200).to_csv("april.csv", index=False)
