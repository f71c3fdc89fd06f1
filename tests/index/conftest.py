"""A small index of our own texts, built once for all tests with the real model and the real Chroma."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from traindoctor.index.build import build
from traindoctor.index.places import Sources

PLAYBOOKS = {
    "loss/fp16_overflow": (
        "loss.fp16_overflow",
        "Half precision overflows",
        "Gradient overflow. Skipping step",
        "The loss scale is halved again and again until it reaches its floor. Values above 65504 do not fit "
        "into float16.\n\n## What to do\nTrain in bfloat16, or raise the minimum loss scale.",
    ),
    "dist/rank_died": (
        "dist.rank_died",
        "One rank died and the others wait",
        "Watchdog caught collective operation timeout",
        "The watchdog of the surviving ranks reports a collective that never completes. Look for the rank "
        "that logged nothing.\n\n## Which rank\nThe one missing from the list of those that time out.",
    ),
    "speed/data_starvation": (
        "speed.data_starvation",
        "The GPU waits for data",
        "data_time 0.9 step_time 1.0",
        "Utilization swings between idle and full because the loader cannot keep up. More workers, pinned "
        "memory and prefetching help.",
    ),
}
GUIDE = """# Notes of our team

## Storage
Checkpoints go to the parallel file system; keep the last three of them.

```bash
# not a heading
ls /checkpoints
```

## Evaluation
### Perplexity
Perplexity is measured on the held-out shard every thousand steps without gradients.
"""


def write_sources(root: Path) -> Sources:
    for slug, (cause, title, line, body) in PLAYBOOKS.items():
        path = root / "knowledge" / f"{slug}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        front = f"cause: {cause}\ntitle: {title}\nsignatures:\n  - {{pattern: x, matches: ['{line}']}}\n"
        path.write_text(f"---\n{front}---\n{body}\n")
    (root / "documents").mkdir()
    (root / "documents" / "guide.md").write_text(GUIDE)
    return Sources(root / "knowledge", root / "documents")


@pytest.fixture(scope="session")
def sources(tmp_path_factory) -> Sources:
    return write_sources(tmp_path_factory.mktemp("sources"))


@pytest.fixture
def same_sources(tmp_path) -> Sources:
    """Sources of the same content, free to change."""
    return write_sources(tmp_path)


@pytest.fixture(scope="session")
def built(tmp_path_factory, sources) -> Path:
    """A finished cache; tests that break things take a copy."""
    cache = tmp_path_factory.mktemp("cache")
    made = build(sources, cache)
    assert made.vectors, made.why
    return cache


@pytest.fixture
def cache(built, tmp_path) -> Path:
    """A copy of the finished cache."""
    return Path(shutil.copytree(built, tmp_path / "cache"))
