"""What a patch says of itself: its changes in words, what it risks, and how to see afterwards that it holds."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from ...core.own_files import KNOWLEDGE, read_table
from ...core.playbook import Fix, SettingChange
from ...core.report import ByHand, ReportFix
from ...reading.settings.settings_map import Sheet, settings_map
from ...verdict import salience
from ...verdict.predicates import Facts, judge
from ..patching.document import Document
from ..patching.insertion import snippet
from ..patching.spelling import REMOVE, Edit, lineage
from .recipe import MICRO, STEPS, Ground, Recipe

SHOWN = 160  # characters of an old or new value


@cache
def _table() -> dict[str, Any]:
    return read_table(KNOWLEDGE / "treatment.yaml")


def groups() -> list[list[str]]:
    """Settings that are changed together or not at all."""
    return _table()["together"]


def edit_told(edit: Edit) -> str:
    """One change: `micro_batch_size: 8 -> 4 (line 12)`."""
    old, new = (" ".join(text.strip(" \t\r\n\\,").split())[:SHOWN] for text in (edit.old, edit.new))
    said = f"{old} -> {new}" if old and new else f"{new} put in" if new else f"{old} taken out"
    return f"{edit.name}: {said} (line {edit.line})"


def risk(fix: Fix, wanted: Recipe) -> str:
    """What the repair may cost: its own words, else what is known of its settings and variables."""
    if fix.risk:
        return fix.risk
    table = _table()
    known, before = table["risks"], wanted.before
    if {MICRO, STEPS} == wanted.values.keys():
        return known[MICRO]["kept"]
    told = [
        _fitting(known.get(name, {}), value, before.get(name), fix.settings.get(name))
        for name, value in wanted.values.items()
    ]
    told += [table["variables"].get(variable, "") for variable in fix.env]
    return " ".join(dict.fromkeys(filter(None, told)))


def _fitting(by: dict[str, str], value: Any, before: Any, change: Any) -> str:
    if value is REMOVE or value is False:
        return by.get("disabled") or by.get("any", "")
    if isinstance(value, bool | str):
        return by.get("enabled") or by.get("any", "")
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (value, before))
    way = ("up" if value > before else "down") if numbers else _bound(change)
    return by.get(way) or by.get("any", "")


def _bound(change: Any) -> str:
    """The way a bound moves a number that is not known."""
    if getattr(change, "at_least", None) is not None:
        return "up"
    return "down" if getattr(change, "at_most", None) is not None else "enabled"


def shows(wanted: Recipe) -> str:
    """What to look at after the next start; empty where nothing is known."""
    told = [_table()["shows"][name] for name in wanted.values if name in _table()["shows"]]
    return f"After the start look for {', and '.join(told[:2])}." if told else ""


def changes_told(wanted: Recipe) -> list[str]:
    """What a repair sets, one sentence for each setting."""
    told = []
    for name, value in wanted.values.items():
        before = wanted.before.get(name)
        now = "" if before is None else f" (now {before})"
        told.append(f"Take {name} out{now}." if value is REMOVE else f"Set {name} to {value}{now}.")
    return told


def settled_text(wanted: Recipe) -> str:
    """Says that the run has all of a repair, or that nothing shows whether what should be off is on by default."""
    unset = [name for name, value in wanted.values.items() if value is False and wanted.before[name] is None]
    held = [f"{n} {'off' if v is REMOVE else v}" for n, v in wanted.values.items() if n not in unset]
    told = [f"The run has this already ({', '.join(held)})."] if held else []
    if unset:
        told.append(f"No file of the run sets {', '.join(unset)}: where it is on by default, set it to off.")
    return " ".join(told)


# ----------
# A setting that no file of the run takes: how its framework writes it, for whoever puts it in by hand.

USUAL = {
    "hf": "Hugging Face", "megatron": "Megatron", "deepspeed": "DeepSpeed", "lightning": "Lightning",
    "accelerate": "accelerate", "verl": "verl", "torchtitan": "torchtitan", "vllm": "vLLM", "pytorch": "PyTorch",
    "launcher": "torchrun", "env": "environment",
}  # fmt: skip
NAMES = USUAL | {
    "trl": "TRL", "sft": "TRL", "nemo": "NeMo", "nemo_rl": "NeMo-RL", "openrlhf": "OpenRLHF", "sglang": "SGLang",
    "llamafactory": "LLaMA-Factory", "swift": "ms-swift", "peft": "PEFT", "llava": "LLaVA", "slurm": "Slurm",
}  # fmt: skip
# What one line cannot say: the key depends on the script, or takes an object and not a word.
WORDLESS = {
    "hf": ("sequence_length", "offload_optimizer"),
    "trl": ("offload_optimizer",),
    "lightning": ("activation_checkpointing", "offload_optimizer", "offload_parameters"),
    "accelerate": ("attention_implementation", "compile", "nccl_timeout"),
    "axolotl": ("debug",),
    "llamafactory": ("dataset_text_field",),
    "verl": ("precision", "sequence_length", "checkpoint_format", "checkpoint_strictness", "global_batch_size"),
    "vllm": ("attention_implementation",),
    "sglang": ("attention_implementation",),
}
_KEYWORD = re.compile(r"(\w+)=(.+)")
UNPLACED_SHOWN = 2  # frameworks whose words are given where the run's own is not known


def by_name(on: Ground, name: str, value: Any) -> ByHand:
    """What to put in: in the words of the run's frameworks, else in those that most people use."""
    told = _of_the_run(on)
    texts = {f: text for f in told if (text := _spelled(f, name, value))}
    if texts:
        framework, text = next(iter(texts.items()))
        return ByHand(text=text, where=f"the {NAMES.get(framework, framework)} settings", why=_nowhere(on))
    usual = [
        text if f == "env" else f"{label}: {text}" for f, label in USUAL.items() if (text := _spelled(f, name, value))
    ]
    return ByHand(text="; ".join(usual[:UNPLACED_SHOWN]) or f"{name} = {value}", why=_nowhere(on))


def _of_the_run(on: Ground) -> list[str]:
    """Frameworks that the run's files show, those of files that may be changed first."""
    found = [*(s.framework for s in on.sources), *(s.framework for s in on.reading.sources if not s.file.good)]
    return [f for f in dict.fromkeys(found) if f]


def _spelled(framework: str, name: str, value: Any) -> str:
    """One line in the framework's words; empty where it has none."""
    if name in WORDLESS.get(framework, ()):
        return ""
    if name == "precision" and value in ("fp16", "bf16"):  # most have a switch for each
        return _line(framework, value, True) or _line(framework, name, value)
    return _line(framework, name, value)


def _line(framework: str, name: str, value: Any) -> str:
    spelled = settings_map().canonical[name].spelled
    if not settings_map().owns(framework, spelled):
        return ""
    if framework == "pytorch" and name == "nccl_timeout":
        return f"timeout=timedelta(seconds={value:g})"
    text = snippet(Document("", "launch.sh", "shell", framework, Sheet()), name, value)
    if (keyword := _KEYWORD.fullmatch(text)) and (above := _above(framework, name, keyword[1])):
        text = keyword[2]
        for part in reversed((*above[1:], keyword[1])):
            text = f'{{"{part}": {text}}}'
        text = f"{above[0]}={text}"
    return " ".join(text.split()) if "\n" not in text else text


def _above(framework: str, name: str, key: str) -> tuple[str, ...]:
    """The keywords above a key whose value a call takes inside a mapping."""
    spelled = settings_map().canonical[name].spelled
    found = [s.segments for f in lineage(framework) for s in spelled.get(f, ()) if s.segments[-1] == key]
    return next((s[:-1] for s in found if s[0].endswith(("_kwargs", "_config"))), ())


def _nowhere(on: Ground) -> str:
    if on.passed:
        return f"the run keeps only records of its settings ({', '.join(on.passed[:3])})"
    return "no file of the run holds it or could"


# ----------
# A repair in words: what to set to what, and where the run sets it now.


def fitting(fix: Fix, facts: Facts) -> bool:
    """Whether a repair is for this form of the failure."""
    return all(judge(p, facts).state == "true" for p in fix.when)


def in_words(fix: Fix, facts: Facts) -> ReportFix:
    """The repair of a playbook, before any file is looked at."""
    changes = [_change(name, change, facts) for name, change in fix.settings.items()]
    return ReportFix(
        title=fix.title,
        finds=fix.finds,
        why=sentences(fix.why, fix.text, *changes),
        risk=fix.risk,
        commands=[*(set_in_shell(*variable) for variable in fix.env.items()), *fix.commands],
        verify=f"doctor tool {fix.verify.replace('_', '-')}" if fix.verify else "",
    )


def set_in_shell(name: str, value: str | None) -> str:
    """The command that gives a variable its value, or takes it out."""
    return f"unset {name}" if value is None else f"export {name}={value}"


def sentences(*parts: str) -> str:
    """Parts as sentences behind each other; each ends."""
    told = (part.strip() for part in parts if part.strip())
    return " ".join(part if part.endswith((".", "!", "?", ":", ")")) else f"{part}." for part in told)


def _change(name: str, change: SettingChange | bool | int | float | str, facts: Facts) -> str:
    """A setting's change as a sentence, with where the run sets it now."""
    found = facts.get(f"settings.asked.{name}")
    now = next((e for e in found if e.kind == "line"), None)
    at = f" (the run: {now.value} in {salience.place(now)})" if now else ""
    if not now and found:
        at = f" (not set in {', '.join((found[0].searched or [])[:3])})"
    if not isinstance(change, SettingChange):
        return f"Set {name} to {change}{at}."
    if change.remove:
        return f"Remove {name}{at}."
    if change.product_of:
        return f"Set {name} to {' x '.join(change.product_of)}{at}."
    if change.at_least is not None or change.at_most is not None:
        bound = f"at least {change.at_least:g}" if change.at_least is not None else f"at most {change.at_most:g}"
        return f"Set {name} to {bound}{at}."
    if change.multiply is None and change.set is None:
        return f"Set {name} to what the evidence asks for{at}."
    if change.multiply is None:
        return f"Set {name} to {change.set}{at}."
    if now and isinstance(now.value, int | float) and not isinstance(now.value, bool):
        value = now.value * change.multiply
        return f"Set {name} to {max(1, round(value)) if isinstance(now.value, int) else f'{value:g}'}{at}."
    return f"Multiply {name} by {change.multiply:g}{at}."
