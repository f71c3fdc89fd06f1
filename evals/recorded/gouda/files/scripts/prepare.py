"""Clean a folder of scanned letters: python scripts/prepare.py IN OUT. Drops pages with fewer than 200 characters."""
import re
import sys
from pathlib import Path


def main(source, target):
    Path(target).mkdir(parents=True, exist_ok=True)
    kept = dropped = 0
    for path in sorted(Path(source).glob("*.txt")):
        text = re.sub(r"[ \t]+", " ", path.read_text(encoding="utf-8", errors="replace"))
        if len(text) < 200:
            dropped += 1
            continue
        (Path(target) / path.name).write_text(text, encoding="utf-8")
        kept += 1
    print(f"kept {kept}, dropped {dropped}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
