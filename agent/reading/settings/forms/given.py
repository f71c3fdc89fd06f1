"""What one start of a program was given: words of its command, variables, and the keys of the configs it loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from ...run.program.commands import Command
from ..settings_map import Sheet, parse
from .settings_data import read_json, read_yaml
from .settings_files import read_toml

_SHOWN_ALONE = re.compile(r'^\s*(?:usage: |File ")|FAILED$|: error: |can\'t open file')  # a program without its words
_NUMBER = re.compile(r"-[\d.]")
_READERS: dict[str, Callable[[str], Sheet]] = {
    ".yaml": read_yaml,
    ".yml": read_yaml,
    ".json": read_json,
    ".toml": read_toml,
}
CONFIG = 1 << 17  # characters of a config that are read


@dataclass(frozen=True, slots=True)
class Known:
    """A value with the line that decides it. `sure` is false for a default that nobody can tell to have been kept."""

    value: Any
    file: str
    line: int
    sure: bool = True


@dataclass(slots=True)
class Space:
    """Values by name: parsed arguments, a loaded config, an object. `whole`: what is not in it is nowhere."""

    held: dict[str, Any] = field(default_factory=dict)
    whole: bool = True

    def put(self, key: str, value: Any) -> None:
        """Set a dotted key."""
        first, _, rest = key.partition(".")
        if not rest:
            self.held[first] = value
            return
        inner = self.held.get(first)
        if not isinstance(inner, Space):
            inner = self.held[first] = Space(whole=self.whole)
        inner.put(rest, value)

    def over(self, other: Space) -> Space:
        """This one with what another says instead."""
        made = Space(dict(self.held), self.whole and other.whole)
        for key, value in other.held.items():
            old = made.held.get(key)
            made.held[key] = old.over(value) if isinstance(old, Space) and isinstance(value, Space) else value
        return made

    def unsure(self) -> Space:
        """The same, where something unknown may have changed any of it."""
        held = {}
        for key, value in self.held.items():
            held[key] = value.unsure() if isinstance(value, Space) else value
            if isinstance(value, Known):
                held[key] = replace(value, sure=False)
        return Space(held, self.whole)


class Given:
    """The command of one start, taken apart.

    Args:
        command: how the program was started, None where nobody knows.
        text: the text of a file of the run by its name.
    """

    def __init__(self, command: Command | None, text: Callable[[str], str]) -> None:
        told = command is not None and (command.arguments or not _SHOWN_ALONE.search(command.text))
        self.command = command if told else None
        self._text = text
        self.known = self.command is not None
        self.flags: dict[str, Known] = {}  # by name without dashes; `key=value` too
        self.words: list[Known] = []  # those that belong to no flag
        self.all: list[str] = list(self.command.arguments) if self.command else []
        if self.command is not None:
            self._take(self.command)

    def _take(self, command: Command) -> None:
        words = list(command.arguments)
        number = 0
        while number < len(words):
            word = words[number]
            number += 1
            name, equals, value = word.partition("=")
            if word.startswith("-") and not _NUMBER.match(word):
                values: list[str] = [value] if equals else []
                while not equals and number < len(words) and not _is_flag(words[number]):
                    values.append(words[number])
                    number += 1
                made: Any = parse(values[0]) if len(values) == 1 else [parse(v) for v in values] if values else True
                self._put(name, made, " ".join(values), word)
            elif equals and re.fullmatch(r"[+~]{0,2}[\w.\-/@]+", name):
                self._put(name, parse(value), value, word)
            elif word.startswith(("$", "@")):
                self.known = False
            else:
                self.words.append(Known(word, command.file, self._line(word)))
        for name, value in command.variables:
            if "$" not in value:
                self.flags.setdefault(f"env.{name}", Known(parse(value), command.file, command.line))

    def _put(self, name: str, value: Any, written: str, word: str) -> None:
        if self.command is not None:
            unknown = "$" in written
            line = self._line(word)
            self.flags[_name(name)] = Known(None if unknown else value, self.command.file, line, not unknown)

    def _line(self, word: str) -> int:
        """The line of a word: that of the command, or one that it goes on in, or where a variable of it is set."""
        assert self.command is not None
        rows = self._text(self.command.file).split("\n")
        at = self.command.line
        pattern = re.compile(rf"(?<![\w\-]){re.escape(word)}(?![\w\-])")
        number = at
        while 0 < number <= len(rows):
            if pattern.search(rows[number - 1]):
                return number
            if not rows[number - 1].rstrip().endswith("\\"):
                break
            number += 1
        return next((n for n, row in enumerate(rows[:2000], 1) if pattern.search(row)), at)

    def flag(self, *names: str) -> Known | None:
        """What is given under one of these names; a long name may be shortened, `--no-x` says no to `x`."""
        for name in map(_name, names):
            if name in self.flags:
                return self.flags[name]
            if (no := self.flags.get(f"no_{name}")) is not None and no.value is True:
                return replace(no, value=False)
        return None

    def dotted(self) -> Iterator[tuple[str, Known]]:
        """All that is given by name, `a/b.c=1` as `a.b.c`."""
        yield from ((key, value) for key, value in self.flags.items() if not key.startswith("env."))


def _name(word: str) -> str:
    """`--per-device` as code calls it; capitals count."""
    return word.lstrip("-+~").replace("-", "_")


def _is_flag(word: str) -> bool:
    """Whether a word begins something of its own: a flag, or hydra's `key=value`."""
    return (word.startswith("-") and not _NUMBER.match(word)) or re.match(
        r"[+~]{0,2}[a-zA-Z_][\w.]*=", word
    ) is not None


def config_space(name: str, text: str) -> Space | None:
    """The keys of a YAML, JSON or TOML text with their lines; None where it is none of these."""
    reader = _READERS.get(PurePosixPath(name).suffix)
    if reader is None:
        return None
    space = Space(whole=len(text) < CONFIG)
    for leaf in reader(text[:CONFIG]).leaves:
        value = leaf.value
        filled = isinstance(value, str) and "${" in value
        space.put(leaf.key, None if filled else Known(value, name, leaf.line))
    return space


def composed(configs: Sequence[str], text: Callable[[str], str], given: Given) -> Space:
    """What hydra makes of the files of a tree and of the words of a command: groups nest by their folders."""
    trees = [n for n in configs if PurePosixPath(n).suffix in (".yaml", ".yml")]
    roots = sorted((PurePosixPath(n).parent for n in trees), key=lambda p: len(p.parts))
    whole = Space(whole=False)
    order = sorted(trees, key=lambda n: PurePosixPath(n).parent == roots[0])  # the primary config has the last word
    for name in order:
        if (space := config_space(name, text(name))) is None:
            continue
        group = PurePosixPath(name).parent.relative_to(roots[0]) if _below(name, roots[0]) else PurePosixPath()
        if "@package _global_" not in text(name)[:400] and group.parts:
            outer = Space(whole=False)
            outer.put(".".join(group.parts), space)
            space = outer
        whole = whole.over(space)
    for key, value in given.dotted():
        if "/" not in key and not isinstance(whole.held.get(key), Space):
            whole.put(key, value)
    whole.whole = False
    return whole


def _below(name: str, root: PurePosixPath) -> bool:
    return PurePosixPath(name).is_relative_to(root)
