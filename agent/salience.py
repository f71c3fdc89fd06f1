"""Which of all evidence a report shows: what decided, where it broke, and what stands beside it."""

from __future__ import annotations

from collections.abc import Iterable

from .hypotheses import evidence_of
from .predicates import Facts
from .types import Evidence, Hypothesis

# What always bears on a failure, most telling first, with how many lines of each are shown.
CONTEXT: tuple[tuple[str, int], ...] = (
    ("error.first", 1),
    ("error.user_frame", 2),
    ("error.message", 3),
    ("error.native_crash", 1),
    ("job.failed", 1),
    ("job.hang_seconds", 1),
    ("job.ended_by", 1),
    ("job.died_first", 1),
    ("slurm.failed", 1),
    ("slurm.cancelled_by", 1),
    ("error.bare_kill", 1),
    ("memory.oom", 1),
    ("rank.silent_while_others_fail", 1),
    ("stack.rank_odd_one_out", 2),
    ("stack.process_odd_one_out", 1),
    ("stack.group", 4),
    ("stack.workers_stuck", 1),
    ("flight.mismatch", 1),
    ("flight.rank_behind", 1),
    ("flight.p2p_unpaired", 1),
    ("flight.missing_rank", 1),
    ("flight.frame", 2),
    ("replica.parameters_differ", 2),
    ("skew.slow_rank", 1),
    ("run.silent_end", 1),
    ("loss.first_nan_step", 1),
    ("loss.spike_step", 1),
    ("loss.equals_ln", 1),
    ("loss.zero", 1),
    ("eval.first_nan_step", 1),
)

# What a reader wants beside the proof, by the family of the verdict.
BESIDE: dict[str, tuple[tuple[str, int], ...]] = {
    "env": (("env.version.cuda_toolkit", 1), ("env.version.driver", 1), ("env.version.cuda", 1),
            ("env.version.torch", 1), ("env.gpu", 1), ("env.package_conflict", 2)),
    "dist": (("rank.counts_differ", 2), ("watchdog.timeout", 2), ("nccl.version", 1), ("env.version.nccl", 1),
             ("nccl.p2p", 1), ("nccl.connection", 1), ("rank.silent_done", 1)),
    "hw": (("gpu.xid", 4), ("gpu.ecc_uncorrectable", 1), ("gpu.remap_failure", 1), ("gpu.recovery_action", 1)),
    "loss": (("compare.only_difference", 2), ("compare.setting_differs", 2), ("variant.nonfinite_alone", 1),
             ("variant.finite", 1), ("variant.worst", 1), ("variant.best", 1), ("loss.initial_value", 2),
             ("loss.final_value", 1), ("grad_norm.max", 2), ("learning_rate.peak", 1)),
    "rl": (("compare.only_difference", 2), ("compare.setting_differs", 2), ("variant.worst", 1), ("variant.best", 1),
           ("settings.asked.temperature", 1), ("settings.used.temperature", 1), ("grad_norm.max", 2),
           ("reward.mean_last", 1)),
    "moe": (("aux_loss.value", 1), ("expert.max_over_mean", 1), ("settings.asked.moe_topk", 1),
            ("loss.final_value", 1)),
    "ckpt": (("compare.setting_differs", 2), ("resume.from_step", 1), ("loss.initial_value", 2),
             ("loss.final_value", 1)),
    "data": (("settings.asked.vocab_size", 1), ("settings.asked.sequence_length", 1), ("loss.initial_value", 1)),
    "memory": (("memory.frame", 2), ("memory.asked_bytes", 1), ("settings.asked.micro_batch_size", 1),
               ("settings.asked.sequence_length", 1), ("settings.asked.engine_memory_fraction", 1),
               ("settings.asked.processes_per_node", 1), ("settings.asked.activation_checkpointing", 1)),
    "speed": (("step_time.median", 2), ("data_time.fraction", 1), ("throughput.value", 1),
              ("compare.setting_differs", 2), ("settings.asked.dataloader_workers", 1), ("pace.slower_with", 2),
              ("pace.slower_ratio", 2), ("storage.data_on_network", 2), ("step_share.generation", 1)),
    "eval": (("variant.worst", 1), ("variant.best", 1), ("accuracy.value", 2)),
    "none": (("loss.initial_value", 1), ("loss.final_value", 1), ("grad_norm.max", 1)),
}  # fmt: skip


def beside(cause: str, facts: Facts) -> list[Evidence]:
    """Lines that belong to a verdict of this family: versions of the packages that fail, the variants, the ranks."""
    family = cause.split(".")[0]
    found = [e for key, most in BESIDE.get(family, ()) for e in facts.get(key)[:most] if e.kind == "line"]
    if family == "env":
        told = [e for k in ("error.library", "error.message", "error.frame") for e in facts.get(k)]
        said = " ".join(f"{e.value} {e.text}" for e in told).lower()
        named = [k for k in facts.by_key if k.startswith("env.version.") and _stem(k) in said]
        found = [*(facts.get(k)[0] for k in named if k != "env.version.python"), *found]
    return _distinct(found, 6)


def _stem(key: str) -> str:
    """`env.version.accelerate` -> `accelera`: the package as it shows in the names of its classes."""
    name = key.removeprefix("env.version.")
    return name[:8] if len(name) > 8 else name


def decisive(hypothesis: Hypothesis | None, facts: Facts, limit: int = 12) -> list[Evidence]:
    """What the leading hypothesis stands on, one piece per line of a file, most specific first."""
    if hypothesis is None:
        return []
    return _distinct(evidence_of(hypothesis, facts), limit)


def context(facts: Facts) -> list[Evidence]:
    """Where the run broke, whatever the verdict."""
    return _distinct((e for key, most in CONTEXT for e in facts.get(key)[:most] if e.kind != "asked"), 16)


def telling(facts: Facts) -> list[Evidence]:
    """Lines of small files that speak of a difference or a fault; they decide nothing."""
    return _distinct(facts.get("log.telling"), 8)


def cascade(facts: Facts, limit: int = 4) -> list[Evidence]:
    """Lines that only follow from the failure."""
    return _distinct(facts.get("error.cascade"), limit)


def _distinct(evidence: Iterable[Evidence], limit: int) -> list[Evidence]:
    out: dict[object, Evidence] = {}
    for e in evidence:
        if e.kind == "asked":
            continue
        # two tools may say the same of one file
        out.setdefault((e.file, e.line) if e.line else (e.key, str(e.value), e.file, e.member, e.text), e)
    return list(out.values())[:limit]
