"""Which command of a script trains, and where the arguments stand that it is given."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ..reading.settings_shell import ShellReading, open_shell, references
from ..reading.shell_launches import Launch, base_name
from .document import Document
from .model import Unplaced
from .spelling import lineage

_TRAINS = re.compile(
    r"train|finetun|fine_tun|sft|grpo|ppo|dpo|rlhf|rloo|reinforce|distill|kto|orpo|lora|qlora|dapo|gspo|main"
)
_ASIDE = re.compile(
    r"(?:^|[_.\-])(?:prep|convert|download|tokeni[sz]|merge|export|eval|infer|generate|check|test|bench|setup|build"
    r"|data|pip|install|huggingface|upload|split|plot|visuali|http|venv|json|warmup|cleanup|kill|sanity|status|stop"
    r"|config|env|estimate|chat|api|webui|deploy|sample|login|collect|probe|print|show|list|copy|sync|log|monitor|sleep"
    r"|hf_to|to_hf|hf2|consolidat|zero_to|mcore2|notify)"
)
_CLIS = {
    "llamafactory-cli", "swift", "megatron", "trl", "axolotl", "tune", "vllm", "sglang", "composer", "xtuner", "nemo",
    "automodel", "litgpt", "lightning", "fabric", "openrlhf",
}  # fmt: skip
_STARTS = {"torchrun", "accelerate", "deepspeed", "srun", "mpirun", "ray", "horovodrun", "mpiexec"}


@dataclass(frozen=True, slots=True)
class Carrier:
    """A place that holds arguments of the training command: its own words, an array, a quoted variable."""

    name: str
    shared: bool = False  # another command takes it too


@lru_cache(maxsize=8)
def shell_of(text: str) -> ShellReading:
    """A script opened up, once for each text."""
    return open_shell(text)


def training_commands(doc: Document, framework: str) -> list[Launch]:
    """The commands that train: one, or several that nothing tells apart.

    Raises:
        Unplaced: no command of the script does.
    """
    reading = shell_of(doc.clean)
    if (known := reading.trains.get(framework)) is not None:
        return known
    held = {each.group for each in reading.launched if not each.group[:1].isdigit() and ":" not in each.group}
    around = {id(each.outer) for each in reading.launched if each.outer is not None}
    kept = [e for e in reading.launched if id(e) not in around and not _carries_on(held, e) and not is_aside(e)]
    scopes = set(lineage(framework))
    own = {f.leaf.group for f in doc.found if f.own and f.scope in scopes and f.leaf.style in ("flag", "override")}
    told = [each for each in kept if own & groups_of(reading, each)]
    kept = told or [each for each in kept if _program_trains(each)]
    for prefer in (lambda each: bool(_TRAINS.search(_title(each))), lambda each: bool(each.names & _STARTS)):
        kept = [each for each in kept if prefer(each)] or kept
    if not kept:
        raise Unplaced("no command of the script takes it")
    reading.trains[framework] = kept
    return kept


def carriers(doc: Document, commands: list[Launch]) -> list[Carrier]:
    """Where arguments for the training commands may be put: what all of them have in common and surely runs.

    Raises:
        Unplaced: each of several commands has arguments of its own, or all that there is runs only in a branch, a loop
            or a function.
    """
    reading = shell_of(doc.clean)
    named = [groups_of(reading, each) - {each.group} for each in commands]
    others = {name for each in reading.launched if each not in commands for name in references(each.words)}
    own_names = {each.group.partition("#")[0] for each in commands}
    shared = sorted(set.intersection(*named)) if named else []
    found = [
        Carrier(name)
        for name in shared
        if name.partition("#")[0] not in others - own_names and not _part_blocks(reading, name)
    ]
    if len(commands) > 1 and not found:
        raise Unplaced("several commands of the script take it")
    if len(commands) == 1 and not commands[0].blocks:
        found.insert(0, Carrier(commands[0].group))
    if not found:
        raise Unplaced(f"its command (line {commands[0].words[0].line}) stands in a branch, a loop or a function")
    return found


def _part_blocks(reading: ShellReading, name: str) -> tuple[str, ...]:
    """The blocks in which an array or a variable with arguments is filled; none where that is at the top level."""
    if name in reading.script.arrays:
        words = reading.script.arrays[name]
        return reading.script.blocks.at(words[0].start) if words else ("empty",)
    made = [
        (w, each) for each in reading.launched for w in each.assigned if w.text.startswith((f"{name}=", f"{name}+="))
    ]
    if len(made) != 1 or made[0][1].quote:
        return ("several",)
    return made[0][1].blocks


def groups_of(reading: ShellReading, launch: Launch) -> set[str]:
    """The groups of leaves that a command is given: its own, arrays and variables among its arguments."""
    if (kept := reading.groups.get(id(launch))) is not None:
        return kept
    named = references(launch.arguments)
    for _ in range(3):  # an array or a text may be made of others
        named = named | {inner for name in named for inner in reading.made_of.get(name, ())}
    parts = {key for key in reading.script.arrays if key.partition("#")[0] in named}
    texts = {name for name in named if "--" in reading.known.get(name, "") and name not in parts}
    reading.groups[id(launch)] = {launch.group, *parts, *texts}
    return reading.groups[id(launch)]


def _carries_on(held: set[str], launch: Launch) -> bool:
    """Whether a command only starts another that a variable holds."""
    return not launch.words or bool(references(launch.words[:6]) & held and launch.group not in held)


def _title(launch: Launch) -> str:
    """The name of what runs: a script's stem, the last part of a module, the word behind a command-line program."""
    if launch.program is None:
        return ""
    name = base_name(launch.program)
    if name.endswith((".py", ".sh")):
        return name.rpartition(".")[0].lower()
    if name in _CLIS | _STARTS and launch.arguments and not launch.arguments[0].text.startswith("-"):
        return launch.arguments[0].text.lower()
    return name.rpartition(".")[2].lower() if "." in name else name.lower()


def is_aside(launch: Launch) -> bool:
    """Whether a command prepares, converts, evaluates or serves, or is no program that takes settings."""
    if launch.declares or (launch.program is None and not launch.arguments):
        return True
    title = _title(launch)
    if launch.program is not None and base_name(launch.program).endswith(".sh"):
        return True  # what it does with its arguments stands elsewhere
    if any(s.name in ("sbatch", "salloc") for s in launch.stages):
        return True
    if title in ("start", "stop", "up", "down"):
        return True
    first = _ASIDE.search(title)
    trains = _TRAINS.search(title)
    return first is not None and (trains is None or first.start() < trains.start())


def _program_trains(launch: Launch) -> bool:
    """Whether a command without a known setting could be the training: a Python program, a trainer's own command."""
    if launch.program is None:
        return bool(launch.arguments) and not launch.stages
    name = base_name(launch.program)
    words = [w.text for w in launch.words]
    module = "-m" in words and launch.program.text in words[words.index("-m") + 1 :]
    return name.endswith(".py") or name in _CLIS or module or bool(launch.names & (_STARTS - {"srun", "ray", "mpirun"}))
