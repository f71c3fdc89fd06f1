"""Lints that need more than one condition: where a setting stands, in which command, beside which data."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from ..errors import ParseError
from .files import Line, RunFile
from .settings import Setting, Settings
from .settings_files import head
from .settings_map import settings_map

if TYPE_CHECKING:
    from ..workspace import Workspace

_DEVICE = re.compile(r"^cuda(?::\d+)?$")
_HARD_DEVICE = re.compile(r"""\.cuda\(\s*0\s*\)|['"]cuda:0['"]|set_device\(\s*0\s*\)""")
_STATISTIC = re.compile(
    r"(?i)\b(tokens?|characters?|chars|length|len)\b[^\d\n]{0,60}?\b(?:about |~|≈)?(\d[\d,_]{2,9})\b|"
    r"\b(\d[\d,_]{2,9}) (tokens|characters|chars)\b"
)
_TYPICAL = re.compile(r"(?i)per (?:row|sample|example|record|prompt)|typical|mean|average|avg|median|max|longest|p9\d|min")
# Real keys of frameworks that look like a known one with a typo.
_REAL = {"model_type", "data_path", "log_dir", "optimizers", "lora_config"}
_PORT_TAKERS = ("master_port", "rendezvous_endpoint", "standalone")
# Families of chat formats: what a model's name says, and what the name of a template says.
_FAMILIES = {
    "llama3": (r"llama-?3", r"llama-?3"), "llama2": (r"llama-?2(?!\d)", r"llama-?2"),
    "qwen": (r"qwen", r"qwen|chatml"), "chatml": (r"yi-?\d|34b", r"chatml|mpt|yi"), "mistral": (r"mistral|mixtral", r"mistral"),
    "gemma": (r"gemma", r"gemma"), "vicuna": (r"vicuna|llava-(?:v1\.[56]-)?(?:vicuna-)?(?:7b|13b)", r"^v1$|vicuna|llava_v1|^v1_mmtag$"),
    "phi": (r"\bphi", r"\bphi"), "deepseek": (r"deepseek", r"deepseek"), "glm": (r"glm", r"glm"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Lint:
    """A fact about settings, with the lines it stands on (none where it is an absence)."""

    rule: str
    says: str
    lines: list[tuple[RunFile, Line]] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)


def place_lints(ws: Workspace, reading: Settings) -> Iterator[Lint]:
    """All lints of this module."""
    mine = [s for s in reading.all if not s.file.good]
    yield from _processes(mine)
    yield from _devices(ws, reading, mine)
    yield from _clipping(reading, mine)
    yield from _two_places(mine)
    yield from _types(mine)
    yield from _typos(reading, mine)
    yield from _ports(mine)
    yield from _templates(mine)
    yield from _temperatures(mine)
    yield from _lengths(ws, mine)
    for file, key, first, second in reading.duplicates[:20]:
        if not file.good:
            yield Lint("duplicate_key", f"{key} is given twice, on lines {first.number} and {second.number}", [(file, second), (file, first)])


def _lint(rule: str, says: str, *settings: Setting) -> Lint:
    return Lint(rule, says, [(s.file, s.line) for s in settings])


def _named(settings: list[Setting], name: str) -> list[Setting]:
    return [s for s in settings if s.name == name and not s.used]


def _whole(s: Setting) -> int | None:
    return s.value if isinstance(s.value, int) and not isinstance(s.value, bool) and 0 < s.value < 10**7 else None


def _processes(mine: list[Setting]) -> Iterator[Lint]:
    """More processes a node than devices that the same command can see."""
    for visible in _named(mine, "visible_devices"):
        devices = visible.value
        if not isinstance(devices, list) or not all(re.match(r"[\w.:\-/]+\Z", str(d)) for d in devices):
            continue
        names = ("processes_per_node", "local_world_size", "world_size")
        starts = [s for name in names for s in _named(mine, name) if s.file == visible.file]
        same = [s for s in starts if s.group == visible.group] or (starts if visible.place.style != "environment" or len(starts) == 1 else [])
        for s in same:
            count = _whole(s)
            if count and count > len(devices) and (s.name != "world_size" or len(devices) > 0):
                says = f"{count} processes are started, {len(devices)} devices are visible ({visible.key})"
                yield _lint("processes_exceed_visible_gpus", says, visible, s)


def _devices(ws: Workspace, reading: Settings, mine: list[Setting]) -> Iterator[Lint]:
    """One fixed device in code or config, and several processes."""
    several = [s for n in ("processes_per_node", "world_size") for s in _named(mine, n) if (_whole(s) or 0) > 1]
    if not several:
        return
    for s in _named(mine, "device"):
        if re.match(r"cuda:\d+$", str(s.value)):
            yield _lint("same_device_for_all_ranks", f"{s.key} is {s.value} for each of several processes", s, several[0])
    for source in reading.sources:
        if source.format != "python" or source.file.good:
            continue
        for line in _lines(ws, source.file):
            if _HARD_DEVICE.search(line.text) and "add_argument" not in line.text and not line.text.lstrip().startswith("#"):
                says = "one fixed device in code that several processes run"
                yield Lint("same_device_for_all_ranks", says, [(source.file, line), (several[0].file, several[0].line)])
                break


def _lines(ws: Workspace, file: RunFile) -> list[Line]:
    try:
        return head(ws.lines(file), 1 << 20, 5000)
    except (ParseError, OSError, EOFError, ValueError):
        return []


def _clipping(reading: Settings, mine: list[Setting]) -> Iterator[Lint]:
    """The trainer is asked to clip; DeepSpeed's own file does not carry it, or its engine reports none."""
    asked = [s for s in _named(mine, "gradient_clip_norm") if s.framework != "deepspeed" and isinstance(s.value, int | float) and s.value > 0]
    files = [s for s in reading.sources if s.framework == "deepspeed" and s.format == "json" and s.asks and not s.file.good]
    engine = [s for s in mine if s.name == "gradient_clip_norm" and s.used and s.framework == "deepspeed" and s.value == 0]
    for source in files:
        inside = [s for s in mine if s.file == source.file]
        if asked and not any(s.name == "gradient_clip_norm" for s in inside):
            near = [s for s in inside if s.name in ("gradient_accumulation_steps", "micro_batch_size") and "." not in s.key][:1]
            says = f"gradient clipping {asked[0].value} is asked for, {source.file.name} has no gradient_clipping key"
            yield _lint("clip_not_passed_to_deepspeed", says, *asked[:3], *(near or inside[:1]), *engine[:2])
            return
    if asked and engine:
        says = f"gradient clipping {asked[0].value} is asked for, the DeepSpeed engine reports {engine[0].value}"
        yield _lint("clip_not_passed_to_deepspeed", says, *engine[:2], *asked[:3])


def _two_places(mine: list[Setting]) -> Iterator[Lint]:
    """An optimizer, schedule or size given both in DeepSpeed's file and to the trainer, and not the same."""
    for name in ("optimizer", "lr_scheduler", "learning_rate", "weight_decay", "gradient_accumulation_steps", "micro_batch_size"):
        inside = [s for s in _named(mine, name) if s.framework == "deepspeed" and s.value not in ("auto", None)]
        outside = [s for s in _named(mine, name) if s.framework not in ("deepspeed", "env") and s.place.format != "table"]
        if inside and outside and (name in ("optimizer", "lr_scheduler") or inside[0].value != outside[0].value):
            says = f"{name} is given twice: {inside[0].value} to DeepSpeed, {outside[0].value} to the trainer"
            yield _lint("optimizer_scheduler_in_two_places", says, inside[0], outside[0])


def _types(mine: list[Setting]) -> Iterator[Lint]:
    known = settings_map().canonical
    for s in mine:
        if s.used or not s.known or not s.own or s.place.style in ("table", "note"):
            continue
        kind = known[s.name].type
        numeric = isinstance(s.value, int | float) and not isinstance(s.value, bool)
        if kind in ("int", "float", "seconds") and isinstance(s.value, str) and s.value != "auto" and not re.search(r"[${}<(]", s.value):
            yield _lint("wrong_type", f"{s.key} is {s.value!r}, not a number", s)
        elif s.note == "quoted" and numeric and s.place.format in ("yaml", "json") and kind in ("int", "float"):
            yield _lint("wrong_type", f"{s.key} is a number in quotes", s)
        elif numeric and (low := known[s.name].low) is not None and s.value < low and s.value != -1:
            yield _lint("wrong_type", f"{s.key} is {s.value}, below {low:g}", s)
        elif numeric and (high := known[s.name].high) is not None and s.value > high:
            yield _lint("wrong_type", f"{s.key} is {s.value}, above {high:g}", s)


@cache
def _deletions() -> dict[str, str]:
    """Every known spelling of eight letters or more with one letter left out."""
    out: dict[str, str] = {}
    for c in settings_map().canonical.values():
        for spellings in c.spelled.values():
            for spelling in spellings:
                word = spelling.segments[-1]
                if len(word) >= 8:
                    out[word] = word
                    for i in range(len(word)):
                        out.setdefault(word[:i] + word[i + 1 :], word)
    return out


def _typos(reading: Settings, mine: list[Setting]) -> Iterator[Lint]:
    """Unknown keys one letter away from a known one."""
    near = _deletions()
    for s in mine:
        word = s.name.rpartition(".")[2]
        if s.known or s.used or len(word) < 8 or s.place.style in ("environment", "keyword") or word in _REAL or not s.framework:
            continue
        hits = {near.get(word)} | {near.get(word[:i] + word[i + 1 :]) for i in range(len(word))}
        found = next((h for h in hits if h and h != word and abs(len(h) - len(word)) <= 1 and not _same_stem(h, word)), None)
        if found:
            yield _lint("unknown_setting", f"{s.key} is not known; {found} is", s)


def _same_stem(a: str, b: str) -> bool:
    """`eval_step` and `eval_steps`, `top_k1` and `top_k2` are families, not typos."""
    return a.rstrip("s0123456789") == b.rstrip("s0123456789")


def _ports(mine: list[Setting]) -> Iterator[Lint]:
    """Several launches that all take the default rendezvous port."""
    launches: dict[tuple[str, str], list[Setting]] = defaultdict(list)
    for s in mine:
        if s.framework == "launcher" and s.name in ("processes_per_node", "nodes", "world_size"):
            launches[s.file.name, s.group].append(s)
    given = {(s.file.name, s.group) for s in mine if s.name in _PORT_TAKERS}
    bare: dict[str, list[Setting]] = defaultdict(list)
    for (name, group), found in launches.items():
        if (name, group) not in given:
            bare[name].append(found[0])
    for found in bare.values():
        if len(found) > 1:
            yield _lint("master_port_default", f"{len(found)} launches without a port of their own (default 29500)", *found[:4])


def _templates(mine: list[Setting]) -> Iterator[Lint]:
    """A chat template that belongs to another family of models."""
    models = [s for s in _named(mine, "model") if isinstance(s.value, str)]
    for template in (*_named(mine, "chat_template"), *_named(mine, "conversation_version")):
        written = str(template.value).lower()
        theirs = {f for f, (_m, t) in _FAMILIES.items() if re.search(t, written)}
        for model in models[:3]:
            ours = {f for f, (m, _t) in _FAMILIES.items() if re.search(m, str(model.value).lower())}
            if theirs and ours and not theirs & ours:
                says = f"template {template.value} is the format of another family of models than {model.value}"
                yield _lint("tokenizer_template_mismatch", says, template, model)
                return


def _temperatures(mine: list[Setting]) -> Iterator[Lint]:
    asked = [s for s in _named(mine, "temperature") if isinstance(s.value, int | float) and "val" not in s.key and "eval" not in s.key]
    other = next((s for s in asked if s.value != asked[0].value and s.file == asked[0].file), None)
    if other:
        yield _lint("temperature_mismatch", f"temperatures {asked[0].value} and {other.value}", asked[0], other)


def _lengths(ws: Workspace, mine: list[Setting]) -> Iterator[Lint]:
    """A length limit below what the notes about the data say, or below prompt and answer together."""
    limits = [(s, n) for s in _named(mine, "sequence_length") if (n := _whole(s)) and n > 16]
    if not limits:
        return
    limit, tokens = limits[0]
    parts = [(s, n) for name in ("max_prompt_length", "max_new_tokens") for s in _named(mine, name)[:1] if (n := _whole(s))]
    if len(parts) == 2 and sum(n for _s, n in parts) > tokens:
        says = f"prompt and answer together may take {sum(n for _s, n in parts)} tokens, the limit is {tokens}"
        yield _lint("max_length_shorter_than_data", says, limit, parts[0][0], parts[1][0])
    for file in ws.files:
        if file.good or file.size > 20_000 or file.role in ("code", "log", "checkpoint", "config") or file.path.suffix not in (".txt", ".md", ""):
            continue
        for line in _lines(ws, file)[:200]:
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
