"""Commands of one program of which a run starts one: what belongs to the others did not run.

They are functions under a decorator of click or typer, functions that a parser of argparse is given, or classes that
bear the word of their command. Which one was asked for is told by a traceback through it, by the words of the commands
that are known, or by which of the words stand anywhere in what the run was given and printed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping

from ..run.program.syntax import Function, Syntax, last, receiver

_WORD = re.compile(r"(?i)(?:sub)?(?:command|cmd)(?:_?name)?\Z")
Node = Function | ast.ClassDef


def idle(
    sources: Mapping[str, Syntax], words: frozenset[str], said: frozenset[str], in_frame: Callable[[str, ast.AST], bool]
) -> Iterator[Node]:
    """Functions and classes of commands that were not asked for, where it is known that another one was.

    Args:
        words: arguments of the commands that started the program.
        said: words of configs, commands and logs, in small letters.
        in_frame: whether a traceback went through a part of a source.
    """
    by_class: dict[str, list[tuple[str, Node, str]]] = {}
    for name, s in sources.items():
        yield from _others(_decorated(name, s), words, frozenset(), in_frame)
        yield from _others(_parsed(name, s, sources), words, said, in_frame)
        for c in s.every(ast.ClassDef):
            for attribute, word in _borne(c):
                by_class.setdefault(attribute, []).append((name, c, word))
    for found in by_class.values():
        yield from _others(found, words, said, in_frame)


def _others(
    commands: list[tuple[str, Node, str]],
    words: frozenset[str],
    said: frozenset[str],
    in_frame: Callable[[str, ast.AST], bool],
) -> Iterator[Node]:
    asked = [n for source, n, _ in commands if in_frame(source, n)]
    asked = asked or [n for _, n, word in commands if words & {word, word.replace("_", "-")}]
    asked = asked or [n for _, n, word in commands if word.lower() in said]
    if asked:
        yield from (n for _, n, _ in commands if n not in asked)


def _decorated(name: str, s: Syntax) -> list[tuple[str, Node, str]]:
    """Functions that click or typer makes commands of."""
    found: list[tuple[str, Node, str]] = []
    for f in s.functions:
        for d in f.decorator_list:
            if last(d.func if isinstance(d, ast.Call) else d) == "command":
                given = d.args[0] if isinstance(d, ast.Call) and d.args else None
                found.append((name, f, _text(given) or f.name))
    return found


def _parsed(name: str, s: Syntax, sources: Mapping[str, Syntax]) -> list[tuple[str, Node, str]]:
    """Functions that `parser.set_defaults(func=f)` binds to the word of `add_parser`."""
    word_of = {
        last(n.targets[0]): _text(n.value.args[0])
        for n in s.every(ast.Assign)
        if isinstance(n.value, ast.Call) and last(n.value.func) == "add_parser" and n.value.args
    }
    bound = [(last(receiver(c)), last(k.value)) for c in s.calls_of("set_defaults") for k in c.keywords]
    functions = {f.name: (n, f) for n, other in sources.items() for f in other.functions}
    functions |= {f.name: (name, f) for f in s.functions}
    return [(*functions[f], word_of[p]) for p, f in bound if f in functions and word_of.get(p)]


def _borne(c: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The attribute of a class that holds the word of its command, with the word."""
    for n in c.body:
        if isinstance(n, ast.Assign) and _WORD.match(last(n.targets[0])) and (word := _text(n.value)):
            yield last(n.targets[0]), word


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
