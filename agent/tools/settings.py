"""What the run was asked to do and what it says it did, as evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from ..reading.asked_times import times_not_applied
from ..reading.large_rates import large_rates
from ..reading.settings import Setting, Settings, plain_value
from ..reading.settings import read_settings as reading_of
from ..reading.settings_map import settings_map
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

PER_NAME = 8  # lines told of one setting; a hundred rank logs say the same
OTHERS = 400
SHOWN = 60


@tool(emits=("settings.*",), recall=True)
def read_settings(
    ws: Workspace,
    name: Annotated[str, Field(description="only this canonical setting, e.g. learning_rate")] = "",
) -> ToolResult:
    """Read the run's settings from configs, scripts, code and logs, by canonical name.

    Use to see what was asked for (settings.asked.*: YAML, JSON, TOML, launch scripts, environment, Python code)
    and what the run printed that it used (settings.used.*). A setting that nobody set is told as absent, with the
    default that then applies. Keys outside the map are settings.other.*.
    """
    reading = reading_of(ws)
    if not reading.sources and not reading.problems:
        return not_applicable("no file holds settings")
    told = [s for s in _capped(reading) if not name or s.name == name]
    evidence = [_evidence(ws, s) for s in told]
    if not name:
        evidence += list(_absences(reading))
        for file, line, optimizer in large_rates(ws, reading):
            evidence.append(ws.cite(file, line, "settings.optimizer_of_large_rates", optimizer))
    summary = _summary(reading, told)
    text = "\n".join(
        [summary, *(_row(s) for s in told if s.known)][:SHOWN] + [f"could not read: {p}" for p in reading.problems[:20]]
    )
    return finding(summary, evidence, text) if evidence else clean(summary, text=text)


def _capped(reading: Settings) -> Iterator[Setting]:
    seen: Counter[tuple[str, bool, str]] = Counter()
    others = 0
    for s in reading.all:
        if s.known:
            seen[(s.name, s.used, s.file.run)] += 1
            if seen[(s.name, s.used, s.file.run)] <= PER_NAME or s.file.good:
                yield s
        elif others < OTHERS:
            others += 1
            yield s


def _evidence(ws: Workspace, s: Setting) -> Evidence:
    side = "used." if s.used and s.known else "asked." if s.known else ""
    return ws.cite(s.file, s.line, f"settings.{side}{s.name}", plain_value(s.value))


def _absences(reading: Settings) -> Iterator[Evidence]:
    """Settings that nobody set although a file of a framework that owns them was read."""
    known = settings_map()
    present = {s.name for s in reading.all if not s.used and not s.file.good}
    mine = [s for s in reading.sources if not s.file.good and s.format != "table" and s.asks]
    for c in known.canonical.values():
        if not c.absent or present & {c.name, *c.instead} or not present >= set(c.needs):
            continue
        owners = [
            s for s in mine
            if s.framework and known.owns(s.framework, c.absent) and (s.framework != "pytorch" or s.trains)
        ]  # fmt: skip
        if owners:
            default = known.default(c.name, owners[0].framework)
            files = list(dict.fromkeys(s.file.name for s in owners))[:20]
            yield Evidence(
                key=f"settings.asked.{c.name}", value=default, kind="absent", searched=files, run=owners[0].file.run
            )


def _summary(reading: Settings, told: list[Setting]) -> str:
    asked = sum(not s.used for s in told)
    frameworks = ", ".join(sorted(reading.frameworks)) or "no framework recognised"
    bad = f"; {len(reading.problems)} could not be read fully: {reading.problems[0]}" if reading.problems else ""
    files = len(reading.sources)
    return f"{asked} settings asked for and {len(told) - asked} printed, in {files} files ({frameworks}){bad}"


def _row(s: Setting) -> str:
    side = "used" if s.used else "asked"
    return f"{side} {s.name} = {s.value!r}  ({s.file.name}:{s.line.number} {s.key})"


@tool(emits=("timeout.not_applied",), recall=True)
def check_time_limits(ws: Workspace) -> ToolResult:
    """Compare time limits that were set with the limits that errors name.

    Use where a longer timeout was asked for and the job still gives up after the old time: the setting or variable
    did not reach the process that waits.
    """
    evidence = []
    for found in list(times_not_applied(ws))[:PER_NAME]:
        says = f"{found.asked}, but the limit that was in force: {found.told}"
        evidence.append(ws.cite(found.setting.file, found.setting.line, "timeout.not_applied", says))
        evidence.append(ws.cite(found.failure.file, found.failure.line, "timeout.not_applied", says))
    if not evidence:
        return clean("no error names another time limit than the ones that were set")
    return finding(str(evidence[0].value), evidence, "\n".join(f"{e.file}:{e.line} {e.value}" for e in evidence))
