"""Index: build seconds, query cold and warm, and how well it finds and how well it refuses.

    python benchmarks/index.py [--documents FILES...]

`ANSWERABLE` and `UNANSWERABLE` are what the thresholds of `index/search.py` were calibrated on.
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
from functools import partial
from pathlib import Path

from traindoctor.index.places import KNOWLEDGE, Sources

ANSWERABLE = [
    "loss becomes NaN after a few thousand steps",
    "CUDA out of memory although nvidia-smi shows free memory",
    "NCCL watchdog timeout, one rank did not reach the collective",
    "training hangs at initialization and never starts",
    "GPU utilization is low and the data loader is slow",
    "which checkpoint files must be there to resume with the optimizer",
    "loss does not go down when fine-tuning with LoRA",
    "gradient norm spikes before the loss explodes",
    "reward collapses during RL training",
    "the rollout engine crashed during generation",
    "weights were not updated in the inference engine after a training step",
    "out of memory during evaluation but training was fine",
    "fp16 overflow, loss scale keeps falling",
    "Xid 79 GPU has fallen off the bus",
    "address already in use when torchrun starts",
    "size mismatch when loading a checkpoint with a resized vocabulary",
    "DataLoader worker killed by signal: Bus error",
    "undefined symbol after upgrading torch",
    "learning rate too high",
    "how do I find the slow node that holds up all the others",
    "padding tokens are counted in the loss",
    "experts are unbalanced, some get no tokens",
    "uncorrectable ECC error",
    "job was killed by the OOM killer of the host",
    "resume makes the loss jump because the scheduler was not restored",
    "gradient checkpointing to save activation memory",
    "no kernel image is available for execution on the device",
    "validation loss rises while training loss falls",
    "InfiniBand link down between nodes",
    "empty prompts or responses in the dataset",
]
UNANSWERABLE = [
    "how do I bake sourdough bread",
    "what is the capital of France",
    "best hiking trails near Zurich in autumn",
    "who won the football world cup in 1998",
    "convert a PDF invoice to a spreadsheet",
    "my car does not start in the morning",
    "write a poem about the sea",
    "tax deadline for freelancers in Germany",
    "how to center a div with CSS",
    "SELECT with a LEFT JOIN returns duplicate rows in Postgres",
    "train timetable from Milan to Rome",
    "training plan for a marathon in twelve weeks",
    "my running shoes cause pain after ten miles",
    "kubernetes ingress returns 404 for my web shop",
    "React component renders twice",
    "how to brew espresso at the right pressure",
    "git rebase conflict in package-lock.json",
    "printer is offline on Windows 11",
    "weight loss diet with low carbs",
    "loss of smell after a cold",
    "how to set up a VPN on my phone",
    "excel pivot table shows wrong totals",
    "what is the batch number on a medicine package",
    "learning to play the guitar: which chords first",
    "node.js express server memory of sessions",
    "how do I cancel my gym membership",
    "is this mushroom edible",
    "bus schedule on sundays",
    "recover a deleted photo from an SD card",
    "salary of a data scientist in London",
    "price of an H100 and where to buy one",
    "who founded Hugging Face",
    "which GPU is best for gaming at 1440p",
    "how to write my CV as a machine learning engineer",
    "explain how transformers work to a five year old",
    "best prompt for writing unit tests with a chat model",
    "license of the Llama weights for commercial use",
    "how do I install Steam on Ubuntu",
    "history of backpropagation",
    "mine bitcoin on a graphics card",
]
# Written after the thresholds were set.
HELD_OUT = [
    "my GPU memory grows every step until it crashes",
    "tokens per second dropped after a node was replaced",
    "torch.compile recompiles all the time",
    "why is my perplexity exactly equal to the vocabulary size",
    "permission denied writing the checkpoint",
    "deepspeed says gradient overflow and skips every step",
    "KL divergence explodes during PPO",
    "the model keeps generating until the maximum length and never stops",
    "/dev/shm too small in docker",
    "flash attention not available, falling back to eager",
    "rank 5 uses the same GPU as rank 4",
    "hub download fails with 429",
    "weights_only unpickling error with torch 2.6",
    "GPU temperature throttling slows the step",
    "json decode error in the training data",
    "different world size when resuming zero checkpoint",
    "no module named apex",
    "benchmark accuracy is low because the answer is not extracted",
    "nccl picks docker0 as network interface",
    "too many open files in the data loader",
]
HELD_OUT_UNANSWERABLE = [
    "recipe for vegan lasagna",
    "how tall is the Eiffel tower",
    "my cat is losing weight",
    "fastest route to the airport",
    "python list comprehension syntax",
    "how do I resize a partition on a mac",
    "meaning of the word serendipity",
    "best laptop for students",
    "when does the next train leave",
    "optimise a SQL query with an index",
    "how to memorize vocabulary for a language exam",
    "reward points of my credit card",
    "gradient background in CSS",
    "what is the learning curve of chess",
    "checkpoint Charlie opening hours",
    "data plan for roaming in Spain",
    "is a batch of cookies freezable",
    "loss of appetite in toddlers",
    "rank of a matrix by hand",
    "memory foam mattress review",
]

COLD = """
import time; start = time.perf_counter()
from pathlib import Path
from traindoctor.index.places import Sources
from traindoctor.index.search import search, lexical
found = {call}("gradient norm spikes before the loss explodes", sources=Sources(Path({playbooks!r})))
assert found and not found.degraded, found.degraded
print(time.perf_counter() - start)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", nargs="*", default=[])
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(DOCTOR_CACHE=f"{folder}/cache", DOCTOR_STATE=f"{folder}/state")
        playbooks = Path(shutil.copytree(KNOWLEDGE, f"{folder}/knowledge"))  # others may be writing there
        found = measure(Sources(playbooks), arguments.documents, arguments.verbose)
        sys.stdout.write(json.dumps(found, indent=2) + "\n")


def measure(sources: Sources, documents_: list[str], verbose: bool = False) -> dict[str, object]:
    """Everything as one mapping; seconds unless the name says otherwise."""
    from traindoctor.index import build, documents
    from traindoctor.index.search import lexical, search

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
    warm = []
    for question in ANSWERABLE:
        start = time.perf_counter()
        search(question, sources=sources)
        warm.append(time.perf_counter() - start)
    seconds["search_warm"] = statistics.median(warm)
    quality = {
        "hybrid": _quality(partial(search, sources=sources), verbose),
        "words alone": _quality(partial(lexical, sources=sources), verbose),
    }
    rounded = {name: round(value, 4) for name, value in seconds.items()}
    return {"built": str(built), "seconds": rounded, "quality": quality}


def _quality(search, verbose: bool) -> dict[str, float]:
    """Shares of answerable questions answered and of unanswerable ones refused, also on held-out questions."""
    answered = [q for q in ANSWERABLE if search(q)]
    wrongly = [q for q in UNANSWERABLE if search(q)]
    fresh = [q for q in HELD_OUT if search(q)]
    fresh_wrongly = [q for q in HELD_OUT_UNANSWERABLE if search(q)]
    if verbose:
        for question in [*(q for q in ANSWERABLE if q not in answered), *wrongly]:
            best = [(r.document, r.cosine, r.overlap) for r in search(question)[:2]]
            sys.stderr.write(f"{question} -> {best}\n")
    return {
        "answered": round(len(answered) / len(ANSWERABLE), 3),
        "refused": round(1 - len(wrongly) / len(UNANSWERABLE), 3),
        "held_out_answered": round(len(fresh) / len(HELD_OUT), 3),
        "held_out_refused": round(1 - len(fresh_wrongly) / len(HELD_OUT_UNANSWERABLE), 3),
    }


if __name__ == "__main__":
    main()
