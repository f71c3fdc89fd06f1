"""Look at InfiniBand and RoCE ports: `python -m traindoctor.agent.jobs.probes.ib [SECONDS] [ROOT]`, one fact a line.

Error counters are read twice, so many seconds apart: old values prove nothing, values that rise do. A machine without
ports is answered at once. ROOT is where the kernel shows the devices.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

DEVICES = Path("/sys/class/infiniband")
COUNTERS = (
    "symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors", "port_rcv_remote_physical_errors",
    "local_link_integrity_errors", "excessive_buffer_overrun_errors", "port_xmit_discards", "out_of_sequence",
    "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "rx_icrc_encapsulated", "roce_adp_retrans",
)  # fmt: skip


def say(**what: object) -> None:
    """One line, at once."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def read(path: Path) -> str:
    """One value; empty where it is not there."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def counters(port: Path) -> dict[str, int]:
    """The counters a port has, from both of its folders."""
    found = {}
    for name in COUNTERS:
        for folder in ("counters", "hw_counters"):
            if (value := read(port / folder / name)).isdigit():
                found[name] = int(value)
    return found


def main(arguments: list[str]) -> int:
    """Exit code 0 also where there is no port: that is an answer."""
    wait = float(arguments[0]) if arguments else 1.0
    root = Path(arguments[1]) if len(arguments) > 1 else DEVICES
    ports = sorted(root.glob("*/ports/*")) if root.is_dir() else []
    say(ports=len(ports))
    before = {port: counters(port) for port in ports}
    for port in ports:
        say(port=f"{port.parents[1].name}/{port.name}", sm_lid=read(port / "sm_lid"),
            **{k: read(port / k) for k in ("state", "phys_state", "rate", "link_layer", "lid")})  # fmt: skip
    if ports:
        time.sleep(wait)
    for port in ports:
        after = counters(port)
        for name, value in after.items():
            if value or before[port].get(name):
                say(port=f"{port.parents[1].name}/{port.name}", counter=name, value=value,
                    rise=value - before[port].get(name, value), seconds=wait)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
