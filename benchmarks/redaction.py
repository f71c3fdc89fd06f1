"""Redaction: megabytes a second on clean logs of the recorded runs, and on text full of planted secrets.

    python benchmarks/redaction.py [--megabytes 20]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from traindoctor.agent.safety.redact import Redactor

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=20)
    size = parser.parse_args().megabytes * 1_000_000
    clean = "".join(
        path.read_text(errors="replace") for path in sorted((ROOT / "evals" / "healthy").rglob("files/**/*.log"))
    )
    clean = (clean * (size // max(len(clean), 1) + 1))[:size]
    found = {"clean": measured(clean), "coloured": measured(clean[: size // 4].replace("loss", "\x1b[1mloss\x1b[0m"))}
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


def measured(text: str) -> dict[str, float]:
    """Megabytes, processor seconds, megabytes a second and secrets found, with all patterns warm."""
    Redactor().redact(text[:1_000_000])
    redactor, began = Redactor(), time.process_time()
    redactor.redact(text)
    seconds = time.process_time() - began
    megabytes = len(text) / 1e6
    return {"megabytes": megabytes, "seconds": round(seconds, 2), "a_second": round(megabytes / seconds, 1),
            "found": redactor.count}  # fmt: skip


if __name__ == "__main__":
    main()
