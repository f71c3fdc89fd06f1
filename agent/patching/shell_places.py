"""Of the places of a script that hold a setting, those that the training command goes by."""

from __future__ import annotations

from ..reading.settings_shell import ShellReading
from ..reading.shell_launches import Launch
from .document import Document, Found
from .model import Unplaced, same
from .training_command import groups_of, is_aside, shell_of, training_commands

_GIVEN = ("flag", "override", "environment")


def parts(doc: Document, found: list[Found]) -> list[list[Found]]:
    """The places that hold a setting, apart by kind: what the command line gives, then what a here-document says.

    What another command is given is left out; so is a here-document that the command line overrides, unless both say
    the same and have to go on doing so.

    Raises:
        Unplaced: it is given in a branch that may not run.
    """
    if doc.form != "shell" or not found:
        return [found]
    reading = shell_of(doc.clean)
    try:
        commands = training_commands(doc, doc.framework)
    except Unplaced:
        return [found]
    found = [f for f in found if not _for_another(f, reading, commands)]
    written = [f for f in found if f.leaf.style not in _GIVEN]
    given = [f for f in found if f.leaf.style in _GIVEN]
    for f in given:
        _surely_runs(f, reading, commands)
    inside = [f for f in written if f.leaf.style in ("json", "yaml")]
    reached = {name for each in commands for name in groups_of(reading, each)}
    if not inside or not any(f.leaf.group in reached for f in given):
        return [found]
    others = [f for f in found if f not in inside]
    agree = all(same(f.value, g.value) for f in inside for g in given)
    return [others, inside] if agree else [others]


def _for_another(f: Found, reading: ShellReading, commands: list[Launch]) -> bool:
    """Whether a place belongs to a command that prepares, converts or evaluates, and not to the training."""
    group = f.leaf.group
    if f.leaf.style not in _GIVEN or any(group in groups_of(reading, each) for each in commands):
        return False
    takers = [each for each in reading.launched if group in groups_of(reading, each)]
    if f.leaf.style == "environment":
        takers = [each for each in takers if each.stages or each.arguments]
        outer = [o for each in commands if (o := each.outer)]
        return bool(takers) and all(t not in outer and is_aside(t) for t in takers)
    return bool(takers) and all(is_aside(each) for each in takers) and f.leaf.scope != "launcher"


def _surely_runs(f: Found, reading: ShellReading, commands: list[Launch]) -> None:
    blocks = [b for b in blocks_of(reading, f.leaf.group) if b.startswith(("if", "case", "and"))]
    if blocks and not all(set(blocks) <= set(each.blocks) for each in commands):
        raise Unplaced(f"it stands in a branch that may not run (line {f.leaf.line})")


def blocks_of(reading: ShellReading, group: str) -> tuple[str, ...]:
    """The blocks in which the words of a group stand."""
    if launch := reading.by_group.get(group):
        return launch.blocks
    if words := reading.script.arrays.get(group):
        return reading.script.blocks.at(words[0].start)
    made = [e for e in reading.launched for w in e.assigned if w.text.partition("=")[0].rstrip("+") == group]
    return made[0].blocks if len(made) == 1 else ()
