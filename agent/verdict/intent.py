"""What a question asks for: the diagnosis of a run, or an answer that needs none (knowledge, a fit, a follow-up)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ..core.own_files import KNOWLEDGE, read_table
from ..core.types import Call, Risk
from ..reading.memory import model_config
from ..reading.memory.memory_changes import of_name

# ----------
# Questions about what a session found: which they are, and the calls that answer them.
#
# The patterns are rows of `knowledge/intents.yaml`. A follow-up is answered by tools and by the evidence of the
# session, never by what a planner remembers.


FOLLOW_UPS = frozenset((
    "show_lines", "show_evidence", "check_rank", "what_if", "why_not", "because", "sure", "verify", "act", "checked",
))  # fmt: skip
READ = 2000  # characters of a question that are looked at
AROUND = 3  # lines shown before and after the one that is asked for
WINDOW = 200  # lines shown at most
LAST = 20  # lines of the end of a file
CHECKS = 4  # checks of a cause that are made up for "why not"
RANKS = 8  # ranks looked at for one question
LONG = 6  # letters of a key from which one framework's own spelling is taken for a setting anywhere
NUMBER = 10**9  # no file or line of interest has more
_SPAN = re.compile(r"-|\.\.|\u2013|\b(?:to|through|until)\b")


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A follow-up with what its words name (`about`, `rank`, `file`, ...) and the calls that answer it."""

    name: str
    about: Mapping[str, str] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class _Row:
    intent: str
    asks: tuple[re.Pattern[str], ...]
    unless: tuple[re.Pattern[str], ...]
    alone: bool
    of_diagnosis: bool
    certain: bool | str  # False: its words must mean something known; `named`: they must name it
    calm: bool

    def holds(self, text: str, earlier: Mapping[str, Any] | None, *, trouble: bool) -> bool:
        """Whether the session has what the row is about, and the question tells nothing that speaks for a diagnosis."""
        if (self.calm and trouble) or any(p.search(text) for p in self.unless):
            return False
        if self.of_diagnosis:
            return is_diagnosis(earlier)
        return self.alone or bool(earlier)


@dataclass(frozen=True, slots=True)
class _Change:
    said: re.Pattern[str]
    setting: str
    value: str


@dataclass(frozen=True, slots=True)
class _Trouble:
    said: re.Pattern[str]
    but: tuple[re.Pattern[str], ...]

    def told(self, text: str) -> bool:
        """Whether a question says that something goes wrong, rather than asking whether it would."""
        for pattern in self.but:
            text = pattern.sub(" ", text)
        return bool(self.said.search(text))


@cache
def _table() -> tuple[tuple[_Row, ...], tuple[_Change, ...], _Trouble]:
    data = read_table(KNOWLEDGE / "intents.yaml")

    def made(patterns: list[str]) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(p, re.IGNORECASE) for p in patterns)

    rows = tuple(
        _Row(r["intent"], made(r["asks"]), made(r.get("unless", [])), r.get("alone", False),
             r.get("of") == "diagnosis", r.get("certain", True), r.get("calm", False))
        for r in data["follow_up"]
    )  # fmt: skip
    said = (re.compile(c["said"], re.IGNORECASE) for c in data["changes"])
    changes = tuple(_Change(p, c["setting"], c["value"]) for p, c in zip(said, data["changes"], strict=True))
    return rows, changes, _Trouble(made([data["trouble"]["said"]])[0], made(data["trouble"]["but"]))


def is_diagnosis(report: Mapping[str, Any] | None) -> bool:
    """Whether a report (as plain data) is one on a run, so that it can be asked about."""
    return bool(report) and report is not None and report.get("status") not in (None, "answer")


def follow_up(question: str, earlier: Mapping[str, Any] | None) -> FollowUp | None:
    """The follow-up that a question is, None for a question about the run (or the world).

    Args:
        earlier: the session's last diagnosis as plain data, or its last answer where there is none.
    """
    text = " ".join(question.split())[:READ]
    rows, _, words = _table()
    trouble = words.told(text)
    for row in rows:
        if not row.holds(text, earlier, trouble=trouble):
            continue
        for pattern in row.asks:
            if (m := pattern.search(text)) and (found := _made(row, m, earlier)):
                return found
    return None


def _made(row: _Row, m: re.Match[str], earlier: Mapping[str, Any] | None) -> FollowUp | None:
    about = {k: v.strip(" ?!.,;\"'") for k, v in m.groupdict().items() if v}
    if row.intent == "what_if":
        change = changed_setting(about["change"])
        if row.certain is not True and (change is None or not _is_known(change[0])):
            return None
        if change is None:
            return FollowUp("what_if", about)
        call = Call("what_if", {"setting": change[0], "value": change[1]}, why="what_if")
        return FollowUp("what_if", about, (call,))
    if row.intent == "why_not":
        return _why_not(row, about)
    if row.intent == "check_rank":
        ranks = _ranks(about["ranks"])
        calls = tuple(Call("look_at_rank", {"rank": r}, why="check_rank") for r in ranks[:RANKS])
        return FollowUp("check_rank", about | {"count": str(len(ranks))}, calls)
    if row.intent == "show_lines":
        return FollowUp("show_lines", about, (_lines(about, earlier),))
    return FollowUp(row.intent, about)


def _ranks(said: str) -> list[int]:
    """The ranks of words such as "0 and rank 1", "0-3" or "2, 4 to 6"; one more than are looked at, at most."""
    numbers = [int(n) for n in re.findall(r"\d+", said)]
    joins = [bool(_SPAN.search(between)) for between in re.findall(r"(?<=\d)\D+(?=\d)", said)]
    found: dict[int, None] = {}
    for i, number in enumerate(numbers):
        if i and joins[i - 1]:
            first, last = sorted((numbers[i - 1], number))
            found |= dict.fromkeys(range(first, min(last, first + NUMBER) + 1)[: RANKS + 1])
        elif len(found) <= RANKS:
            found[number] = None
    return list(found)


def _is_known(setting: str) -> bool:
    """Whether a setting is in the settings map, a repair sets it in the environment, or it is known to do nothing."""
    from ..core.playbook import playbooks
    from ..reading.settings.catalogue import entries
    from ..reading.settings.settings_map import normal, settings_map

    known, bare = settings_map(), normal(setting)
    if known.labels.get(bare, bare) in known.canonical:
        return True
    frameworks = list(known.frameworks) if len(bare) >= LONG else ["env", ""]
    if any(known.resolve(name, bare) for name in frameworks):
        return True
    if any(name.lower() == setting.lower() for p in playbooks() for fix in p.fixes for name in fix.env):
        return True
    return setting.isupper() and any(e.document == "folklore.yaml" for e in entries(setting))


def changed_setting(words: str) -> tuple[str, str] | None:
    """The setting and value that words such as "I use bf16" or "lr were 1e-5" name."""
    for change in _table()[1]:
        if m := change.said.search(words[:200]):
            setting, value = m.expand(change.setting).strip(), m.expand(change.value).strip(" .?!,;")
            if setting and value:
                return setting.strip("-").replace(" ", "_"), value
    return None


def _why_not(row: _Row, about: dict[str, str]) -> FollowUp | None:
    """With the checks that the playbooks of the cause name, as far as they are read-only: they settle it."""
    from ..core.playbook import playbooks
    from ..tools.tool import all_tools
    from .meaning import meaning

    found = meaning(about["about"], playbooks())
    if row.certain is not True and (not found.causes or (row.certain == "named" and not found.named)):
        return None
    tools = all_tools()
    books = [p for p in playbooks() if p.cause in found.causes[:1] and found.playbook in ("", p.slug)]
    names = dict.fromkeys(name for p in books for name in p.checks if name in tools)
    ready = [
        n for n in names
        if tools[n].risk is Risk.READ and not any(f.is_required() for f in tools[n].arguments.model_fields.values())
    ]  # fmt: skip
    return FollowUp("why_not", about, tuple(Call(n, why="why_not") for n in ready[:CHECKS]))


def _lines(about: dict[str, str], earlier: Mapping[str, Any] | None) -> Call:
    """A line with its neighbours, a stretch, or the end of a file."""
    file = _known_file(about["file"], earlier)
    if "last" in about:
        start, count = NUMBER, min(WINDOW, int(about.get("count", LAST)) or LAST)
        return Call("read_lines", {"file": file, "start": start, "count": count}, why="show_lines")
    first = max(1, min(NUMBER, int(about["line"])))
    if "end" in about:
        first, end = sorted((first, max(1, min(NUMBER, int(about["end"])))))
        count = min(WINDOW, end - first + 1)
        return Call("read_lines", {"file": file, "start": first, "count": count}, why="show_lines")
    start = max(1, first - AROUND)
    return Call("read_lines", {"file": file, "start": start, "count": first + AROUND - start + 1}, why="show_lines")


def _known_file(name: str, earlier: Mapping[str, Any] | None) -> str:
    """The name in full, where evidence of the session knows one file that ends so (`train.log`, `logs/train.log`)."""
    name = name.strip("`'\"")
    cited = {str(e.get("file") or "") for e in (earlier or {}).get("evidence", ()) if e.get("kind") == "line"}
    if name in cited:
        return name
    close = [f for f in cited if f.endswith(f"/{name}")]
    return close[0] if len(close) == 1 else name


def what_is_asked_about(report: Mapping[str, Any] | None, kept: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What the next question of a session is about: its last diagnosis, or its last answer where there was none.

    Args:
        report: the report on the question before.
        kept: what that question was about.
    """
    return report if is_diagnosis(report) or not is_diagnosis(kept) else kept


# ----------

PREFLIGHT = "preflight"
_COUNT = re.compile(
    r"\b(?:(\d{1,3})\s*[x\u00d7*]\s*)?(\d{1,5})(?:\s*[x\u00d7*]\s*|\s+)(?:nvidia\s+)?"
    r"(?:gpus?\b|cards?\b|[abhlv]\d{2,3}s?\b|gb200s?\b|rtx|\d{1,4}\s*gi?b\b)",
    re.IGNORECASE,
)
_SIZE = re.compile(r"(?<![.\d])(\d{1,4})\s*gi?b\b", re.IGNORECASE)
_NODES = re.compile(r"\b(\d{1,4})\s*nodes?\b", re.IGNORECASE)
_WORD = re.compile(r"[\w./-]*\w")


@dataclass(frozen=True, slots=True)
class Intent:
    """A kind of question, the calls that answer it, and of a follow-up what its words name."""

    name: str
    calls: tuple[Call, ...]
    about: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Intent:
    """A way to ask: any of its patterns, none of the others."""

    intent: str
    asks: re.Pattern[str]
    unless: re.Pattern[str]
    beside_run: re.Pattern[str] | None  # None: never where there is a run to diagnose

    def fits(self, text: str, *, beside_run: bool) -> bool:
        if not self.asks.search(text) or self.unless.search(text):
            return False
        return not beside_run or (self.beside_run is not None and not self.beside_run.search(text))


@cache
def _intents() -> tuple[tuple[_Intent, ...], dict[str, list[dict[str, Any]]]]:
    data = read_table(KNOWLEDGE / "intents.yaml")

    def either(patterns: list[str]) -> re.Pattern[str]:
        return re.compile("|".join(f"(?:{p})" for p in patterns), re.IGNORECASE)

    rows = tuple(
        _Intent(r["intent"], either(r["asks"]), either(r["unless"]), either(b) if (b := r.get("beside_run")) else None)
        for r in data["rows"]
    )
    return rows, data["calls"]


def intent_of(question: str, *, beside_run: bool = False, earlier: Mapping[str, Any] | None = None) -> Intent | None:
    """The first intent that the question has; None for a diagnosis.

    Args:
        beside_run: there are logs of a run, so that a question in doubt is about it.
        earlier: the session's last diagnosis as plain data (`Report.model_dump`), or its last answer where it made
            none: a follow-up is about that. Without it only what leaves no doubt is one ("check rank 3").
    """
    text = " ".join(question.split())[:2000]
    if (beside_run or earlier) and (asked := follow_up(text, earlier)):  # of nothing, nothing follows
        return Intent(asked.name, asked.calls, asked.about)
    row = next((r for r in _intents()[0] if r.fits(text, beside_run=beside_run)), None)
    return named(row.intent, text) if row else None


def named(name: str, question: str = "") -> Intent:
    """An intent by name, with the arguments that the question gives."""
    calls = []
    for row in _intents()[1][name]:
        args = {k: question if v == "$question" else v for k, v in row.get("args", {}).items()}
        if row["tool"] == "estimate_memory":
            args |= hardware(question)
        if "" not in args.values():
            calls.append(Call(row["tool"], args, why=name))
    return Intent(name, tuple(calls))


def hardware(question: str) -> dict[str, Any]:
    """Devices, their memory and the model that a question names, as arguments of `estimate_memory`."""
    found: dict[str, Any] = {}
    if m := _COUNT.search(question):
        nodes = _NODES.search(question)
        found["ranks"] = int(m[1] or 1) * int(m[2]) * (int(nodes[1]) if nodes else 1)
    words = [re.sub(r"^\d+x", "", w, flags=re.IGNORECASE) for w in _WORD.findall(question)]
    card = next((w.removesuffix("s") for w in words if _is_card(w)), "")
    if m := _SIZE.search(question):
        found["gpu"] = m[1]
    elif card:
        found["gpu"] = card
    if model := next((w for w in words if not _is_card(w) and model_config.of_name(w)), ""):
        found["config"] = model
    return found


def _is_card(word: str) -> bool:
    bare = word.removesuffix("s")
    return any(c.isdigit() for c in bare) and of_name(bare) is not None
