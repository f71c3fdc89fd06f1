import json
import random
import sys

rng = random.Random(8)
SPAM, HAM = ["WIN", "free", "prize", "Click", "now", "offer"], ["Minutes", "of", "the", "meeting", "invoice", "Re:", "lunch"]
with open("mails.jsonl", "w") as f:
    for i in range(int(sys.argv[1])):
        spam = rng.random() < 0.4
        words = [rng.choice(SPAM if spam and rng.random() < 0.6 else HAM) for _ in range(rng.randrange(3, 9))]
        subject = " ".join(words)
        if i == 1310:
            subject = rng.choice(HAM)
        f.write(json.dumps({"id": i, "subject": subject, "spam": int(spam)}) + "\n")
