"""Ask NVML about every GPU: `python -m traindoctor.agent.jobs.probes.nvml [PID ...]` prints one fact a line.

Fields are named and given in the units of `nvidia-smi --query-gpu` (MiB, W, MHz, degrees Celsius). Before each
question a line says what is being asked, so that a call that never returns can be named. The PIDs are the job's own:
a process on a GPU that neither is one of them nor descends from one is marked as foreign.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

REASONS = {
    0x1: "gpu_idle", 0x2: "applications_clocks_setting", 0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost",
    0x20: "sw_thermal_slowdown", 0x40: "hw_thermal_slowdown", 0x80: "hw_power_brake_slowdown",
}  # fmt: skip
RECOVERY = ("None", "GPU Reset", "Node Reboot", "Drain P2P", "Drain and Reset", "Recover IMEX", "Bus Reset",
            "System Reboot")  # fmt: skip
RECOVERY_FIELD = 230
FABRIC = {0: "Not Supported", 1: "Not Started", 2: "In Progress", 3: "Completed"}
UNKNOWN = {2, 3, 6, 13}  # invalid argument, not supported, not found, function not found: no answer, nothing bad
LOST = {15, 16}  # GPU is lost, reset required: further questions would only hang or fail
MIB = 1 << 20
LINKS = 18
PCI = Path("/sys/bus/pci/devices")
PROC = Path("/proc")

Facts = Iterator[tuple[str, Any]]


def say(**what: Any) -> None:
    """One line, at once."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def text(value: Any) -> str:
    """NVML's strings are bytes in some versions of its Python side."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def number(error: Exception) -> int:
    """NVML's own number of an error."""
    return int(getattr(error, "value", -1))


def cards_on_the_bus() -> int:
    """NVIDIA display and 3D controllers that the kernel sees on PCI."""
    found = 0
    for device in PCI.iterdir() if PCI.is_dir() else ():
        try:
            vendor, kind = (device / "vendor").read_text(), (device / "class").read_text()
        except OSError:
            continue
        found += vendor.strip() == "0x10de" and kind.startswith("0x03")
    return found


def memory(n: Any, h: Any) -> Facts:
    """Bytes as MiB; the newer call also knows what the driver keeps for itself."""
    try:
        info = n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2)
        yield "memory.reserved", info.reserved // MIB
    except (n.NVMLError, AttributeError, TypeError):
        info = n.nvmlDeviceGetMemoryInfo(h)
    yield "memory.total", info.total // MIB
    yield "memory.used", info.used // MIB
    yield "memory.free", info.free // MIB


def reasons(n: Any, h: Any) -> Facts:
    """Why the clocks are not higher."""
    bits = n.nvmlDeviceGetCurrentClocksThrottleReasons(h)
    for bit, name in REASONS.items():
        yield f"clocks_event_reasons.{name}", "Active" if bits & bit else "Not Active"


def rows(n: Any, h: Any) -> Facts:
    """Memory rows that were replaced by spare ones."""
    corrected, uncorrected, pending, failure = n.nvmlDeviceGetRemappedRows(h)
    yield "remapped_rows.correctable", corrected
    yield "remapped_rows.uncorrectable", uncorrected
    yield "remapped_rows.pending", "Yes" if pending else "No"
    yield "remapped_rows.failure", "Yes" if failure else "No"


def nvlink(n: Any, h: Any) -> Facts:
    """State and error counters of every link the card has."""
    names = ((0, "Replay"), (1, "Recovery"), (2, "CRC"))
    for link in range(LINKS):
        active = n.nvmlDeviceGetNvLinkState(h, link)
        yield f"nvlink.{link}.state", "Active" if active else "Inactive"
        for counter, name in names if active else ():
            try:
                count = n.nvmlDeviceGetNvLinkErrorCounter(h, link, counter)
            except n.NVMLError:
                continue
            yield f"nvlink.{link}.{name}", count


def recovery(n: Any, h: Any) -> Facts:
    """What the driver wants done with the card (driver 560 and newer)."""
    value = n.nvmlDeviceGetFieldValues(h, [RECOVERY_FIELD])[0]
    if value.nvmlReturn == 0 and value.value.uiVal < len(RECOVERY):
        yield "gpu_recovery_action", RECOVERY[value.value.uiVal]


def fabric(n: Any, h: Any) -> Facts:
    """Registration with the fabric manager, on machines with NVLink switches."""
    info = n.c_nvmlGpuFabricInfo_t()
    n.nvmlDeviceGetGpuFabricInfo(h, n.byref(info))
    if info.state:
        yield "fabric.state", FABRIC.get(info.state, info.state)
        yield "fabric.status", "Success" if not info.status else f"error {info.status}"


# what is asked with one call each: question, field, call, its further arguments, what is made of an answer
CALLS: tuple[tuple[str, str, str, tuple[int, ...], Callable[[Any], Any]], ...] = (
    ("load", "utilization.gpu", "UtilizationRates", (), lambda rates: rates.gpu),
    ("temperature", "temperature.gpu", "Temperature", (0,), int),
    ("power", "power.draw", "PowerUsage", (), lambda milliwatts: milliwatts / 1000),
    ("power", "enforced.power.limit", "EnforcedPowerLimit", (), lambda milliwatts: milliwatts / 1000),
    ("power", "power.default_limit", "PowerManagementDefaultLimit", (), lambda milliwatts: milliwatts / 1000),
    ("clocks", "clocks.current.sm", "ClockInfo", (1,), int),
    ("clocks", "clocks.max.sm", "MaxClockInfo", (1,), int),
    ("ecc", "ecc.mode.current", "EccMode", (), lambda modes: "Enabled" if modes[0] else "Disabled"),
    ("ecc", "ecc.errors.uncorrected.volatile.total", "TotalEccErrors", (1, 0), int),  # since the driver was loaded
    ("ecc", "ecc.errors.uncorrected.aggregate.total", "TotalEccErrors", (1, 1), int),  # ever
    ("ecc", "ecc.errors.corrected.volatile.total", "TotalEccErrors", (0, 0), int),
    ("ecc", "ecc.errors.corrected.aggregate.total", "TotalEccErrors", (0, 1), int),
    ("pages", "retired_pages.pending", "RetiredPagesPendingStatus", (), lambda pending: "Yes" if pending else "No"),
    ("pcie", "pcie.link.width.max", "MaxPcieLinkWidth", (), int),
    ("pcie", "pcie.link.width.current", "CurrPcieLinkWidth", (), int),
    ("pcie", "pcie.link.gen.max", "MaxPcieLinkGeneration", (), int),
    ("pcie", "pcie.link.gen.current", "CurrPcieLinkGeneration", (), int),
    ("pcie", "pcie.replays", "PcieReplayCounter", (), int),
    ("modes", "persistence_mode", "PersistenceMode", (), lambda mode: "Enabled" if mode else "Disabled"),
    ("modes", "mig.mode.current", "MigMode", (), lambda modes: "Enabled" if modes[0] else "Disabled"),
)


def called(question: str, n: Any, h: Any) -> Facts:
    """The answers to a question of `CALLS`; one that is refused ends it."""
    for name, field, call, arguments, made in CALLS:
        if name == question:
            yield field, made(getattr(n, f"nvmlDeviceGet{call}")(h, *arguments))


QUESTIONS: dict[str, Callable[[Any, Any], Facts]] = {
    "memory": memory, **{name: partial(called, name) for name, *_ in CALLS}, "reasons": reasons, "rows": rows,
    "nvlink": nvlink, "recovery": recovery, "fabric": fabric,
}  # fmt: skip


def ancestors(pid: int) -> Iterator[int]:
    """The process and those it descends from."""
    while pid > 1:
        yield pid
        try:
            pid = int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return


def processes(n: Any, h: Any, own: set[int], whole: bool) -> Facts:
    """Who holds memory. `whole`: all processes of the machine are in sight, so that a missing one has ended."""
    for found in n.nvmlDeviceGetComputeRunningProcesses(h):
        folder = PROC / str(found.pid)
        try:
            name = (folder / "comm").read_text().strip()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            name, state = "?", "gone" if whole and not folder.exists() else "?"
        used = (found.usedGpuMemory or 0) // MIB
        foreign = bool(own) and not own & set(ancestors(found.pid))
        what = f"{found.pid} {name} {used} MiB"
        yield "process", what
        if state in {"gone", "Z"}:
            yield "process.ended", what
        elif foreign:
            yield "process.foreign", what


def card(n: Any, gpu: int, own: set[int], whole: bool) -> None:
    """All questions to one card; a lost one is asked no further."""
    say(gpu=gpu, asking="handle")
    h = n.nvmlDeviceGetHandleByIndex(gpu)
    say(gpu=gpu, field="name", value=text(n.nvmlDeviceGetName(h)))
    say(gpu=gpu, field="pci.bus_id", value=text(n.nvmlDeviceGetPciInfo(h).busId))
    asked = [(name, partial(question, n, h)) for name, question in QUESTIONS.items()]
    for name, question in [*asked, ("processes", partial(processes, n, h, own, whole))]:
        say(gpu=gpu, asking=name)
        try:
            for field, value in question():
                say(gpu=gpu, field=field, value=value)
        except n.NVMLError as e:
            if number(e) in LOST:
                raise
            if number(e) not in UNKNOWN:
                say(gpu=gpu, field="error", value=str(e), code=number(e), asked=name)
        except AttributeError:
            continue  # this version of the library does not know the question


def main(arguments: list[str]) -> int:
    """Exit code 0 where NVML answered, 1 where it refused (the last line says why), 3 where it is not installed."""
    say(field="pci_cards", value=cards_on_the_bus())
    version = PROC / "driver" / "nvidia" / "version"
    if version.is_file():
        say(field="kernel_module", value=version.read_text().splitlines()[0])
    try:
        import pynvml as n
    except ImportError:
        say(field="no_binding", value="the Python side of NVML is not installed")
        return 3
    say(asking="init")
    try:
        n.nvmlInit()
        say(field="driver_version", value=text(n.nvmlSystemGetDriverVersion()))
        count = n.nvmlDeviceGetCount()
    except n.NVMLError as e:
        say(field="init_error", value=str(e), code=number(e))
        return 1
    say(field="count", value=count)
    own = {int(a) for a in arguments if a.isdigit()}
    kernel = PROC / "2" / "comm"  # kthreadd: only the outermost process namespace shows it
    whole = kernel.is_file() and kernel.read_text().strip() == "kthreadd"
    for gpu in range(count):
        try:
            card(n, gpu, own, whole)
        except n.NVMLError as e:
            say(gpu=gpu, field="error", value=str(e), code=number(e))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
