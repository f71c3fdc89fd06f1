"""Plant a hostile text in an incident: an attack at one of its places, another one for each incident, in turn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copy2

from ..case import Case
from ..hostile import Variant, attacks, planted


@dataclass(frozen=True, slots=True)
class Injected:
    """A case with a text planted, and the attack that was."""

    case: Case
    attack: Variant


def inject(case: Case, turn: int, into: Path) -> Injected:
    """The case in a folder that does not exist yet, with the attack whose turn it is.

    Texts that print the words of a real failure are left out: a reader of logs cannot tell them from one.
    """
    table = attacks()["attacks"]
    ways = [(name, place) for name, what in table.items() if not what.get("prints") for place in what["places"]]
    attack = planted(case, *ways[turn % len(ways)])
    into.mkdir(parents=True)
    attack.write(into / "files")
    if case.shell.is_file():
        copy2(case.shell, into / "shell.json")
    return Injected(replace(case, folder=into), attack)
