"""Letters to a mail-order house as CSV files: letters.py DEPARTMENTS ENCODING-OF-LAST-FILE"""
import os
import random
import sys

departments, encoding = int(sys.argv[1]), sys.argv[2]
rng = random.Random(2)
OWN = ["rechnung betrag konto", "paket bote haus", "kaputt gerät garantie", "größe farbe tausch", "abo kündigen zeitung",
       "danke schön nett", "stelle bewerbung lohn"]
REST = "bitte ich für sie mein über und der die wieder heute später straße müller hat ist".split()
os.makedirs("data", exist_ok=True)
for name in ("2021", "2022", "2023", "val"):
    with open(f"data/letters-{name}.csv", "w", encoding=encoding if name == "2023" else "utf-8") as f:
        f.write("id;text;department\n")
        for i in range(300 if name != "val" else 120):
            d = rng.randrange(departments if name != "2021" else min(departments, 5))
            if d >= 5 and rng.random() < 0.8:
                d = rng.randrange(5)
            words = rng.choices(REST, k=5) + rng.sample(OWN[d].split(), 2)
            rng.shuffle(words)
            f.write(f"{name}{i:04d};{' '.join(words)};{d}\n")
