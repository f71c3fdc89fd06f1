"""Blocks of a shell script: which `if`, `case`, loop or function a position is in, told from words as they come."""

from __future__ import annotations

import bisect

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
