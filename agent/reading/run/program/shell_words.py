"""Words of a shell script with their lines. Nothing is run; what only a shell could know stays as written."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, field

from ..lines import Positions

# ----------
# Blocks of a shell script: which `if`, `case`, loop or function a position is in, told from words as they come.


_TESTS = {"[", "[[", "test", "((", "grep", "command", "which", "type", "false", "!"}
_AGAIN = {"then", "else", "elif", "do", "if", "while", "until", "{", "!", "time"}  # a command begins behind these


class Blocks:
    """Positions of a script and the blocks they are in, outermost first.

    A block is `if3.1` (its first branch), `case4.2`, `loop5`, `function6`, or `and7` for what runs only if what stands
    before `&&` or `||` says so. Group commands in braces that always run are none.
    """

    def __init__(self) -> None:
        self._open: list[str] = []  # every compound command, also those that are no blocks
        self._links: list[str] = []  # of the list of commands that has been read so far: `&&`, `||`
        self._tests = False
        self._begins = True
        self._named = False  # a function's name and its parentheses have been read
        self._count = 0
        self._starts: list[int] = [0]
        self._paths: list[tuple[str, ...]] = [()]
        self._tops: list[int] = []  # where the outermost compound commands begin
        self._first = 0  # position of the command's first word

    def at(self, position: int) -> tuple[str, ...]:
        """The blocks that a position is in."""
        return self._paths[max(bisect.bisect_right(self._starts, position) - 1, 0)]

    def top(self, position: int) -> int:
        """Where the outermost compound command begins that a position in a block is in."""
        return self._tops[max(bisect.bisect_right(self._tops, position) - 1, 0)] if self._tops else position

    def word(self, word: str, position: int, first: bool) -> None:
        """The next word of a command, as it is written."""
        if first and not self._named:
            self._first = position
        if not (first or self._begins):
            return
        outside = not self._open
        if first and not self._links:
            self._tests = word in _TESTS
        self._begins = word in _AGAIN or (word[:1] not in "'\"$" and self._named)
        self._compound(word)
        if outside and self._open:
            self._tops.append(self._first)
        chained = "||" in self._links or ("&&" in self._links and self._tests)
        path = tuple(b for b in self._open if b[:1] not in "{0" and not b.endswith(".0"))
        path = (*path, f"and{self._count}") if chained and word not in ("{", "}") else path
        if path != self._paths[-1]:
            self._starts.append(position)
            self._paths.append(path)

    def _compound(self, word: str) -> None:
        self._count += 1
        if word in ("if", "case"):
            self._open.append(f"{word}{self._count}.0")
        elif word in ("for", "while", "until", "select"):
            self._open.append(f"loop{self._count}")
        elif word == "function":
            self._named = self._begins = True
        elif word == "{":
            chained = "||" in self._links or ("&&" in self._links and self._tests)
            kind = "function" if self._named else "and" if chained else "{"
            self._open.append(f"{kind}{self._count}" if kind != "{" else "{")
            self._named = False
            self._links, self._begins = [], True
        elif word in ("then", "else"):
            self._branch()
        elif word in ("fi", "done", "esac", "}") and self._open:
            self._open.pop()

    def _branch(self) -> None:
        if self._open and "." in self._open[-1]:
            head, _, number = self._open[-1].partition(".")
            self._open[-1] = f"{head}.{int(number) + 1}"

    def parenthesis(self, empty: bool) -> None:
        """A `(` behind a word: with `)` right behind it, the word is a function's name."""
        self._named = self._begins = empty or self._named

    def pattern(self) -> None:
        """The `)` behind a pattern of a `case`."""
        self._branch()
        self._begins, self._links = True, []

    def link(self, mark: str) -> None:
        """What stands between two commands."""
        if mark in ("&&", "||"):
            self._links.append(mark)
        elif mark != "|" and mark != "|&":
            self._links = []
        self._begins = True


# ----------

WORDS = 60_000
_BITS = re.compile(
    r"(?P<join>\\\r?\n)|(?P<comment>\#[^\n]*)|(?P<break>\n|;;?|&&|\|\|?|(?<![<>&])&(?![>&]))"
    r"|(?P<heredoc><<-?[ \t]*['\"]?(?P<tag>[A-Za-z_]\w*)['\"]?)|(?P<redirect>\d*(?:&>>?|>>?&?|<&?)[ \t]*)"
    r"|(?P<space>[ \t\r]+)|(?P<open>\()|(?P<close>\))"
    r"|(?P<word>(?:'[^']*'|\"(?:[^\"\\]|\\.)*\"|\$\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|`[^`\n]*`|\$\{[^{}\n]*\}|\\.|[^\s;&|<>()'\"\\`$]+|[$'\"\\`])+)",
    re.DOTALL,
)
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\Z")
_VARIABLE = re.compile(r"\$(?:\{(\w+|\w+\[[@*]\])(?::?[-=]([^}]*))?\}|(\w+))")


@dataclass(frozen=True, slots=True)
class Word:
    """One word: text without its quotes, line from 1, where it stands in the script (`end` 0 when unknown).

    `inside` says that it stands within quotes that hold more than it.
    """

    text: str
    line: int
    start: int
    quoted: bool = False
    end: int = 0
    raw: str = ""
    inside: bool = False

    def place(self, skip: int) -> tuple[int, int, bool]:
        """Start and end of the source of its text from `skip` on (0 when unknown); whether it is within quotes."""
        if not self.end:
            return 0, 0, False
        if self.raw[:skip] == self.text[:skip]:
            return self.start + skip, self.end, self.inside
        bare = self.raw[1:-1]
        if self.raw[:1] in "'\"" and self.raw[-1:] == self.raw[:1] and bare == self.text:
            return self.start + 1 + skip, self.end - 1, True
        return 0, 0, False


@dataclass(slots=True)
class Script:
    """Commands and arrays as lists of words, here-documents as (target, text, first line).

    An array that is added to (`ARGS+=(...)`) or filled in several branches has a part for each: `ARGS`, `ARGS#1`. What
    a later assignment surely replaces is not kept. `blocks` tells which block of the script a position is in.
    """

    commands: list[list[Word]] = field(default_factory=list)
    heredocs: list[tuple[str, str, int]] = field(default_factory=list)
    arrays: dict[str, list[Word]] = field(default_factory=dict)
    blocks: Blocks = field(default_factory=Blocks)

    def put_array(self, name: str, words: list[Word], adds: bool, position: int) -> None:
        """Keep an array, or a part of one."""
        parts = [key for key in self.arrays if key.partition("#")[0] == name] if name in self.arrays else []
        if not adds and not self.blocks.at(position):
            for key in parts:
                del self.arrays[key]
            parts = []
        self.arrays[f"{name}#{len(parts)}" if parts else name] = words


def read_script(text: str, first_line: int = 1, base: int | None = 0) -> Script:
    """Split a script into words. Never fails: what cannot be understood is passed over.

    Args:
        base: where the text begins in the file; None when its characters do not stand there as they are. Other than
            0, it stands within quotes.
    """
    script, lines = Script(), Positions(text)
    command: list[Word] = []
    waiting: list[str] = []
    array, target = "", False
    position = count = open_parens = opened = 0
    while position < len(text) and count < WORDS:
        m = _BITS.match(text, position)
        if not m:
            position += 1
            continue
        count += 1
        line, position = lines.at(m.start()) + first_line - 1, m.end()
        kind = m.lastgroup if m.lastgroup != "tag" else "heredoc"
        if kind == "comment" and m.start() and text[m.start() - 1] not in " \t\n;(":
            kind = "word"
        if kind == "word" and not target:
            end = 0 if base is None else base + m.end()
            command.append(Word(unquote(m[0]), line, (base or 0) + m.start(), m[0][:1] in "'\"", end, m[0], bool(base)))
            if not array:
                script.blocks.word(command[-1].raw, command[-1].start, len(command) == 1)
        elif kind == "heredoc":
            waiting.append(m["tag"])
        elif kind == "open" and command and _ARRAY.match(command[-1].text) and not array:
            array, opened = command[-1].text.rstrip("="), command[-1].start
            script.commands.append(command[:-1])
            command = []
        elif kind == "close" and array:
            script.put_array(array.rstrip("+"), command, array[-1] == "+", opened)
            command, array = [], ""
        elif kind in ("open", "close") and not array:
            open_parens += 1 if kind == "open" else -1
            if kind == "open" and command:
                script.blocks.parenthesis(text[m.end() :].lstrip(" \t")[:1] == ")")
            if open_parens < 0:  # ends the pattern of a `case`
                open_parens = 0
                script.commands.append(command)
                script.blocks.pattern()
                command = []
        elif kind == "break" and not (array and m[0] == "\n"):
            script.blocks.link(m[0])
            position = _end_command(text, m, script, command, waiting, lines, first_line)
            command = []
        if kind not in ("space", "join"):
            target = kind == "redirect"
    script.commands.append(command)
    if array:
        script.put_array(array.rstrip("+"), command, array[-1] == "+", opened)
    script.commands = [c for c in script.commands if c]
    return script


def _end_command(
    text: str, m: re.Match[str], script: Script, command: list[Word], waiting: list[str], lines: Positions, first: int
) -> int:
    """File a command; at a newline, take the here-documents that it announced. Returns where to go on."""
    script.commands.append(command)
    position = m.end()
    if m[0] != "\n":
        return position
    while waiting:
        end = re.compile(r"^[ \t]*" + re.escape(waiting.pop(0)) + r"[ \t\r]*$", re.MULTILINE).search(text, position)
        stop = end.start() if end else len(text)
        name = text[text.rfind("\n", 0, m.start()) + 1 : m.start()]
        script.heredocs.append((name, text[position:stop], lines.at(position) + first - 1))
        position = end.end() if end else len(text)
    return position


def unquote(raw: str) -> str:
    """A word without its quotes; escapes inside double quotes are resolved."""
    if not any(c in raw for c in "'\"\\"):
        return raw
    out: list[str] = []
    for part in re.finditer(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|\\\r?\n|\\(.)|([^'\"\\]+)|.", raw, re.DOTALL):
        single, double, escaped, bare = part.groups()
        if single is not None:
            out.append(single)
        elif double is not None:
            out.append(
                re.sub(r"\\\r?\n", lambda m: " " * (len(m[0]) - 1) + "\n", re.sub(r'\\(["\\$`])', r"\1", double))
            )
        else:
            out.append(escaped or bare or "")
    return "".join(out)


def expand(text: str, known: dict[str, str], depth: int = 0) -> str:
    """`$NAME`, `${NAME}` and `${NAME:-default}` replaced where the script itself says what they are."""
    if "$" not in text or depth > 5 or len(text) > 4000:
        return text

    def value(m: re.Match[str]) -> str:
        found = known.get(m[1] or m[3])
        return found if found is not None else (m[2] if m[2] is not None else m[0])

    out = _VARIABLE.sub(value, text)
    return expand(out, known, depth + 1) if out != text and len(out) <= 4000 else out[:4000]
