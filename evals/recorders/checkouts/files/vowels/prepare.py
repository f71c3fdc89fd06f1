"""Count what is in a folder of chapters, and warn of characters that are not known."""
import sys
from collections import Counter
from pathlib import Path

import data

for path in sorted(Path(sys.argv[1]).glob("*.txt")):
    text = path.read_text(encoding="utf-8")
    odd = Counter(c for c in text if c not in data.INDEX)
    print(f"{path.name}: {len(text)} characters, {sum(c in data.VOWELS for c in text)} vowels", "" if not odd else f"ERROR unknown {odd}")
