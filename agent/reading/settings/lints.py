"""All lints of a run's settings: conditions and folklore as data has them, and what is computed. Facts, not verdicts.

lints(workspace, read_settings(workspace))   -> [Lint, ...], one for each rule and text
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ...core.own_files import KNOWLEDGE, read_table
from ..run.program.commands import Command, sends
from ..run.what_ran import Ran
from .lint_rules import Lint, arithmetic_lints, lines_of, lint_at, named, place_lints, whole
from .settings import Setting, Settings, Source, is_open, owners_of
from .settings_map import settings_map

if TYPE_CHECKING:
    from ..run.workspace import Workspace


# ----------
# Lints of single values: their type and range, typos, templates of another family, lengths against the data.


_STATISTIC = re.compile(
    r"(?i)\b(tokens?|characters?|chars|length|len)\b[^\d\n]{0,60}?\b(?:about |~|≈)?(\d[\d,_]{2,9})\b|"
    r"\b(\d[\d,_]{2,9}) (tokens|characters|chars)\b"
)
_TYPICAL = re.compile(
    r"(?i)per (?:row|sample|example|record|prompt)|typical|mean|average|avg|median|max|longest|p9\d|min"
)
STARTS = 8  # starts or variants of a folder that are looked at one by one
_POLICIES = {"slime", "verl", "openrlhf", "trl", "nemo_rl"}
# Real keys of frameworks that look like a known one with a typo.
_REAL = {"model_type", "data_path", "log_dir", "optimizers", "lora_config"}


def value_lints(ws: Workspace, reading: Settings) -> Iterator[Lint]:
    """All lints of this module."""
    mine = [s for s in reading.all if not s.file.good]
    yield from _types(mine)
    yield from _typos([s for s in mine if reading.code is None or not reading.code.declares(s.key)])
    yield from _templates(mine)
    yield from _temperatures(mine)
    yield from _lengths(ws, mine)
    for s in reading.unread:
        if s.known and s.place.style == "flag" and not s.file.good:
            yield lint_at("ignored_setting", f"nothing that ran reads {s.key} = {s.value}, which the program takes", s)
    for s, read in reading.instead:
        if not s.file.good:
            says = f"nothing that ran reads {s.key} = {s.value}; {read.key} is read, {read.value} unless set"
            yield lint_at("ignored_setting", says, s, read)


def _types(mine: list[Setting]) -> Iterator[Lint]:
    known = settings_map().canonical
    for s in mine:
        if s.used or not s.known or not s.own or s.place.style in ("table", "note"):
            continue
        kind = known[s.name].type
        number = s.value if isinstance(s.value, int | float) and not isinstance(s.value, bool) else None
        if (
            kind in ("int", "float", "seconds")
            and isinstance(s.value, str)
            and s.value != "auto"
            and not re.search(r"[${}<(]", s.value)
            and not (s.place.format == "python" and re.fullmatch(r"[A-Za-z_][\w.]*", s.value))  # a name, not its value
        ):
            yield lint_at("wrong_type", f"{s.key} is {s.value!r}, not a number", s)
        elif (
            s.note == "quoted"
            and number is not None
            and s.place.format in ("yaml", "json")
            and kind in ("int", "float")
        ):
            yield lint_at("wrong_type", f"{s.key} is a number in quotes", s)
        elif number is not None and (low := known[s.name].low) is not None and number < low and number != -1:
            yield lint_at("wrong_type", f"{s.key} is {s.value}, below {low:g}", s)
        elif number is not None and (high := known[s.name].high) is not None and number > high:
            yield lint_at("wrong_type", f"{s.key} is {s.value}, above {high:g}", s)


@cache
def _deletions() -> dict[str, str]:
    """Every known spelling of eight letters or more with one letter left out."""
    out: dict[str, str] = {}
    for c in settings_map().canonical.values():
        for spellings in c.spelled.values():
            for spelling in spellings:
                word = spelling.segments[-1].lstrip("=")
                if len(word) >= 8:
                    out[word] = word
                    for i in range(len(word)):
                        out.setdefault(word[:i] + word[i + 1 :], word)
    return out


def _typos(mine: list[Setting]) -> Iterator[Lint]:
    """Unknown keys one letter away from a known one."""
    near = _deletions()
    for s in mine:
        word = s.name.rpartition(".")[2]
        if (
            s.known
            or s.used
            or len(word) < 8
            or s.place.style in ("environment", "keyword")
            or word in _REAL
            or near.get(word) == word  # the map knows it, elsewhere or with another type of value
            or not s.framework
        ):
            continue
        hits = {near.get(word)} | {near.get(word[:i] + word[i + 1 :]) for i in range(len(word))}
        found = next(
            (h for h in hits if h and h != word and abs(len(h) - len(word)) <= 1 and not _same_stem(h, word)), None
        )
        if found:
            yield lint_at("unknown_setting", f"{s.key} is not known; {found} is", s)


def _same_stem(a: str, b: str) -> bool:
    """`eval_step` and `eval_steps`, `top_k1` and `top_k2` are families, not typos."""
    return a.rstrip("s0123456789") == b.rstrip("s0123456789")


def _templates(mine: list[Setting]) -> Iterator[Lint]:
    """A chat template that belongs to another family of models."""
    models = [s for s in named(mine, "model") if isinstance(s.value, str)]
    for template in (*named(mine, "chat_template"), *named(mine, "conversation_version")):
        written = str(template.value).lower()
        theirs = {f for f, (_m, t) in settings_map().families.items() if re.search(t, written)}
        for model in models[:3]:
            ours = {f for f, (m, _t) in settings_map().families.items() if re.search(m, str(model.value).lower())}
            if theirs and ours and not theirs & ours:
                says = f"template {template.value} is the format of another family of models than {model.value}"
                yield lint_at("tokenizer_template_mismatch", says, template, model)
                return


def _temperatures(mine: list[Setting]) -> Iterator[Lint]:
    asked = [
        s
        for s in named(mine, "temperature")
        if isinstance(s.value, int | float) and "val" not in s.key and "eval" not in s.key
    ]
    other = next((s for s in asked if s.value != asked[0].value and s.file == asked[0].file), None)
    if other:
        yield lint_at("temperature_mismatch", f"temperatures {asked[0].value} and {other.value}", asked[0], other)
    for s in (*named(mine, "top_p"), *named(mine, "top_k")):
        cut = isinstance(s.value, int | float) and (0 < s.value < 1 if s.name == "top_p" else s.value > 0)
        if cut and s.framework in _POLICIES and not re.search(r"(?i)val|eval|test", s.key):
            yield lint_at(
                "rollout_sampling_cut", f"rollouts are sampled with {s.key} = {s.value}, not from all tokens", s
            )


def _lengths(ws: Workspace, mine: list[Setting]) -> Iterator[Lint]:
    """A length limit below what the notes about the data say, or below prompt and answer together."""
    limits = [(s, n) for s in named(mine, "sequence_length") if (n := whole(s)) and n > 16]
    if not limits:
        return
    limit, tokens = limits[0]
    parts = [
        (s, n) for name in ("max_prompt_length", "max_new_tokens") for s in named(mine, name)[:1] if (n := whole(s))
    ]
    if len(parts) == 2 and sum(n for _s, n in parts) > tokens:
        says = f"prompt and answer together may take {sum(n for _s, n in parts)} tokens, the limit is {tokens}"
        yield lint_at("max_length_shorter_than_data", says, limit, parts[0][0], parts[1][0])
    for file in ws.files:
        if (
            file.good
            or file.size > 20_000
            or file.role in ("code", "log", "checkpoint", "config")
            or file.path.suffix not in (".txt", ".md", "")
        ):
            continue
        for line in lines_of(ws, file)[:200]:
            said = _statistic(line.text)
            if said and said > tokens:
                says = f"the data is described with about {said} tokens a record, the limit is {tokens}"
                yield Lint("max_length_shorter_than_data", says, [(limit.file, limit.line), (file, line)])
                return


def _statistic(text: str) -> int | None:
    """Tokens that a line about the data names, four characters counting as one."""
    m = _STATISTIC.search(text[:400])
    if not m or not _TYPICAL.search(text):
        return None
    unit, number = (m[1] or m[4]).lower(), _digits(m[2] or m[3])
    return number // 4 if unit.startswith("char") else number


def _digits(text: Any) -> int:
    return int(re.sub(r"[,_]", "", str(text)))


# ----------


def lints(ws: Workspace, reading: Settings) -> Iterator[Lint]:
    """All lints of a reading, which need not be the run's own: `what_if` passes one with a setting changed."""
    found: dict[tuple[str, str], Lint] = {}
    for part in parted(reading, ws.ran):
        computed = (*arithmetic_lints(part), *place_lints(ws, part), *value_lints(ws, part))
        here: set[tuple[str, str]] = set()
        for lint in (*_conditions(part), *_folklore(part), *computed):
            key = (lint.rule, lint.says)
            if key not in here:
                here.add(key)
                found.setdefault(key, replace(lint, lines=[])).lines.extend(lint.lines)
    yield from found.values()


def parted(reading: Settings, ran: Ran) -> list[Settings]:
    """The settings of each start of each program, or of each variant: what another was given is not among them."""
    starts = [
        (n, c) for n, p in enumerate(ran.programs) for c in (*dict.fromkeys(p.commands), *[None][: not p.commands])
    ]
    variants = {s.file.variant for s in reading.sources if s.file.variant and not s.file.good}
    if 1 < len(starts) <= STARTS:
        mine = _starts_of(starts, ran)
        return [_part(reading, lambda s, n=n: n in mine(s)) for n in range(len(starts))]
    if 1 < len(variants) <= STARTS:
        return [_part(reading, lambda s, v=v: s.file.variant in (None, v)) for v in sorted(variants)]
    return [reading]


def _part(reading: Settings, holds: Callable[[Setting | Source], bool]) -> Settings:
    kept = {name: [s for s in getattr(reading, name) if holds(s)] for name in ("all", "open", "unread", "sources")}
    return replace(reading, **kept, instead=[pair for pair in reading.instead if all(map(holds, pair))])


def _starts_of(starts: list[tuple[int, Command | None]], ran: Ran) -> Callable[[Setting | Source], set[int]]:
    """Tells which starts a setting or a file of some may belong to."""
    owners = owners_of(ran)

    def of(s: Setting | Source) -> set[int]:
        name = s.file.name
        line = s.line.number if isinstance(s, Setting) and s.place.style in ("flag", "override") else 0
        before = [c.line for _, c in starts if c and c.file == name and c.line <= line]
        programs = owners(s)
        mine = {i for i, (n, _) in enumerate(starts) if n in programs} or set(range(len(starts)))
        ways: tuple[Callable[[Command], bool], ...] = (
            lambda c: c.file == name and c.line == max(before, default=0),
            lambda c: not before and c.file == name,
            lambda c: any(word.endswith(name) or name.endswith(f"/{word.lstrip('@./')}") for word in c.arguments),
            lambda c: sends(c, name),
        )
        for way in ways:
            if found := {i for i in mine if (c := starts[i][1]) is not None and way(c)}:
                return found
        return mine

    return of


@cache
def _data(name: str) -> Any:
    return read_table(KNOWLEDGE / name)


def _conditions(reading: Settings) -> Iterator[Lint]:
    mine = [
        (s, framework) for s in reading.sources
        if not s.file.good and s.asks and (framework := reading.own_framework(s))
    ]  # fmt: skip
    asking = [s.file.name for s in reading.sources if not s.file.good and s.asks]
    by_name: dict[str, list[Setting]] = {}
    for s in (*reading.all, *reading.open):  # the latter count as set, to whatever it is
        if not s.file.good:
            by_name.setdefault(s.name, []).append(s)
            if not s.known:
                by_name.setdefault("other." + s.name.rpartition(".")[2], []).append(s)
    for rule, cases in _data("lint.yaml").items():
        for case in cases:
            owners = [s.file.name for s, framework in mine if settings_map().owns(framework, case.get("of", ()))]
            if "of" in case and not owners:
                continue
            if any(settings_map().owns(framework, case.get("not_of", ())) for _, framework in mine):
                continue
            if lint := _case(rule, case, by_name, owners or asking):
                yield lint


def _case(rule: str, case: dict[str, Any], by_name: dict[str, list[Setting]], searched: list[str]) -> Lint | None:
    cited: list[Setting] = []
    for condition in case["when"]:
        found = _meets(condition, by_name)
        if found is None:
            return None
        cited += found
    if any(_meets(condition, by_name) is not None for condition in case.get("unless", ())):
        return None
    values = {s.name: s.value for s in reversed(cited)}
    says = re.sub(r"\{(\w+)\}", lambda m: str(values.get(m[1], m[0]))[:80], case["says"])
    for name in case.get("cite", ()):
        cited += by_name.get(name, [])[:1]
    return Lint(rule, says, [(s.file, s.line) for s in cited], searched, tuple(case.get("needs", ())))


def _meets(condition: dict[str, Any], by_name: dict[str, list[Setting]]) -> list[Setting] | None:
    """The settings that meet a condition; an empty list for one that is met by nothing being there; None if not met."""
    side = condition.get("side", "asked")
    found = [s for s in by_name.get(condition["setting"], ()) if side == "any" or s.used == (side == "used")]
    if condition["op"] == "missing":
        return None if found else []
    if condition["op"] != "present" or not condition["setting"].startswith("other."):
        found = [s for s in found if not is_open(s.value, condition["op"] != "present")]
    if condition["op"] == "present":
        found = [s for s in found if not s.default]  # that an option has a default asks for nothing
    fitting = [s for s in found if _OPS[condition["op"]](s.value, condition.get("value"))]
    return fitting or None


def _number(value: Any) -> float | None:
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 else None
    )


def _compare(test: Any) -> Any:
    return lambda v, want: (n := _number(v)) is not None and test(n, float(want))


_OFF = (False, None, 0, "", "none", "None", "false", "no", "off", "disabled")
_OPS: dict[str, Any] = {
    "eq": lambda v, want: v == want and isinstance(v, bool) == isinstance(want, bool),
    "ne": lambda v, want: v != want,
    "gt": _compare(lambda a, b: a > b), "ge": _compare(lambda a, b: a >= b),
    "lt": _compare(lambda a, b: a < b), "le": _compare(lambda a, b: a <= b),
    "between": lambda v, want: (n := _number(v)) is not None and want[0] <= n <= want[1],
    "matches": lambda v, want: v is not None and bool(re.search(want, str(v)[:500])),
    "present": lambda v, _want: v is not None,
    "truthy": lambda v, _want: v not in _OFF and not (isinstance(v, str) and v.startswith(("<", "$"))),
    "falsy": lambda v, _want: v in _OFF,
}  # fmt: skip


def _folklore(reading: Settings) -> Iterator[Lint]:
    frameworks = reading.frameworks
    for entry in _data("folklore.yaml"):
        pattern = re.compile(entry["spelled"])
        for s in reading.all:
            if s.file.good or not pattern.search(s.key):
                continue
            where = entry.get("in")
            if where and s.framework not in where and not (set(where) & frameworks and "env" not in where):
                continue
            if "value" in entry and not re.search(entry["value"], str(s.value)):
                continue
            yield Lint(
                "folklore_setting", f"{s.key}: {entry['says']}; what works: {entry['works']}", [(s.file, s.line)]
            )
