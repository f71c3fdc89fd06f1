"""What the expressions of a program come to, with the line that decides it, and which of its code runs.

code = Effective(ws.ran, text)
code.runs("train.py", node)        # False where a decided test, or that nobody calls it, keeps a node from running
code.values("train.py", expr)      # [Known(1e-3, "launch.sh", 2)] of `AdamW(lr=args.lr)`; [] where nothing is known
code.overridden("train.py", "lr")  # whether what runs later sets a global anew in every start

Every start of a program is looked at for itself; what cannot be followed is unknown, never a default.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from ...run.program.syntax import Function, last
from ...run.what_ran import Program, Ran
from .bindings import Bindings, ends
from .given import Given, Known
from .objects import Objects, option_name
from .resolving import SITES, Own

STARTS = 8  # commands of one program that are looked at
SOURCES, NODES = 120, 400_000  # sources of a program that are indexed, and their characters in all
_BY_NAME = {"globals", "locals", "fire", "Fire", "eval"}  # where these stand, any function may be called
_LIBRARIES = ("transformers", "trl")


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


class Start(Objects):
    """One start of one program."""

    def __init__(
        self,
        entry: str,
        sources: Mapping[str, Bindings],
        given: Given,
        program: Program | None,
        text: Callable[[str], str],
        whole: bool,
    ) -> None:
        super().__init__(entry, sources, given, list(program.configs) if program else [], text)
        self.whole = whole
        self.started_otherwise = program is not None and bool(program.logs) and not given.known
        self._called: set[ast.AST] | None = None
        self._counting = False
        self._makes_own: bool | None = None

    def value(self, name: str, node: ast.expr) -> Known | None:
        """What an expression comes to; of something outside the folder its dotted name."""
        return self.plain(self.get(node, self.sources[name]), name, node)

    # ----------
    # Which code runs.

    def runs(self, name: str, node: ast.AST) -> bool:
        return self.comes_to(self.sources[name], node)

    def comes_to(self, source: Bindings, node: ast.AST) -> bool:
        """Whether a node may be come to: no decided test, earlier exit or lack of callers keeps it from running."""
        called = self._all_called()
        above = source.parents.get(node)
        while above is not None:
            if isinstance(above, ast.If | ast.IfExp) and self._shut(source, above, node):
                return False
            if isinstance(above, Function) and node in above.body and called is not None and above not in called:
                return False
            if isinstance(node, ast.stmt) and self._left_before(source, node):
                return False
            node, above = above, source.parents.get(above)
        return True

    def _shut(self, source: Bindings, test: ast.If | ast.IfExp, inside: ast.AST) -> bool:
        """Whether a branch that something stands in is the one that is not taken."""
        if inside is test.test:
            return False
        taken = self.decided(test.test, source)
        body = test.body if isinstance(test.body, list) else [test.body]
        return taken is not None and taken != (inside in body)

    def _left_before(self, source: Bindings, node: ast.stmt) -> bool:
        """Whether the block was left for good before a statement: `if args.eval_only: return`."""
        for earlier in source.before(node):
            if isinstance(earlier, ast.If) and (ends(earlier.body) or ends(earlier.orelse)):
                taken = self.decided(earlier.test, source)
                if taken is not None and ends(earlier.body if taken else earlier.orelse):
                    return True
        return False

    def _all_called(self) -> set[ast.AST] | None:
        """Functions that something which runs names; None where that cannot be told, or is being found out."""
        if self._called is None and self.whole and not self._counting:
            self._counting = True
            self._called = self._count()
            self._counting = False
            self.forget()
        return self._called

    def _count(self) -> set[ast.AST]:
        names: set[str] = set()
        for source in self.sources.values():
            names |= self._named(source, source.tree)
        every = [(source, f) for source in self.sources.values() for f in source.functions]
        called: set[ast.AST] = set()
        while True:
            fresh = [(s, f) for s, f in every if f not in called and self._may_be_called(s, f, names)]
            if not fresh:
                return called
            for source, function in fresh:
                called.add(function)
                names |= self._named(source, function)

    def _may_be_called(self, source: Bindings, function: Function, names: set[str]) -> bool:
        if function.name in names or function.decorator_list or names & _BY_NAME:
            return True
        owner = source.class_of(function)
        if owner is None:
            return False
        dunder = function.name.startswith("__")
        foreign = any(not self.own_class(last(b)) and last(b) != "object" for b in owner.bases)
        return (dunder or foreign or bool(owner.decorator_list)) and owner.name in names

    def _named(self, source: Bindings, root: ast.AST) -> set[str]:
        """Names that stand in what runs of a module or a function, without the functions inside it."""
        names: set[str] = set()
        stack = list(ast.iter_child_nodes(root))
        while stack:
            node = stack.pop()
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.alias):
                names.add(node.name.rpartition(".")[2])
                continue
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                names.add(node.value)
            elif isinstance(node, ast.JoinedStr) and isinstance(source.parents.get(node), ast.Call):
                names |= self._built(source, node)
            if isinstance(node, Function):
                stack += [*node.decorator_list, node.args]
                continue
            taken = self.decided(node.test, source) if isinstance(node, ast.If) else None
            if isinstance(node, ast.If) and taken is not None:
                stack += [node.test, *(node.body if taken else node.orelse)]
                continue
            stack += ast.iter_child_nodes(node)
        return names

    def _built(self, source: Bindings, text: ast.JoinedStr) -> set[str]:
        """Functions that `getattr(self, f"train_{kind}")` may mean."""
        call = source.parents.get(text)
        start = text.values[0] if text.values else None
        if not (isinstance(call, ast.Call) and last(call.func) == "getattr" and isinstance(start, ast.Constant)):
            return set()
        return {f.name for s in self.sources.values() for f in s.functions if f.name.startswith(str(start.value))}

    def calls(self) -> set[str]:
        """Last names of the calls in what runs."""
        return {
            name for source in self.sources.values() for name, calls in source.calls.items()
            if any(self.comes_to(source, c) for c in calls)
        }  # fmt: skip

    def imports(self) -> set[str]:
        """Packages that the sources import."""
        found = (b.imported for s in self.sources.values() for all_ in s.bound.values() for b in all_)
        return {i[0].split(".")[0] for i in found if i is not None and not i[1]}

    def keeps_option(self, source: Bindings, node: ast.AST) -> bool:
        """Whether the default of an option is what it comes to."""
        call = source.parents.get(node)
        while call is not None and not (isinstance(call, ast.Call) and last(call.func) == "add_argument"):
            call = source.parents.get(call)
        if call is None:
            return True
        names = [str(a.value) for a in call.args if isinstance(a, ast.Constant)]
        if self.given.flag(*names) is not None:
            return False
        found = self.options().held.get(option_name(call))
        inside = range(call.lineno, (call.end_lineno or call.lineno) + 1)
        return not isinstance(found, Known) or not isinstance(node, ast.Constant) or found.line in inside

    def keeps_field(self, source: Bindings, owner: ast.ClassDef, key: str, node: ast.expr) -> bool:
        """Whether the default of a field is what an object of its class has."""
        of = Own(source, owner)
        sites = [(s, c) for s in self.sources.values() for c in s.calls.get(owner.name, ()) if self.comes_to(s, c)]
        made = [self.instance(of, c, s, None) for s, c in sites[:SITES]] or [
            self.told(self.instance(of, None, source, None))
        ]
        found = [m.held.get(key) for m in made]
        if not isinstance(node, ast.Constant):
            return any(isinstance(f, Known) for f in found)
        return any(isinstance(f, Known) and (f.file, f.line) == (source.name, node.lineno) for f in found)

    def beside_trainer(self, name: str, call: ast.expr) -> bool:
        """See `Effective.beside_trainer`."""
        if self.sources[name].class_of(call) is not None:
            return False
        if self._makes_own is None:
            made = list(self._trainers())
            given = ("optimizers", "optimizer", "optimizer_cls_and_kwargs")
            self._makes_own = bool(made) and not any(k.arg is None or k.arg in given for c in made for k in c.keywords)
        return self._makes_own

    def _trainers(self) -> Iterator[ast.Call]:
        """Calls that make a trainer of a library."""
        for source in self.sources.values():
            for called, calls in source.calls.items():
                if called.endswith("Trainer"):
                    for c in calls:
                        named = self.foreign(self.get(c.func, source))
                        if named.split(".")[0] in _LIBRARIES and self.comes_to(source, c):
                            yield c

    # ----------
    # Globals that a file or the command sets after the source itself.

    def overrides(self, name: str) -> dict[str, Known]:
        source = self.sources.get(name)
        if source is None or not source.runs_text:
            return {}
        return self.executed(source)
