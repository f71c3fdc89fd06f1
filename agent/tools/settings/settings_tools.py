"""What the run was asked to do and what it says it did, as evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from ...core.types import Evidence, ToolResult
from ...reading.code.project import code_project, reached_settings
from ...reading.curves.anomalies.optimizer_curves import large_rates
from ...reading.curves.anomalies.variants import worse
from ...reading.curves.curves import curves
from ...reading.curves.side_by_side import counted_apart
from ...reading.logs.asked_limits import NotDone, not_done, times_not_applied
from ...reading.run.workspace import Workspace
from ...reading.settings.compatibility import renumbered
from ...reading.settings.contrasts import (
    Contrast,
    asked_against_used,
    between_variants,
    between_versions,
    continues,
    pairs,
)
from ...reading.settings.lint_rules import Lint
from ...reading.settings.lints import lints as all_lints
from ...reading.settings.settings import Setting, Settings, plain_value
from ...reading.settings.settings import read_settings as reading_of
from ...reading.settings.settings_map import settings_map
from ...reading.settings.sides import is_part
from ...reading.settings.versions import read_environment
from ..tool import clean, finding, not_applicable, tool

PER_NAME = 8  # lines told of one setting; a hundred rank logs say the same
OTHERS = 400
_ARGUMENTS = ("Config", "Arguments", "Args", "Params", "Options", "LLM")  # ends of objects that hold arguments
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
    told = [s for s in _capped(ws, reached_settings(ws)) if not name or s.name == name]
    evidence = [_evidence(ws, s) for s in told]
    if not name:
        evidence += list(_absences(ws, reading))
        for file, line, optimizer in large_rates(ws, reading):
            evidence.append(ws.cite(file, line, "settings.optimizer_of_large_rates", optimizer))
    summary = _summary(reading, told)
    text = "\n".join(
        [summary, *(_row(s) for s in told if s.known)][:SHOWN] + [f"could not read: {p}" for p in reading.problems[:20]]
    )
    return finding(summary, evidence, text) if evidence else clean(summary, text=text)


def _capped(ws: Workspace, reading: Settings) -> Iterator[Setting]:
    seen: Counter[tuple[str, bool, str]] = Counter()
    others = 0
    for s in reading.all:
        if s.known:
            seen[(s.name, s.used, s.file.run)] += 1
            if seen[(s.name, s.used, s.file.run)] <= PER_NAME or s.file.good:
                yield s
        elif others < OTHERS and _tells(ws, s):
            others += 1
            yield s


def _tells(ws: Workspace, s: Setting) -> bool:
    """Whether a key that the map does not know is one of a config in use, or was given or printed as an argument."""
    if s.file.good or s.used or s.place.format == "shell":
        return True
    if s.place.format == "python":
        return s.place.style == "keyword" and s.note.endswith(_ARGUMENTS)
    return ws.ran.part(s.file) in ("config", "unknown")


def _evidence(ws: Workspace, s: Setting) -> Evidence:
    side = "used." if s.used and s.known else "asked." if s.known else ""
    return ws.cite(s.file, s.line, f"settings.{side}{s.name}", plain_value(s.value))


def _absences(ws: Workspace, reading: Settings) -> Iterator[Evidence]:
    """Settings that nobody set, where a framework of the program reads them and something acts on them."""
    known = settings_map()
    present = {s.name for s in (*reading.all, *reading.open, *reading.unread) if not s.used and not s.file.good}
    mine = [
        (s, framework) for s in reading.sources
        if not s.file.good and s.format != "table" and s.asks and (framework := reading.own_framework(s))
    ]  # fmt: skip
    calls = reading.code.calls() if reading.code is not None else None
    several = _several(ws, reading)
    for c in known.canonical.values():
        if not c.absent or present & {c.name, *c.instead} or not present >= set(c.needs) or (c.several and not several):
            continue
        owners = [(s, f) for s, f in mine if known.owns(f, c.absent) and (f != "pytorch" or s.trains)]
        if owners and known.acted_on(c.name, owners[0][1], calls):
            default = known.default(c.name, owners[0][1])
            owners = [s for s, _ in owners]
            files = list(dict.fromkeys(s.file.name for s in owners))[:20]
            yield Evidence(
                key=f"settings.asked.{c.name}", value=default, kind="absent", searched=files, run=owners[0].file.run
            )


_PROCESSES = ("world_size", "processes_per_node", "nodes", "gpus_per_node", "data_parallel")


def _several(ws: Workspace, reading: Settings) -> bool:
    """Whether the run has, or may have, more than one process."""
    told = [s.value for s in (*reading.all, *reading.open) if s.name in _PROCESSES and not s.file.good]
    counts = [v for v in told if isinstance(v, int) and not isinstance(v, bool)]
    return any(v > 1 for v in counts) or len(counts) < len(told) or any(f.rank for f in ws.files)


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


# ----------
# The one flag that differs: variants against each other, good against bad, asked against used.

COMPARE_SHOWN = 40
COUNTED = 12  # pairs of runs whose logs are read beside each other


@tool(emits=("compare.*",), recall=True)
def compare_settings(ws: Workspace) -> ToolResult:
    """Compare settings and versions across variants, against the good run, and asked against used.

    Use when one variant works and another does not, when a healthy run is given with --good, or when a setting
    seems to have no effect. Both lines of every difference are cited; a difference that stands alone is told as
    compare.only_difference.
    """
    reading, environment = reading_of(ws), read_environment(ws)
    variants, used = (
        between_variants(ws, reading)[:COMPARE_SHOWN],
        list(asked_against_used(ws, reading))[:COMPARE_SHOWN],
    )
    versions = list(between_versions(environment))[:COMPARE_SHOWN]
    unmet, other_words = list(_unmet(ws))[:COMPARE_SHOWN], list(renumbered(ws))[:COMPARE_SHOWN]
    counts = list(_counted(ws, reading))
    if not (variants or counts or used or versions or unmet or other_words):
        many = {s.file.variant or s.file.run for s in reading.sources}
        return clean("no setting differs") if len(many) > 1 else not_applicable("nothing to compare settings with")
    evidence = [
        *(
            e
            for c in variants
            for e in _told(ws, "setting_differs", c, ("name", "a", "b", "where"), _standing(ws, reading, c))
        ),
        *(e for c in used for e in _told(ws, "asked_used_differs", c, ("name", "asked", "used"))),
        *(e for c in versions for e in _told(ws, "version_differs", c, ("name", "a", "b", "where"))),
        *_alone(ws, variants, versions),
        *counts,
    ]
    for u in unmet:
        said = {"name": u.name, "asked": u.asked, "done": u.done}
        evidence += [ws.cite(file, line, "compare.asked_not_done", said) for file, line in u.places]
    evidence += [ws.cite(f, line, "compare.vocabulary_differs", v.says) for v in other_words for f, line in v.places]
    rows = [f"{c.name}: {c.a} / {c.b} ({c.where})" for c in (*variants, *versions)]
    rows += [f"{c.name}: asked {c.a}, used {c.b} ({c.where})" for c in used]
    rows += [f"{u.name}: asked {u.asked:g}, done {'not so many' if u.done is None else u.done}" for u in unmet]
    rows += [v.says for v in other_words]
    rows += [f"{e.file}:{e.line} {e.text}" for e in counts]
    summary = f"{len(variants)} settings differ between variants, {len(used) + len(unmet)} are not as asked"
    summary += f", {len(versions)} versions differ"
    return finding(summary, evidence, "\n".join([summary, *rows]))


def _unmet(ws: Workspace) -> Iterator[NotDone]:
    """Wishes that were not met. Of several logs one may be but a part of the way."""
    several = len([f for f in ws.by_role("log") if not (f.good or is_part(f))]) > 1
    return (u for u in not_done(ws) if not (several and u.name == "epochs"))


def _counted(ws: Workspace, reading: Settings) -> Iterator[Evidence]:
    """What two runs say that they have, in one wording with other numbers; settings are told as such."""
    seen: set[str] = set()
    told = {(s.file.name, s.line.number) for s in reading.all if s.known}
    for pair in list(pairs(ws, reading))[:COUNTED]:
        logs = [[f for f in ws.by_role("log", "capture") if f.name in side.files] for side in pair]
        alike = [(a, b) for a in logs[0] for b in logs[1] if a.path.name == b.path.name]
        alike = alike or [(a, b) for a in logs[0][:1] for b in logs[1][:1]]
        for a, b in alike[:1]:
            for c in counted_apart(ws.lines(a), ws.lines(b)):
                if c.wording not in seen and not {(a.name, c.a.number), (b.name, c.b.number)} & told:
                    seen.add(c.wording)
                    where = f"{pair[0].label} / {pair[1].label}"
                    said = {"name": c.wording, "a": c.a.text.strip(), "b": c.b.text.strip(), "where": where}
                    yield from (ws.cite(f, line, "compare.counts_differ", said) for f, line in ((a, c.a), (b, c.b)))


def _standing(ws: Workspace, reading: Settings, c: Contrast) -> dict[str, str]:
    """Which of the two runs came out worse by their curves, or goes on from the other; empty where neither is known."""
    if c.sides is None:
        return {}
    if (later := continues(reading, *c.sides)) is not None:
        return {"continues": later.label}
    found = [[s for s in curves(ws).series if s.file.name in side.files] for side in c.sides]
    which = worse(found[0], found[1])
    return {} if which is None else {"worse": c.sides[which].label}


def _told(
    ws: Workspace, key: str, c: Contrast, names: tuple[str, ...], more: dict[str, str] | None = None
) -> Iterator[Evidence]:
    fields = dict(zip(names, (c.name, plain_value(c.a), plain_value(c.b), c.where), strict=False)) | (more or {})
    for file, line in dict.fromkeys(c.places):
        yield ws.cite(file, line, f"compare.{key}", fields)


def _alone(ws: Workspace, variants: list[Contrast], versions: list[Contrast]) -> Iterator[Evidence]:
    """The only thing that differs, told by its name; a config that is not here may hold more."""
    names = {c.name for c in (*variants, *versions)}
    unread = any(c.sides and c.sides[0].unread != c.sides[1].unread for c in variants)
    if len(names) == 1 and not unread:
        for c in (*variants, *versions):
            for file, line in dict.fromkeys(c.places):
                yield ws.cite(file, line, "compare.only_difference", c.name)


# ----------
# Settings that contradict each other, do nothing, or are known to bite; each with its lines. Facts, not verdicts.

CITED = 6  # lines of one lint that are told


@tool(emits=("lint.*",), recall=True)
def lint_settings(ws: Workspace) -> ToolResult:
    """Check the run's settings against each other and against what is known to bite.

    Arithmetic (batch sizes, parallel sizes, heads and layers, rollout constraints), settings without effect,
    folklore variables, missing clipping or warmup or checkpointing, processes against visible GPUs, duplicate
    keys, wrong types and typos. A lint is a fact with its lines; most are harmless on their own.
    """
    reading = reading_of(ws)
    if not reading.sources:
        return not_applicable("no settings to check")
    lints = [x for x in all_lints(ws, reached_settings(ws)) if not x.needs or code_project(ws)[0].run.was(x.needs)]
    if not lints:
        return clean(f"{len(reading.all)} settings, nothing stands out")
    evidence = [e for lint in lints for e in _evidence_lint(ws, lint)]
    rules = list(dict.fromkeys(lint.rule for lint in lints))
    summary = f"{len(rules)} kinds of notes on the settings: {', '.join(rules[:6])}"
    return finding(summary, evidence, "\n".join([summary, *(f"{x.rule}: {x.says}" for x in lints[:60])]))


def _evidence_lint(ws: Workspace, lint: Lint) -> Iterator[Evidence]:
    key = f"lint.{lint.rule}"
    if not lint.lines:
        yield Evidence(key=key, value=lint.says, kind="absent", searched=lint.searched[:20])
    for file, line in list(dict.fromkeys(lint.lines))[:CITED]:
        yield ws.cite(file, line, key, lint.says)
