"""The memory estimate against what training steps of transformers models allocate, each with its error in percent.

python benchmarks/memory_estimate.py [--only TEXT] [--table] [--explain]

A case builds a model from its configuration, takes two full steps and follows the bytes of every storage that is
alive; the peak of the second step is the measured value. Small cases run for real on the CPU; those above a billion
parameters run on fake tensors, which have the sizes and lifetimes of real ones and no content. The tensors of a step
are the same on a GPU; the allocator's rounding and library workspaces come on top and are not measured here.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from typing import Any

import _memory_ranks
import transformers.masking_utils
from _memory_steps import Case, cases, measure
from traindoctor.agent.reading.memory import memory_model
from traindoctor.agent.reading.memory.model_config import of_config


def estimated(case: Case, config: dict[str, Any]) -> memory_model.Estimate:
    """The estimate for the same step."""
    model = of_config(config)
    assert model is not None
    return memory_model.of(model, case.plan)


def main() -> None:
    """Measure, compare, print one JSON mapping (or a table for the documentation)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--table", action="store_true", help="a Markdown table instead of JSON")
    parser.add_argument("--explain", action="store_true", help="what lies in memory at the peak, to stderr")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    # asks a fake tensor for its content; no batch of these cases is packed
    transformers.masking_utils.find_packed_sequence_indices = lambda *_, **__: None
    found: dict[str, Any] = {}
    for case in [*cases(), *_memory_ranks.cases()]:
        if arguments.only not in case.name:
            continue
        if case.plan.world > 1:
            peak, at, config = _memory_ranks.measure(case)
        else:
            live, config = measure(case, arguments.explain)
            peak, at = live.peak, live.at
        estimate = estimated(case, config)
        error = 100 * (estimate.peak.total / peak - 1)
        found[case.name] = {
            "measured (MiB)": round(peak / 2**20), "estimated (MiB)": round(estimate.peak.total / 2**20),
            "error (%)": round(error, 1), "moment": estimate.peak.name, "how": "fake tensors" if case.fake else "run",
        }  # fmt: skip
        if arguments.explain:
            explain(case, at, estimate)
    worst = max((abs(v["error (%)"]) for v in found.values()), default=0.0)
    if arguments.table:
        sys.stdout.write(table(found))
    else:
        within = f"{worst:.1f} (at most 15{'' if worst <= 15 else ', MISSED'})"
        sys.stdout.write(json.dumps({**found, "largest error (%)": within}, indent=2) + "\n")


def table(found: dict[str, Any]) -> str:
    """Rows for the documentation."""
    head = "| step | how | measured, MiB | estimated, MiB | error | fullest moment |\n|---|---|---|---|---|---|\n"
    return head + "".join(
        f"| {name} | {v['how']} | {v['measured (MiB)']:,} | {v['estimated (MiB)']:,} | {v['error (%)']:+.1f} % | "
        f"{v['moment']} |\n"
        for name, v in found.items()
    )


def explain(case: Case, at: dict[str, int], estimate: memory_model.Estimate) -> None:
    """The largest tensors at the measured peak beside the estimate's moments."""
    sys.stderr.write(f"== {case.name}\n")
    for what, size in sorted(at.items(), key=lambda x: -x[1])[:24]:
        sys.stderr.write(f"  {size / 2**20:10.1f}  {what}\n")
    for moment in estimate.moments:
        parts = ", ".join(f"{k} {v / 2**20:.1f}" for k, v in moment.parts.items())
        sys.stderr.write(f"  {moment.name}: {moment.total / 2**20:.1f} = {parts}\n")


if __name__ == "__main__":
    main()
