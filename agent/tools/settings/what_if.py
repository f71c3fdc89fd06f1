"""One setting changed on paper: which conflicts come and go, what memory it takes, who recommends it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from ...core.errors import ToolError
from ...core.playbook import Fix, Playbook, SettingChange, playbooks
from ...core.types import Evidence, ToolResult
from ...reading.memory.memory_changes import recorded
from ...reading.memory.memory_model import Estimate, as_it_would_be, fits_in_words, gib, largest, needed
from ...reading.memory.memory_plan import Plan, plan_of
from ...reading.memory.model_config import models_of
from ...reading.run.workspace import Workspace
from ...reading.settings import catalogue
from ...reading.settings.changed_settings import Change, Supposed, changed, named_change
from ...reading.settings.lint_rules import Lint
from ...reading.settings.lints import lints
from ...reading.settings.settings import Settings, read_settings
from ...reading.settings.settings_map import settings_map
from ..tool import clean, finding, tool

SHOWN = 6  # items of one kind; counts are exact


@dataclass(frozen=True)
class _Case:
    """A run as it is and as it would be."""

    ws: Workspace
    change: Change
    reading: Settings

    @cached_property
    def supposed(self) -> Workspace:
        return Supposed(self.ws, changed(self.reading, self.change))

    @property
    def words(self) -> str:
        return f"{self.change.name} = {self.change.after}"


@tool(emits=("what_if.*",))
def what_if(
    ws: Workspace,
    setting: Annotated[
        str, Field(description="setting as doctor or any framework names it: precision, lr, --zero-stage")
    ],
    value: Annotated[
        str, Field(description="the new value: bf16, 4, true, off; or half, double, x2, /4 of what is set")
    ],
) -> ToolResult:
    """Change one setting on paper and say what follows

    Use for "what if I use bf16", "would ZeRO 3 help", before a repair is recommended: which conflicts between settings
    appear and which go, what memory a step is estimated to take before and after, what becomes of the global batch,
    which playbooks recommend this very change, and what is known of the setting. Nothing is written or run.
    """
    known, variable = list(_known(setting, value)), list(_variable(setting, value))
    unread = [e for e in known if e.key == "what_if.folklore" and setting.isupper()]
    try:
        case = _Case(ws, named_change(ws, setting, value), read_settings(ws))
    except ToolError:
        if not variable and not unread:
            raise
        case = None
    if case is None or unread:  # a name that nothing reads changes nothing; a variable is no setting of the map
        evidence = [*unread, *variable]
        return finding(f"{setting}={value}: {evidence[0].text[:200]}", evidence, _text(evidence))
    evidence = [*_now(case), *_conflicts(case), *_memory(case), *_batch(case)]
    advised = [*_advised(case.change), *variable]
    evidence += [*advised[:SHOWN], *known]
    said = _summary(case, evidence, len(advised))
    more = [f"... and {len(advised) - SHOWN} more repairs that make this change"] if advised[SHOWN:] else []
    text = "\n".join([said, _text(evidence), *more])
    return finding(said, evidence, text) if evidence else clean(said, evidence, text)


def _text(evidence: list[Evidence]) -> str:
    rows = []
    for e in evidence:
        where = f"{e.file}:{e.line}" if e.line else e.file or ""
        text = e.text.strip()[:600] or f"nowhere in {', '.join((e.searched or [])[:4])}; the default then: {e.value}"
        rows.append(f"{e.key.removeprefix('what_if.').replace('_', ' ')}: {text}" + f" [{where}]" * bool(where))
    return "\n".join(rows)


def _summary(case: _Case, evidence: list[Evidence], advised: int) -> str:
    parts = [f"{case.words} ({_held(case)})"]
    if case.change.before == case.change.after and case.change.before is not None:
        parts.append("that is what the run has")
    come, go = (sum(e.key == f"what_if.{key}" for e in evidence) for key in ("new_conflict", "conflict_gone"))
    parts += [f"{come} conflict{'s appear' if come > 1 else ' appears'}"] if come else []
    parts += [f"{go} conflict{'s go' if go > 1 else ' goes'}"] if go else []
    parts += [] if come or go else ["no conflict between settings comes or goes"]
    parts += [e.text for e in evidence if e.key == "what_if.memory"][:1]
    parts.append(f"{advised} repair{'s' * (advised != 1)} of playbooks make{'s' * (advised == 1)} this change")
    return "; ".join(parts)


def _held(case: _Case) -> str:
    """What holds now, in words; files may disagree."""
    if case.change.before is not None:
        return f"now {case.change.before}"
    values = dict.fromkeys(str(s.value) for s in case.reading.asked(case.change.name) if not s.file.good)
    return f"now {' and '.join(list(values)[:3])} in different places" if values else "now not set"


def _now(case: _Case) -> Iterator[Evidence]:
    """Each line where the run sets it now, or that it sets it nowhere."""
    found = [s for s in case.reading.all if s.name in case.change.all and not s.file.good and s.line.number]
    told: set[tuple[str, int]] = set()
    for s in sorted(found, key=lambda s: s.used):
        if (s.file.name, s.line.number) not in told and len(told) < SHOWN:
            told.add((s.file.name, s.line.number))
            yield case.ws.cite(s.file, s.line, "what_if.set_now", s.value)
    if not found:
        sources = [s for s in case.reading.sources if not s.file.good]
        defaults = (settings_map().default(case.change.name, s.framework) for s in sources)
        default = next((d for d in defaults if d is not None), None)
        names = [s.file.name for s in sources][:20] or [case.change.name]
        yield Evidence(key="what_if.set_now", value=default, kind="absent", searched=names)


def _conflicts(case: _Case) -> Iterator[Evidence]:
    """Lints that the change brings and takes; one that only tells other numbers is still there."""
    if not case.reading.sources:
        return
    before = {(x.rule, x.says): x for x in lints(case.ws, case.reading)}
    after = {(x.rule, x.says): x for x in lints(case.supposed, read_settings(case.supposed))}
    came = [x for at, x in after.items() if at not in before]
    went = [x for at, x in before.items() if at not in after]
    both = {x.rule for x in came} & {x.rule for x in went}
    for x in came[: 2 * SHOWN]:
        key = "still_conflict" if x.rule in both else "new_conflict"
        yield _stated(f"what_if.{key}", x.rule, f"with {case.words}: {x.says}", "lint.yaml", x.rule)
        yield from _beside(case, x)
    for x in [x for x in went if x.rule not in both][:SHOWN]:
        yield _stated("what_if.conflict_gone", x.rule, f"with {case.words} no longer: {x.says}", "lint.yaml", x.rule)
        yield from _beside(case, x)


def _beside(case: _Case, lint: Lint) -> Iterator[Evidence]:
    for file, line in [(f, x) for f, x in dict.fromkeys(lint.lines) if x.number][:3]:
        yield case.ws.cite(file, line, "what_if.conflict_line", lint.rule)


def _memory(case: _Case) -> Iterator[Evidence]:
    """The estimate of a step before and after, for the largest model that the run describes."""
    found = largest(models_of(case.ws))
    family = found.model.family if found else ""
    try:
        estimates = as_it_would_be(case.ws, case.supposed)
    except ValueError as e:  # sizes that cannot be, such as more stages than layers
        yield _stated("what_if.memory_unknown", str(e), f"memory cannot be estimated: {e}", "models.yaml", family)
        return
    if estimates is None:
        return
    yield _stated("what_if.memory", round(estimates[1].peak.total), _told(case, *estimates), "models.yaml", family)
    if assumed := plan_of(case.supposed).assumed:
        text = "assumed for the estimate, as no file says: " + ", ".join(assumed)
        yield _stated("what_if.memory_assumed", assumed, text, "models.yaml", family)


def _told(case: _Case, before: Estimate, after: Estimate) -> str:
    capacity = recorded(case.ws)
    said = f"the estimated memory stays at {gib(before.peak.total)} a GPU: the setting does not enter it"
    if before.plan != after.plan:
        said = f"estimated peak {gib(before.peak.total)} before, {gib(after.peak.total)} after, a GPU"
        said += f" (mostly {before.peak.largest}, then {after.peak.largest})"
    if capacity is None:
        return said + "; the device's memory is not known"
    return f"{said}; {gib(needed(after))} with overhead {fits_in_words(after, capacity.bytes)}"


def _batch(case: _Case) -> Iterator[Evidence]:
    """Sequences and tokens of an optimizer step before and after, by micro-batch, accumulation and replicas."""
    (whole, said), (then, said_then) = (_sizes(plan_of(ws).plan) for ws in (case.ws, case.supposed))
    if said == said_then:
        return
    text = f"an optimizer step takes {said} before and {said_then} after"
    if "micro-batch 1" in plan_of(case.ws).assumed:
        text += " (micro-batch 1 is assumed: no file says it, or several disagree)"
    yield _stated("what_if.batch", then, text, "settings.yaml", case.change.name)
    rate = next((s for s in case.reading.asked("learning_rate") if not s.file.good and s.line.number), None)
    if whole != then and rate is not None:
        yield case.ws.cite(rate.file, rate.line, "what_if.rate_of_former_batch", rate.value)


def _sizes(plan: Plan) -> tuple[int, str]:
    replicas = max(1, plan.world // (plan.tensor * plan.pipeline * plan.context))
    whole = plan.micro_batch * plan.accumulation * replicas
    how = f"{plan.micro_batch} x accumulation {plan.accumulation} x {replicas} replicas"
    return whole, f"{how} = {whole} sequences of {plan.sequence} tokens"


def _advised(change: Change) -> Iterator[Evidence]:
    """Repairs of playbooks that make this very change."""
    for book in playbooks():
        for fix in book.fixes:
            if any(_agrees(wanted, change, name) for name, wanted in fix.settings.items() if name in change.all):
                yield _repair(book, fix)


def _agrees(wanted: SettingChange | bool | int | float | str, change: Change, name: str) -> bool:
    """Whether a repair's change of a setting is the one supposed: the same value, or the same direction."""
    after = change.all[name]
    if not isinstance(wanted, SettingChange):
        return _same(wanted, after)
    if wanted.remove:
        return after in (None, False)
    if wanted.multiply is None:
        return _same(wanted.set, after)
    now = change.before
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (now, after))
    return name == change.name and numbers and now != after and (after < now) == (wanted.multiply < 1)


def _same(one: Any, other: Any) -> bool:
    return one == other or str(one).lower() == str(other).lower()


def _variable(setting: str, value: str) -> Iterator[Evidence]:
    """Repairs that set an environment variable so."""
    for book in playbooks():
        for fix in book.fixes:
            if any(k.lower() == setting.lower() and _same(v, value) for k, v in fix.env.items()):
                yield _repair(book, fix)


def _repair(book: Playbook, fix: Fix) -> Evidence:
    text = f"{book.cause} ({book.title}): {fix.title}. {fix.why or fix.text}".strip()
    return Evidence(
        key="what_if.recommended_for", value=book.cause, kind="document", file=f"playbook {book.slug}",
        member=fix.title, text=text[:600],
    )  # fmt: skip


def _known(setting: str, value: str) -> Iterator[Evidence]:
    """What folklore, the settings map and the glossary say of the words used."""
    for entry in catalogue.entries(f"{setting[:100]} {value[:60]}")[:3]:
        key = "what_if.folklore" if entry.document == "folklore.yaml" else "what_if.known"
        yield _stated(key, entry.term, entry.text, entry.document, entry.term)


def _stated(key: str, value: Any, text: str, document: str, member: str) -> Evidence:
    """What is computed or known rather than observed: it bears out an answer, never a diagnosis."""
    return Evidence(key=key, value=value, kind="document", file=f"knowledge/{document}", member=member, text=text)
