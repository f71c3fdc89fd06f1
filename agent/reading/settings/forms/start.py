"""One start of one program: which of its code runs, what its expressions come to, and which names it reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from ...run.program.syntax import Function, last
from ...run.what_ran import Program
from .bindings import Bindings, ends
from .given import Given, Known, Space
from .objects import Objects, option_name
from .resolving import CONFIG_NAME, NOTHING, SITES, Foreign, Own

_BY_NAME = {"globals", "locals", "fire", "Fire", "eval"}  # where these stand, any function may be called
_LIBRARIES = ("transformers", "trl")
# Calls of libraries that print, keep or copy what they are given, and act on nothing of it.
_KEEPS = re.compile(
    r"(?i)^(?:dumps?|save\w*|print|pp?rint|pformat|info|debug|warning|error|log\w*|write\w*|asdict|astuple|vars|str|repr"
    r"|len|list|dict|sorted|type|id|isinstance|hasattr|fields|is_dataclass|replace|copy|deepcopy|add_text|add_hparams"
    r"|to_yaml|to_container|create|set_struct|items|keys|values|update|init|Path|join|namespace)$"
)

_KEY = re.compile(r"[\w.\-/]{1,120}\Z")  # a text that may name a key, or a way to it


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
        self._read: Any = NOTHING

    def value(self, name: str, node: ast.expr) -> Known | None:
        """What an expression comes to; of something outside the folder its dotted name."""
        return self.plain(self.get(node, self.sources[name]), name, node)

    def test(self, name: str, test: ast.expr) -> bool | None:
        """Whether a test holds, where that is sure; it may be of another tree of the same text."""
        source = self.sources.get(name)
        own = source.at(test) if source is not None else None
        return None if source is None or own is None else self.decided(own, source)

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

    def _running(self, source: Bindings, root: ast.AST) -> Iterator[ast.AST]:
        """What runs of a module or a function, without the functions inside it."""
        stack = list(ast.iter_child_nodes(root))
        while stack:
            node = stack.pop()
            yield node
            if isinstance(node, Function):
                stack += [*node.decorator_list, node.args]
                continue
            taken = self.decided(node.test, source) if isinstance(node, ast.If | ast.IfExp) else None
            if isinstance(node, ast.If | ast.IfExp) and taken is not None:
                chosen = node.body if taken else node.orelse
                stack += [node.test, *(chosen if isinstance(chosen, list) else [chosen])]
                continue
            stack += ast.iter_child_nodes(node)

    def _named(self, source: Bindings, root: ast.AST) -> set[str]:
        """Names that stand in what runs of a module or a function, without the functions inside it."""
        names: set[str] = set()
        for node in self._running(source, root):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.alias):
                names.add(node.name.rpartition(".")[2])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                names.add(node.value)
            elif isinstance(node, ast.JoinedStr) and isinstance(source.parents.get(node), ast.Call):
                names |= self._built(source, node)
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

    @cached_property
    def declared(self) -> frozenset[str]:
        """Names of all options and of all fields with a type."""
        fields = (name for s in self.sources.values() for scope, name in s.bound if isinstance(scope, ast.ClassDef))
        return frozenset((*self.options().held, *fields))

    # ----------
    # Names that what runs reads: attributes, keys, parameters.

    def reads(self) -> frozenset[str] | None:
        """Names of all that is read; None where a library is handed what nobody can follow, or code is missing."""
        if self._read is NOTHING:
            called = self._all_called()
            self._read = None if called is None else self._all_read(called)
        return self._read

    def _all_read(self, called: set[ast.AST]) -> frozenset[str] | None:
        names: set[str] = set()
        for source in self.sources.values():
            for root in (source.tree, *(f for f in source.functions if f in called)):
                for node in self._running(source, root):
                    if isinstance(node, ast.Call) and not self._handed_over(node, source, names):
                        return None
                    names.update(self._read_by(node, source))
        return frozenset(names)

    @staticmethod
    def _read_by(node: ast.AST, source: Bindings) -> Iterable[str]:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            return (node.attr,)
        if isinstance(node, ast.Name) and source.runs_text and isinstance(node.ctx, ast.Load):
            return (node.id,)
        if isinstance(node, ast.arg):
            return (node.arg,)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _KEY.match(node.value):
            above = source.parents.get(node)
            above = source.parents.get(above) if isinstance(above, ast.keyword) else above
            declares = isinstance(above, ast.Call) and last(above.func) == "add_argument"
            return () if declares else re.findall(r"[A-Za-z_]\w*", node.value.replace("-", "_"))
        return ()

    def _handed_over(self, call: ast.Call, source: Bindings, names: set[str]) -> bool:
        """Add the names of what a library is given as a whole; False where it is given what nobody can follow."""
        if last(call.func) == "getattr" and len(call.args) > 1 and not isinstance(call.args[1], ast.Constant):
            return not CONFIG_NAME.search(last(call.args[0]))
        target = self.get(call.func, source)
        if isinstance(target, Own):
            return True
        keeps = _KEEPS.search(last(call.func)) is not None
        for value, spread in (*((a, False) for a in call.args), *((k.value, k.arg is None) for k in call.keywords)):
            given = self.get(value, source)
            if isinstance(given, Space) and not keeps:
                names |= set(_within(given))
            elif spread and given is None and isinstance(target, Foreign) and not keeps:
                bound = source.bound.get((source.scopes[call], value.id)) if isinstance(value, ast.Name) else None
                if not (bound and all(isinstance(b.statement, ast.For | ast.AsyncFor) for b in bound)):
                    return False
        return True

    # ----------
    # Globals that a file or the command sets after the source itself.

    def overrides(self, name: str) -> dict[str, Known]:
        source = self.sources.get(name)
        if source is None or not source.runs_text:
            return {}
        return self.executed(source)


def _within(space: Space) -> Iterator[str]:
    """All names of a space and of those inside it."""
    for name, value in space.held.items():
        yield name
        if isinstance(value, Space):
            yield from _within(value)
