"""What the expressions of a program come to, with the line that decides it, and which of its code runs.

code = Effective(ws.ran, text)
code.runs("train.py", node)        # False where a decided test, or that nobody calls it, keeps a node from running
code.values("train.py", expr)      # [Known(1e-3, "launch.sh", 2)] of `AdamW(lr=args.lr)`; [] where nothing is known
code.overridden("train.py", "lr")  # whether what runs later sets a global anew in every start

Every start of a program is looked at for itself; what cannot be followed is unknown, never a default.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from ...run.program.syntax import Function, last
from ...run.what_ran import Program, Ran
from ..settings_map import normal
from .bindings import Bindings
from .given import Given, Known
from .start import Start

STARTS = 8  # commands of one program that are looked at
SOURCES, NODES = 120, 400_000  # sources of a program that are indexed, and their characters in all


class Effective:
    """All programs of a workspace with all their starts.

    Args:
        ran: what ran.
        text: the text of a file of the run by its name.
    """

    def __init__(self, ran: Ran, text: Callable[[str], str]) -> None:
        self._ran, self._text = ran, text
        self._indexed: dict[str, Bindings] = {}
        self._starts: dict[str, list[Start]] = {}
        self._defaults: dict[str, list[Any]] | None = None
        for program in ran.programs:
            sources = self._sources(program)
            commands = list({(c.arguments, c.variables): c for c in program.commands}.values())[:STARTS]
            given = [g for c in commands if (g := Given(c, text)).command is not None] or [Given(None, text)]
            whole = all(ran.trees.get(n) is not None for n in program.reached) and len(sources) == len(program.reached)
            for each in given:
                start = Start(program.file.name, sources, each, program, text, whole)
                for name in sources:
                    self._starts.setdefault(name, []).append(start)

    def _sources(self, program: Program) -> dict[str, Bindings]:
        found: dict[str, Bindings] = {}
        room = NODES
        for name in program.reached[:SOURCES]:
            tree = self._ran.trees.get(name)
            room -= len(self._text(name)) if tree is not None else 0
            if tree is not None and room > 0:
                found[name] = self._index(name, tree)
        return found

    def _index(self, name: str, tree: ast.Module) -> Bindings:
        if name not in self._indexed:
            self._indexed[name] = Bindings(name, tree)
        return self._indexed[name]

    def tree(self, name: str) -> ast.Module | None:
        """The tree whose nodes are asked about."""
        return self._ran.trees.get(name)

    def _of(self, name: str) -> list[Start]:
        """The starts that a source belongs to; one that no program reaches is looked at alone."""
        if name not in self._starts:
            tree = self._ran.trees.get(name)
            alone = {name: self._index(name, tree)} if tree is not None else {}
            self._starts[name] = [Start("", alone, Given(None, self._text), None, self._text, False)] if alone else []
        return self._starts[name]

    def runs(self, name: str, node: ast.AST) -> bool:
        """Whether any start may come to a node."""
        starts = self._of(name)
        return not starts or any(s.runs(name, node) for s in starts)

    def decided(self, program: str, name: str, test: ast.expr) -> bool | None:
        """Whether a test in a source holds in every start of a program, where that is sure.

        Args:
            test: may be of another tree of the same text.
        """
        found = {s.test(name, test) for s in self._starts.get(program, ()) if s.entry == program}
        return found.pop() if len(found) == 1 else None

    def values(self, name: str, node: ast.expr) -> list[Known]:
        """What an expression comes to in each start that comes to it, each value once; empty where any is unknown."""
        found: dict[tuple[str, str, int], Known] = {}
        for start in self._of(name):
            if start.runs(name, node):
                value = start.value(name, node)
                if value is None:
                    return []
                found.setdefault((repr(value.value), value.file, value.line), value)
        return list(found.values())

    def left_open(self, name: str) -> bool:
        """Whether a source is of programs that ran in a way nobody knows: defaults may not hold."""
        starts = self._of(name)
        return bool(starts) and all(s.started_otherwise for s in starts)

    def overridden(self, name: str, variable: str) -> bool:
        """Whether every start sets a global of a source anew, by a file that it executes or a word of its command."""
        starts = self._of(name)
        return bool(starts) and all(variable in s.overrides(name) for s in starts)

    def kept(self, name: str, node: ast.expr, key: str, style: str) -> bool:
        """Whether a default, a field of a class or a global stays as it is in any start."""
        starts = self._of(name)
        if not starts or style not in ("default", "assignment"):
            return True
        source = starts[0].sources[name]
        scope = source.scopes.get(node)
        if style == "assignment" and isinstance(scope, ast.Module):
            return not self.overridden(name, key)
        if style == "assignment" and isinstance(scope, ast.ClassDef):
            return any(s.keeps_field(source, scope, key, node) for s in starts)
        return style != "default" or any(s.keeps_option(source, node) for s in starts)

    def of_class(self, name: str, node: ast.expr) -> bool:
        """Whether an assignment is a field of a class: a default."""
        return any(isinstance(s.sources[name].scopes.get(node), ast.ClassDef) for s in self._of(name)[:1])

    def counted(self, name: str, node: ast.expr) -> bool:
        """Whether what is assigned is a local of a function that the function goes on to count up or to assign anew."""
        for start in self._of(name)[:1]:
            source = start.sources[name]
            scope, statement = source.scopes.get(node), source.parents.get(node)
            target = getattr(statement, "targets", [None])[0]
            if not isinstance(scope, Function) or not isinstance(target, ast.Name):
                return False
            stores = [n for n in ast.walk(scope) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
            return sum(n.id == target.id for n in stores) > 1 or target.id.isupper()
        return False

    def beside_trainer(self, name: str, call: ast.expr) -> bool:
        """Whether an optimizer is made in a program whose trainer makes its own and does not get this one."""
        starts = self._of(name)
        return bool(starts) and all(s.beside_trainer(name, call) for s in starts)

    def calls(self) -> set[str] | None:
        """Last names of all calls in what runs; None where not all of the programs is known."""
        starts = self._whole()
        return None if starts is None else {name for start in starts for name in start.calls()}

    def imports(self) -> set[str] | None:
        """Packages that the programs import; None where not all of the programs is known."""
        starts = self._whole()
        return None if starts is None else {name for start in starts for name in start.imports()}

    def reads(self, name: str, key: str) -> bool | None:
        """Whether what runs of the programs that a source or config belongs to reads a key; None where none can tell.

        Args:
            name: a source, a config that programs loaded, or one that they wrote.
            key: the key, of a dotted one its last part.
        """
        mine = {p.file.name for p in self._ran.programs if name in p.reached or name in p.configs}
        folder = PurePosixPath(name).parent  # what lies beside a log is what its program kept of its settings
        beside = {p.file.name for p in self._ran.programs if folder.name and folder in map(_folder, p.logs)}
        mine = mine or beside
        starts = [s for program in sorted(mine) for s in self._starts.get(program, ()) if s.entry == program]
        found = [s.reads() for s in starts]
        if not found or None in found:
            return None
        return any(f is not None and key in f for f in found)

    def declares(self, key: str) -> bool:
        """Whether a program has an option or a field of a class of this name."""
        return any(key in s.declared for starts in self._starts.values() for s in starts[:1])

    def defaults(self, key: str) -> list[Any]:
        """Values that hold where nobody sets a thing, as the programs' code has them; None where a look-up has none."""
        if self._defaults is None:
            self._defaults = defaultdict(list)
            for name, tree in self._ran.trees.items():
                for start in self._of(name)[:1] if tree is not None else ():
                    for given, default in start.defaults(name):
                        self._defaults[normal(given)].append(default)
        return self._defaults.get(normal(key), [])

    def unread_default(self, name: str, node: ast.expr, key: str) -> bool:
        """Whether what runs reads others of the same parser or own class, but not what has this default."""
        starts = self._of(name)
        if not starts or self.reads(name, key.replace("-", "_")) is not False:
            return False
        owner = starts[0].sources[name].scopes.get(node)
        beside = set(starts[0].options().held)
        if isinstance(owner, ast.ClassDef):
            if not all(self._own(b) for b in owner.bases):
                return False
            beside = {last(n.target) for n in owner.body if isinstance(n, ast.AnnAssign)}
        return any(self.reads(name, other) for other in beside)

    def _own(self, base: ast.expr) -> bool:
        """Whether a base class calls and reads nothing of its own accord."""
        plain = last(base) in ("object", "ABC", "NamedTuple", "BaseModel", "Namespace")
        return plain or any(s.own_class(last(base)) for starts in self._starts.values() for s in starts[:1])

    def _whole(self) -> list[Start] | None:
        starts = [s for p in self._ran.programs for s in self._starts.get(p.file.name, ())]
        return starts if starts and all(s.whole for s in starts) else None

    def replaced(self, name: str, text: str) -> Effective:
        """The same with another text of one source."""
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            tree = None
        ran = replace(self._ran, trees={**self._ran.trees, name: tree})
        return Effective(ran, lambda n: text if n == name else self._text(n))


def _folder(name: str) -> PurePosixPath:
    return PurePosixPath(name).parent
