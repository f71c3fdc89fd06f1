import json
import random
import sys

rng = random.Random(5)
words = ["".join(rng.choices("abcdefghijklmnoprstuvw", k=rng.randint(2, 9))) for _ in range(900)]
long_at = {int(a): int(n) for a, n in (p.split(":") for p in sys.argv[2:])}
for i in range(int(sys.argv[1])):
    subject = rng.randrange(6)
    n = long_at.get(i, rng.randint(8, 40))
    text = " ".join(rng.choice(words[subject * 150 : subject * 150 + 250]) for _ in range(n))
    print(json.dumps({"id": f"2104.{i:05d}", "subject": subject, "text": text}))
