"""What the commands of a script launch: launchers from outside in, the program, its arguments, what quotes hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

from ....core.own_files import KNOWLEDGE, read_table
from .shell_words import Script, Word, expand, read_script

COMMANDS = KNOWLEDGE / "commands.yaml"
ASSIGN = re.compile(r"([A-Za-z_]\w{0,80})\+?=(.*)\Z", re.DOTALL)
DECLARES = ("export", "declare", "local", "readonly", "typeset")
_KEYWORDS = {"if", "then", "else", "elif", "do", "while", "until", "{", "!"}
_SHELLS = {"bash", "sh", "zsh", "dash"}
_QUOTES_LAST = {"ssh", "pdsh", "clush", "tmux", "screen"}  # the command is the last word, in quotes
_DEEP = 4  # commands within quotes within quotes


@dataclass(frozen=True)
class Programs:
    """What `knowledge/commands.yaml` says about programs."""

    launchers: frozenset[str]
    modules: frozenset[str]
    wrappers: frozenset[str]
    not_settings: frozenset[str]
    short: dict[str, dict[str, str]]


@cache
def programs() -> Programs:
    """The table, read once."""
    data = read_table(COMMANDS)
    return Programs(
        frozenset(data["launchers"]), frozenset(data["modules"]), frozenset(data["wrappers"]),
        frozenset(data["not_settings"]), data["short"],
    )  # fmt: skip


@dataclass(slots=True)
class Stage:
    """A program that launches the next one: its name, its word, the flags that are its own."""

    name: str
    word: Word
    flags: list[Word]
    launches: bool


@dataclass(slots=True)
class Launch:
    """One command. `group` is the number that its leaves bear, `3.1` for the second one within the quotes of the third.

    `program` is the script or module that runs in the end, or the program itself. `end` is where its arguments end:
    before a `--` that ends options. `quote` is the word within whose quotes the command stands.
    """

    group: str
    words: list[Word]
    blocks: tuple[str, ...] = ()
    declares: str = ""
    assigned: list[Word] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    program: Word | None = None
    arguments: list[Word] = field(default_factory=list)
    end: int = 0
    quote: Word | None = None
    outer: Launch | None = None

    @property
    def names(self) -> set[str]:
        """Programs that take part, those around the quotes included."""
        own = {s.name for s in self.stages}
        return own | self.outer.names if self.outer else own


def base_name(word: Word) -> str:
    """A program without its folder."""
    return word.text.rsplit("/", 1)[-1]


def launches(script: Script, known: dict[str, str], prefix: str = "") -> list[Launch]:
    """Every command of a script, those within quotes behind the one that holds them."""
    out: list[Launch] = []
    for number, command in enumerate(script.commands):
        out += _opened(command, f"{prefix}{number}", known, script, None, None)
    return out


def holds_command(value: str) -> bool:
    """Whether the text of a variable is a command line of a launcher or of Python."""
    for text in value.split():
        if text.startswith("$") or ASSIGN.match(text):
            continue  # variables for its environment
        name = text.rsplit("/", 1)[-1]
        known = name in programs().launchers or re.fullmatch(r"python[\d.]*", name)
        return bool(known) and re.search(r"--\w|\.py\b|\s-m\s", value) is not None
    return False


def quoted_launches(word: Word, skip: int, text: str, group: str, known: dict[str, str]) -> list[Launch]:
    """The commands of a text that a word holds behind `skip` characters, as `CMD="torchrun ..."` does."""
    if re.search(r"\\\r?\n", word.raw):  # continued lines are one, as they are for the shell
        text = text.replace(" \n", "\\\n")
    script = read_script(text, word.line, body(word, skip, text))
    return [each for c in script.commands for each in _opened(c, group, known, script, word, None)]


def _opened(
    words: list[Word], group: str, known: dict[str, str], script: Script, quote: Word | None, outer: Launch | None
) -> list[Launch]:
    begin = 0
    while begin < len(words) - 1 and words[begin].raw in _KEYWORDS:
        begin += 1
    launch = Launch(group, words[begin:], script.blocks.at(words[begin].start), quote=quote, outer=outer)
    if outer:
        launch.blocks = (*outer.blocks, *launch.blocks)
    index = 0
    while index < len(launch.words):
        word = launch.words[index]
        if ASSIGN.match(word.text):
            launch.assigned.append(word)
        elif word.text in DECLARES:
            launch.declares = word.text
        elif word.text in programs().wrappers or (word.text == "eval" and len(launch.words) > index + 2):
            pass
        elif not (word.raw.startswith("$") and ASSIGN.match(expand(word.text, known).lstrip())):
            break
        index += 1
    launch.end = launch.words[-1].end
    out = [launch]
    if index < len(launch.words) and not launch.declares:
        out += _stages(launch, launch.words[index:], known)
    return out


def _stages(launch: Launch, rest: list[Word], known: dict[str, str]) -> Iterator[Launch]:
    """Fill in what a command launches; yields the commands within its quotes."""
    name = base_name(rest[0])
    if inner := _inner(name, rest):
        at, skip = inner
        own = [w for w in rest[1:at] if w.text != "--wrap"] + rest[at + 1 :]
        own = own if name in programs().launchers else []
        launch.stages.append(Stage(name, rest[0], own, name in programs().launchers))
        yield from _within(launch, rest[at], skip, known)
        return
    if name in programs().not_settings:
        return
    if re.match(r"--[A-Za-z]", rest[0].text):  # arguments alone, as they are pasted or kept in a file of their own
        launch.arguments = rest
        return
    mark = next((i for i, w in enumerate(rest[:-1]) if w.text == "--"), -1)
    if mark >= 0 and not script_index(rest[:mark], known):
        launch.stages.append(Stage(name, rest[0], rest[1:mark], name in programs().launchers))
        yield from _behind(launch, rest[mark + 1 :], name, known)
        return
    start = script_index(rest, known)
    launching = name in programs().launchers or any(w.text in programs().modules for w in rest[: start + 1])
    if start and name.startswith("python") and rest[start].text in programs().modules:
        start = script_index(rest, known, start + 1)
    if not start and launch.quote is not None and launch.outer is None and name in programs().launchers:
        launch.stages.append(
            Stage(name, rest[0], rest[1:], True)
        )  # `LAUNCHER="torchrun ..."`: what it starts is elsewhere
        return
    if not start:
        launch.stages.append(Stage(name, rest[0], [], False))
        _ends(launch, rest[0], rest[1:])
        return
    launch.stages.append(Stage(name, rest[0], rest[1:start], launching))
    follows = base_name(rest[start])
    if follows in programs().launchers or follows.startswith("python") or _inner(follows, rest[start:]):
        yield from _stages(launch, rest[start:], known)
        return
    _ends(launch, rest[start], rest[start + 1 :])


def _behind(launch: Launch, rest: list[Word], name: str, known: dict[str, str]) -> Iterator[Launch]:
    """What stands behind the `--` of a launcher: a command with assignments of its own, or a script alone."""
    begin = 0
    while begin < len(rest) - 1 and (ASSIGN.match(rest[begin].text) or rest[begin].text in programs().wrappers):
        launch.assigned += [rest[begin]] if ASSIGN.match(rest[begin].text) else []
        begin += 1
    if name in ("accelerate", "torchrun", "deepspeed") and rest[begin].text.endswith(".py"):
        _ends(launch, rest[begin], rest[begin + 1 :])
        return
    yield from _stages(launch, rest[begin:], known)


def _ends(launch: Launch, program: Word, arguments: list[Word]) -> None:
    launch.program, launch.arguments = program, arguments
    mark = next((i for i, w in enumerate(arguments) if w.text == "--"), -1)
    before = [program, *arguments[:mark]] if mark >= 0 else [program, *arguments]
    while len(before) > 1 and re.match(r"\$(?:[@*]|\{@)", before[-1].text):  # what the user adds comes last
        before.pop()
    launch.end = before[-1].end


def _inner(name: str, rest: list[Word]) -> tuple[int, int] | None:
    """Index of the word that holds a command line in its quotes, and how many of its characters stand before it."""
    if name in _SHELLS or name in ("su", "runuser"):
        for i, word in enumerate(rest[1:-1], 1):
            if re.match(r"-[a-z]*c\Z", word.text):
                return i + 1, 0
        return None
    if name in ("sbatch", "srun", "salloc"):
        for i, word in enumerate(rest):
            if word.text.startswith("--wrap="):
                return i, len("--wrap=")
            if word.text == "--wrap" and i + 1 < len(rest):
                return i + 1, 0
        return None
    holds = name in _QUOTES_LAST or (name == "eval" and len(rest) == 2)
    return (len(rest) - 1, 0) if holds and rest[-1].quoted and re.search(r"\s", rest[-1].text) else None


def _within(launch: Launch, word: Word, skip: int, known: dict[str, str]) -> Iterator[Launch]:
    deep, outer = 0, launch
    while outer.outer and deep < _DEEP:
        outer, deep = outer.outer, deep + 1
    if deep >= _DEEP:
        return
    text = word.text[skip:]
    if re.fullmatch(r"\s*\$(?:\w+|\{\w+\})\s*", text):  # a variable that holds a command stands for itself
        text = "" if holds_command(known.get(text.strip("\t\n ${}"), "")) else expand(text, known)
    script = read_script(text, word.line, body(word, skip, text))
    for number, command in enumerate(script.commands):
        yield from _opened(command, f"{launch.group}.{number}", known, script, word, launch)


def body(word: Word, skip: int, text: str) -> int | None:
    """Where quoted text that a word ends with begins in the file; None when it does not stand there as it is."""
    start, end, inside = word.place(skip)
    if not end and word.raw[:1] in "'\"" and word.raw[-1:] == word.raw[:1]:
        return None
    quote = word.raw[skip : skip + 1]
    as_it_is = end and not inside and quote in ("'", '"') and word.raw[-1:] == quote and end - start - 2 == len(text)
    return start + 1 if as_it_is else None


def script_index(words: list[Word], known: dict[str, str], begin: int = 1) -> int:
    """Where the program starts that the launcher launches; 0 when there is no such word."""
    for i in range(begin, len(words)):
        text = expand(words[i].text, known)
        if text == "-m" and i + 1 < len(words):
            return i + 1
        if text.endswith((".py", ".sh")) and not text.startswith("-") and "=" not in text:
            return i
        if i > 0 and not re.match(r"--[^=]*\Z", words[i - 1].text) and _starts_program(words, i):
            return i
    return 0


def _starts_program(words: list[Word], i: int) -> bool:
    name = base_name(words[i])
    if name in _SHELLS:
        return i + 1 < len(words) and re.match(r"-[a-z]*c\Z", words[i + 1].text) is not None
    return name in programs().launchers or re.fullmatch(r"python[\d.]*", name) is not None


# ----------
# A script opened up.

_REFERENCE = re.compile(r"\$\{?(\w+)")


@dataclass
class ShellReading:
    """A script opened up: its words, what its variables are, all that it launches.

    `launched` holds the commands of variables too (`CMD="torchrun ..."`), under the variable's name.
    """

    script: Script
    known: dict[str, str]
    launched: list[Launch] = field(default_factory=list)
    groups: dict[int, set[str]] = field(default_factory=dict)  # of leaves, kept by who asks: `id` of a launch -> names
    trains: dict[str, list[Launch]] = field(default_factory=dict)

    @cached_property
    def by_group(self) -> dict[str, Launch]:
        return {each.group: each for each in self.launched}

    @cached_property
    def made_of(self) -> dict[str, set[str]]:
        """Variable or array -> the variables and arrays that its text names."""
        made: dict[str, set[str]] = {}
        for each in self.launched:
            for word in each.assigned:
                made.setdefault(word.text.partition("=")[0].rstrip("+"), set()).update(references([word]))
        for key, words in self.script.arrays.items():
            made.setdefault(key.partition("#")[0], set()).update(references(words))
        return made


def open_shell(text: str, first_line: int = 1, prefix: str = "") -> ShellReading:
    """Read what a script launches."""
    script = read_script(text, first_line)
    known = _variables(script)
    reading = ShellReading(script, known)
    for launch in launches(script, known, prefix):
        reading.launched.append(launch)
        for word in launch.assigned:
            m = ASSIGN.match(word.text)
            if m and holds_command(m[2]):
                reading.launched += [
                    replace(each, blocks=launch.blocks) for each in quoted_launches(word, m.start(2), m[2], m[1], known)
                ]
    _with_executors(reading)
    return reading


def _with_executors(reading: ShellReading) -> None:
    """Commands of variables are run by the commands that name the variable: those stand around them."""
    for held in reading.launched:
        if held.outer is not None or held.quote is None:
            continue
        runs = [
            e for e in reading.launched
            if e is not held and e.words and held.group in references(e.words[len(e.assigned) :])
            and e.words[0].text not in ("echo", "printf") and not e.declares
        ]  # fmt: skip
        if runs:
            held.outer, held.blocks = runs[0], (*runs[0].blocks, *held.blocks)


def references(words: list[Word]) -> set[str]:
    """Variables and arrays that words are made of."""
    return {name for w in words if not w.raw.startswith("'") for name in _REFERENCE.findall(w.raw)}


def _variables(script: Script) -> dict[str, str]:
    known: dict[str, str] = {}
    for command in script.commands:
        for word in command:
            if m := ASSIGN.match(word.text):
                known.setdefault(m[1], expand(m[2], known)[:4000])
            elif word.text not in (*DECLARES, "-x", "-r", "-g"):
                break
    return known


# ----------
# Environment variables that a launcher is told to pass on: `-x NAME=v`, `-e NAME=v`, `--export=ALL,NAME=v`.

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
