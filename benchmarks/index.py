"""Index: seconds of a build, and of a query, cold and warm. How well it finds is measured by `doctor index measure`.

    python benchmarks/index.py [--documents FILES...]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from traindoctor.evals.retrieval import QUESTIONS
from traindoctor.index.places import KNOWLEDGE, Sources

COLD = """
import time; start = time.perf_counter()
from pathlib import Path
import yaml
from traindoctor.evals.retrieval import QUESTIONS
from traindoctor.index.places import Sources
from traindoctor.index.search import search, lexical
found = {call}("gradient norm spikes before the loss explodes", sources=Sources(Path({playbooks!r})))
assert found and not found.degraded, found.degraded
print(time.perf_counter() - start)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", nargs="*", default=[])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(DOCTOR_CACHE=f"{folder}/cache", DOCTOR_STATE=f"{folder}/state")
        playbooks = Path(shutil.copytree(KNOWLEDGE, f"{folder}/knowledge"))  # others may be writing there
        found = measure(Sources(playbooks), arguments.documents)
        sys.stdout.write(json.dumps(found, indent=2) + "\n")


def measure(sources: Sources, documents_: list[str]) -> dict[str, object]:
    """Everything as one mapping; seconds unless the name says otherwise."""
    from traindoctor.index import build, documents
    from traindoctor.index.search import search

    documents.add(documents_)
    start = time.perf_counter()
    built = build.build(sources)
    seconds = {"build": time.perf_counter() - start}
    for call in ("search", "lexical"):
        runs = [
            subprocess.run(
                [sys.executable, "-c", COLD.format(call=call, playbooks=str(sources.playbooks))],
                capture_output=True,
                text=True,
                check=True,
            )
            for _ in range(5)
        ]
        seconds[f"{call}_cold"] = statistics.median(float(r.stdout) for r in runs)
    questions = yaml.safe_load(QUESTIONS.read_text(encoding="utf-8"))
    warm = []
    for question in questions["calibration"]["answerable"]:
        start = time.perf_counter()
        search(question, sources=sources)
        warm.append(time.perf_counter() - start)
    seconds["search_warm"] = statistics.median(warm)
    rounded = {name: round(value, 4) for name, value in seconds.items()}
    return {"built": str(built), "seconds": rounded}


if __name__ == "__main__":
    main()
