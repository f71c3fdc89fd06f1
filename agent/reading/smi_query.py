"""`nvidia-smi --query-gpu` on this machine: for drivers whose XML cannot be read. Fields vary by driver."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from . import smi
from .command_output import output_lines
from .smi import Reading

if TYPE_CHECKING:
    from ..shell import Completed
    from ..workspace import Workspace

FIELDS = (
    "index", "name", "pci.bus_id", "memory.total", "memory.used", "memory.reserved", "utilization.gpu",
    "temperature.gpu", "power.draw", "enforced.power.limit", "power.default_limit", "clocks.current.sm",
    "clocks.max.sm", "clocks_event_reasons.hw_slowdown", "clocks_event_reasons.hw_thermal_slowdown",
    "clocks_event_reasons.hw_power_brake_slowdown", "clocks_event_reasons.sw_thermal_slowdown",
    "ecc.errors.uncorrected.volatile.total", "ecc.errors.uncorrected.aggregate.total", "retired_pages.pending",
    "pcie.link.width.current", "pcie.link.width.max", "pcie.link.gen.current", "pcie.link.gen.max", "mig.mode.current",
    "persistence_mode", "gpu_recovery_action",
)  # fmt: skip
TRIES = 8  # fields an older driver may not know, one refusal each
_UNKNOWN = re.compile(r'Field "(?P<field>[\w.]+)" is not a valid field')


def query(ws: Workspace, seconds: float) -> tuple[Completed | None, list[Reading]]:
    """Ask for all fields, without those that the driver says it does not know; None where it gives no answer."""
    fields: list[str] = list(FIELDS)
    for _ in range(TRIES):
        done = ws.shell(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"], seconds)
        unknown = _UNKNOWN.search(done.stdout + done.stderr)
        if done.code == 0 or not unknown or unknown["field"] not in fields:
            break
        fields.remove(unknown["field"])
        fields += [f"clocks_throttle_reasons.{n}" for p, _, n in [unknown["field"].partition(".")] if "event" in p]
    else:
        return None, []
    if done.code != 0:
        return None, []
    header = next(output_lines(f"--query-gpu={','.join(fields)}"))
    return done, [r for r in smi.readings([header, *output_lines(done.stdout)]) if r.line is not header]
