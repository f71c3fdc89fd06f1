import re
from collections import Counter

n = Counter()
for path in ("data/mail.txt", "data/train.tsv"):
    n.update(re.findall(r"[a-z']+|[?.!]", open(path, encoding="utf-8").read().lower()))
open("data/words.txt", "w", encoding="utf-8").write("\n".join(w for w, k in sorted(n.items(), key=lambda p: (-p[1], p[0])) if k > 1) + "\n")
