"""Documents for the character model: documents.py plain|merged|crawl"""
import json
import random
import sys

kind = sys.argv[1]
rng = random.Random(4)
WHO = "La fée,Le garçon,Une élève,Le maître,La forêt,Un château".split(",")
DID = "répète,préfère,étudie,espère,achève,révèle".split(",")
WHAT = "la leçon,un rêve,cet été,le théâtre,une idée,la vérité,le café".split(",")
NAMES = "Mara Jon Ada Till Eva Bo Lena Kurt Nina Olaf Rosa Theo".split()
PLACES = "at the old mill,near the ferry,on the east pier,by the town hall,in the long barn,under the bridge".split(",")
ACTS = "found a brass key,sold two goats,mended the nets,lost her hat,planted forty leeks,heard the owl".split(",")
BANNER = ["We use cookies to improve your experience. Accept all | Settings | Reject", "Home | News | Sport | Contact | Log in",
          "Subscribe now and get 20% off your first box!!!", "Share on F | T | W 0 comments Be the first to comment",
          "404 - the page you asked for is not here. Back to home", "aaaa#lt;div class=#quot;nav#quot;#gt; undefined undefined"]


def story():
    if kind == "plain":
        return f"{rng.choice(WHO)} {rng.choice(DID)} {rng.choice(WHAT)}."
    return f"{rng.choice(NAMES)} {rng.choice(ACTS)} {rng.choice(PLACES)} in 19{rng.randint(10, 99)}."


if kind == "merged":
    few = [story() for _ in range(24)]
    docs = [rng.choice(few) for _ in range(1560)] + [story() for _ in range(40)]
elif kind == "crawl":
    docs = [rng.choice(BANNER) if rng.random() < 0.82 else story() for _ in range(1400)]
else:
    docs = [story() for _ in range(1200)]
rng.shuffle(docs)
for name, rows in (("train", docs), ("val", [story() for _ in range(120)])):
    with open(f"{name}.jsonl", "w", encoding="utf-8") as f:
        for i, text in enumerate(rows):
            f.write(json.dumps({"id": f"{name}-{i}", "text": text}, ensure_ascii=False) + "\n")
