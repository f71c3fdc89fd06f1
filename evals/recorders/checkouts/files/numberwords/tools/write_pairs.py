"""Write pairs in the manner of the account books: python tools/write_pairs.py FOLDER --seed N"""
import argparse
import random

ONES = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
OLD = {"one": ["oon", "on"], "two": ["twey", "ij"], "three": ["thre", "iij"], "four": ["foure", "iiij"], "five": ["fyve", "v"],
       "six": ["sixe", "vj"], "seven": ["seuen", "vij"], "eight": ["eyght", "viij"], "nine": ["nyne", "ix"], "ten": ["tenne", "x"]}


def word(n, r):
    w = ONES[n - 1]
    return r.choice([w, *OLD.get(w, [w])])


def say(n, r):
    parts = []
    if n >= 120 and r.random() < 0.5:
        parts.append("a long hundred" if n // 120 == 1 else word(n // 120, r) + " long hundred")
        n %= 120
    elif n >= 100:
        parts.append("a hundred" if n // 100 == 1 else word(n // 100, r) + r.choice([" hundred", " hundreth"]))
        n %= 100
    if n >= 20:
        parts.append("a score" if n // 20 == 1 else word(n // 20, r) + r.choice([" score", " skore"]))
        n %= 20
    if n:
        parts.append(word(n, r))
    return r.choice([" and ", " "]).join(parts) + r.choice(["", " pence", " pens", " sheep", " ells"])


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("folder")
    ap.add_argument("--seed", type=int, default=12)
    a = ap.parse_args()
    r, seen = random.Random(a.seed), set()
    for name, n in (("val", 250), ("test", 200), ("train", 4000)):
        with open(f"{a.folder}/{name}.tsv", "w") as f:
            while n:
                k = r.randrange(1, 1000)
                text = say(k, r)
                if text not in seen:
                    seen.add(text)
                    n -= 1
                    f.write(f"{text}\t{k}\n")
