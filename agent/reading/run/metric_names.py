"""What a label in a log measures: spellings from `knowledge/metrics.yaml`, prefixes and units taken into account."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache

from ...core.own_files import KNOWLEDGE, read_table

METRICS = KNOWLEDGE / "metrics.yaml"

_UNIT_IN_NAME = re.compile(r"[\[(][^\])]*[\])]?")
_NOT_WORD = re.compile(r"[^a-z0-9]+")
_TIME_METRICS = {"step_time", "data_time", "compute_time", "comm_time", "generation_time", "update_time"}
_MEMORY_METRICS = {"memory", "peak_memory", "host_memory"}
_BYTES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_EVAL_OF = {"loss": "eval_loss", "perplexity": "eval_perplexity", "accuracy": "eval_accuracy", "reward": "eval_reward",
            "success": "eval_accuracy"}  # fmt: skip


@dataclass(frozen=True)
class Meaning:
    """A canonical metric, and the factor that brings a bare number to seconds or bytes (None: unit unknown)."""

    metric: str
    factor: float = 1.0
    needs_step: bool = False


@dataclass(frozen=True)
class Vocabulary:
    """The data file, indexed."""

    spellings: dict[str, str]
    needs_step: frozenset[str]
    unread: frozenset[str]
    qualifiers: frozenset[str]
    train_prefixes: tuple[str, ...]
    eval_prefixes: tuple[str, ...]
    settings: dict[str, str]


@cache
def vocabulary() -> Vocabulary:
    """`knowledge/metrics.yaml`, read once."""
    data = read_table(METRICS)
    return Vocabulary(
        {normal(str(s)): name for name, spellings in data["metrics"].items() for s in spellings},
        frozenset(data["needs_step"]),
        frozenset(data["unread"]),
        frozenset(str(q) for q in data["qualifiers"]),
        tuple(data["train_prefixes"]),
        tuple(data["eval_prefixes"]),
        {normal(str(s)): name for name, spellings in data["settings"].items() for s in spellings},
    )


def normal(label: str) -> str:
    """Lower case, one `_` between words, units in brackets cut off: `elapsed time (ms)` -> `elapsed_time`."""
    return _NOT_WORD.sub("_", _UNIT_IN_NAME.sub(" ", label.replace("@", "_at_")).lower()).strip("_")


@lru_cache(maxsize=32_768)  # labels of a log that is followed for weeks are without number
def meaning(label: str, exact: bool = False) -> Meaning | None:
    """What `label` (the text before a number) measures, or None.

    Leading words that belong to the sentence and not to the name are dropped (`completed (loss`), unless `exact`
    (column names and dictionary keys are whole names).
    """
    if "--" in label:
        return None
    text = label[-80:]
    if "(" in text and ")" not in text:
        text = text.rpartition("(")[2]
    words = normal(text)
    metric = _lookup(words)
    if metric is None and not exact:
        parts = words.split("_")
        for cut in range(1, len(parts)):
            metric = _lookup("_".join(parts[cut:]))
            if metric is not None:
                if parts[cut - 1] in vocabulary().qualifiers or not _may_stand_alone(parts[cut:], metric):
                    return None
                break
    if metric is None:
        return None
    if metric == "data_time" and "%" in text:
        metric = "data_fraction"
    return Meaning(metric, _factor(metric, text), metric in vocabulary().needs_step)


def _may_stand_alone(words: list[str], metric: str) -> bool:
    # `time`, `data`, `it` as the tail of a sentence say nothing.
    return len(words) > 1 or words[0] not in {
        "time",
        "data",
        "it",
        "speed",
        "score",
        "return",
        "peak",
        "map",
        "ca",
        "ma",
        "success",
        "ratio",
    }


def _lookup(words: str) -> str | None:
    vocab = vocabulary()
    if not words:
        return None
    if words in vocab.spellings:
        return vocab.spellings[words]
    for prefix in vocab.eval_prefixes:
        if words.startswith(prefix + "_"):
            rest = _lookup(words[len(prefix) + 1 :])
            return _EVAL_OF.get(rest, rest if rest in {"step", "epoch"} else "eval_other") if rest else None
    for prefix in vocab.train_prefixes:
        if words.startswith(prefix + "_") and words[len(prefix) + 1 :] in vocab.spellings:
            return vocab.spellings[words[len(prefix) + 1 :]]
    return None


def _factor(metric: str, label: str) -> float:
    low = label.lower()
    if metric in _TIME_METRICS:
        return 1e-3 if "(ms" in low or low.rstrip(" :='\"").endswith(("_ms", " ms", "/ms")) else 1.0
    if metric in _MEMORY_METRICS:
        found = re.search(r"(?:[_(\[ /]|^)([kmgt])i?b\b", low)
        return float(_BYTES[found[1]]) if found else 1.0
    return 1.0


def unit_factor(metric: str, unit: str) -> float | None:
    """Factor for a unit printed right after the number (`512.34ms`, `40.12GiB`); None when it changes nothing."""
    low = unit.lower()
    if metric in _TIME_METRICS:
        return {"ms": 1e-3, "us": 1e-6, "s": 1.0, "m": 60.0, "min": 60.0}.get(low)
    if metric in _MEMORY_METRICS and low[:1] in _BYTES and low.endswith("b"):
        return float(_BYTES[low[0]])
    return None


def setting(name: str) -> str | None:
    """Canonical setting behind a column or key, or None."""
    words = normal(name)
    known = vocabulary().settings
    return known.get(words) or known.get(words.rpartition(".")[2])
