"""Writes corpus.txt: corpus.py LINES"""

import random
import sys

rng = random.Random(17)
who = ["the keeper", "a young clerk", "our neighbour", "the old miller", "her brother", "the ferryman", "a stranger", "the teacher"]
did = ["carried", "sold", "forgot", "painted", "mended", "counted", "borrowed", "weighed", "polished"]
what = ["a copper kettle", "seven apples", "the green ledger", "two wooden chairs", "a bundle of letters", "the brass lamp", "some rope"]
where = ["near the bridge", "behind the church", "at the market", "in the cold cellar", "on the upper floor", "by the canal"]
when = ["before dawn", "on a rainy Tuesday", "after supper", "in late autumn", "while the bells rang", "for the third time"]
with open("corpus.txt", "w") as file:
    for n in range(int(sys.argv[1])):
        parts = [rng.choice(kind) for kind in (who, did, what, where, when)]
        file.write(f"{parts[0]} {parts[1]} {parts[2]} {parts[3]} {parts[4]} and noted {rng.randint(10, 99)} of {rng.randint(100, 999)}\n")
