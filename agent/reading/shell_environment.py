"""Environment variables that a launcher is told to pass on: `-x NAME=v`, `-e NAME=v`, `--export=ALL,NAME=v`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .shell_launches import Stage
from .shell_words import Word

_FLAGS = {
    "docker": ("-e", "--env"), "podman": ("-e", "--env"), "singularity": ("--env",), "apptainer": ("--env",),
    "mpirun": ("-x",), "mpiexec": ("-x",), "horovodrun": ("-x",), "enroot": ("-e", "--env"),
}  # fmt: skip
_EXPORTS = ("srun", "sbatch", "salloc")
_PAIR = re.compile(r"([A-Za-z_]\w{0,80})=(.*)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Passed:
    """One variable that a launcher sets: where its value stands in the file, `end` 0 when unknown."""

    name: str
    value: str
    word: Word
    start: int
    end: int


def passed_on(stage: Stage) -> tuple[list[Passed], list[Word]]:
    """The variables that a launcher sets for what it launches, and its other words."""
    found: list[Passed] = []
    left: list[Word] = []
    known = _FLAGS.get(stage.name, ())
    words = stage.flags
    index = 0
    while index < len(words):
        word = words[index]
        flag, mark, value = word.text.partition("=")
        if stage.name in _EXPORTS and flag == "--export":
            more = [] if mark or index + 1 >= len(words) else [words[index + 1]]
            listed = list(_listed(more[0], 0)) if more else list(_listed(word, len(flag) + 1))
            found += listed
            left += [] if listed else [word, *more]
            index += len(more)
        elif word.text in known and index + 1 < len(words) and _PAIR.match(words[index + 1].text):
            found += _pair(words[index + 1], 0, len(words[index + 1].text))
            index += 1
        elif flag in known and flag.startswith("--") and _PAIR.match(value):
            found += _pair(word, len(flag) + 1, len(word.text))
        else:
            left.append(word)
        index += 1
    return found, left


def _listed(word: Word, skip: int) -> Iterator[Passed]:
    """`ALL,A=1,B=2`."""
    at = skip
    for part in word.text[skip:].split(","):
        yield from _pair(word, at, at + len(part))
        at += len(part) + 1


def _pair(word: Word, begin: int, stop: int) -> Iterator[Passed]:
    m = _PAIR.match(word.text[begin:stop])
    if not m:
        return
    start, end, _ = word.place(begin + m.start(2))
    plain = end and end - start == len(word.text) - begin - m.start(2)
    end = start + len(m[2]) if plain else end if stop == len(word.text) else 0
    yield Passed(m[1], m[2], word, start if end else 0, end)
