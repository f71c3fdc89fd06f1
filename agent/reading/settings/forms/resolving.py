"""What an expression of a program comes to in one start of it: names, attributes, calls and arithmetic followed."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from ...run.program.syntax import Function, dotted, last
from .bindings import Binding, Bindings, Scope, Store
from .given import Given, Known, Space, composed, config_space

DEPTH, STEPS = 40, 40_000  # of what refers to what, and of all that is followed in one start
SITES = 6  # callers of one function that must agree
LATEST = 1 << 30
_SUMS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_TESTS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: lambda a, b: a is b, ast.IsNot: lambda a, b: a is not b,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_MOST = 1e15
CONFIG_NAME = re.compile(r"(?i)^(?:cfg|conf(?:ig)?|args?|opts?|hparams|hp|params|settings|options|c)$")


@dataclass(frozen=True, slots=True)
class Foreign:
    """Something of a library, by its dotted name."""

    name: str


@dataclass(frozen=True, slots=True)
class Own:
    """A function, a class or (`node` is the tree) a module of the program."""

    source: Bindings
    node: ast.AST


@dataclass(frozen=True, slots=True)
class Frame:
    """A call that is being followed into a function."""

    function: ast.AST
    call: ast.Call
    source: Bindings
    outer: Frame | None


_STARTERS = ("Fire", "run", "cli", "CLI", "auto_cli")  # of fire, typer and defopt, tyro, jsonargparse


class Resolving:
    """Expressions of the sources of one start. Answers are `Known`, `Space`, `Own`, `Foreign`, a list, or None."""

    def __init__(
        self,
        entry: str,
        sources: Mapping[str, Bindings],
        given: Given,
        configs: list[str],
        text: Callable[[str], str],
    ) -> None:
        self.entry, self.sources, self.given, self.configs, self.text = entry, sources, given, configs, text
        self.started_otherwise = False  # it ran, and nobody knows with which words: defaults may not hold
        self._memo: dict[ast.AST, Any] = {}
        self._steps = STEPS
        self._depth = 0
        self._globals: dict[str, dict[str, Known]] = {}
        self._importing: set[tuple[str, str]] = set()
        self._spaces: dict[str, Space | None] = {}
        self._composed: Space | None = None

    def comes_to(self, source: Bindings, node: ast.AST) -> bool:
        """Whether a node may run."""
        raise NotImplementedError

    def called(self, node: ast.Call, source: Bindings, frame: Frame | None) -> Any:
        """What a call comes to."""
        raise NotImplementedError

    def instance(self, of: Own, call: ast.Call | None, source: Bindings, frame: Frame | None) -> Space:
        """An object of a class of the program."""
        raise NotImplementedError

    def from_command(self, scope: Function, name: str, source: Bindings) -> Any:
        """A parameter that a library fills from the command line."""
        raise NotImplementedError

    def config(self, name: str) -> Space | None:
        """The keys of a config, read once."""
        if name not in self._spaces:
            self._spaces[name] = config_space(name, self.text(name))
        return self._spaces[name]

    def forget(self) -> None:
        """Answers that were found while it was open which code runs."""
        self._memo.clear()
        self._globals.clear()
        self._steps = STEPS

    def plain(self, found: Any, name: str, node: ast.expr) -> Known | None:
        """An answer as a value, where it is one."""
        if isinstance(found, Known):
            return found
        if isinstance(found, Foreign):
            return Known(found.name, name, node.lineno)
        if isinstance(found, Own) and isinstance(found.node, Function | ast.ClassDef):
            return Known(found.node.name, name, node.lineno)
        if isinstance(found, list):
            each = [self.plain(f, name, node) for f in found]
            if all(each):
                return Known([e.value for e in each if e], name, node.lineno, all(e.sure for e in each if e))
        return None

    def foreign(self, found: Any) -> str:
        return found.name if isinstance(found, Foreign) else ""

    def own_class(self, name: str) -> bool:
        """Whether the program itself has a class of this name."""
        return any((s.tree, name) in s.bound and any(isinstance(b.value, ast.ClassDef) for b in s.bound[s.tree, name])
                   for s in self.sources.values())  # fmt: skip

    def decided(self, test: ast.expr, source: Bindings) -> bool | None:
        """Whether a test holds, where that is sure."""
        found = self.get(test, source)
        if isinstance(found, Known) and found.sure:
            return bool(found.value)
        return None

    # ----------
    # One expression.

    def get(self, node: ast.AST | None, source: Bindings, frame: Frame | None = None) -> Any:
        """What an expression comes to; None where that is unknown."""
        if node is None or self._depth > DEPTH or self._steps <= 0:
            return None
        if frame is None and node in self._memo:
            return self._memo[node]
        if frame is None:
            self._memo[node] = None  # what leads to itself is unknown
        self._steps -= 1
        self._depth += 1
        try:
            found = self._get(node, source, frame)
        finally:
            self._depth -= 1
        if frame is None:
            self._memo[node] = found
        return found

    def _get(self, node: ast.AST, source: Bindings, frame: Frame | None) -> Any:
        if isinstance(node, ast.Constant):
            return Known(node.value, source.name, node.lineno)
        if isinstance(node, ast.Name):
            return self._name(node, source, frame)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, source, frame)
        if isinstance(node, ast.Subscript):
            return self._subscript(node, source, frame)
        if isinstance(node, ast.Call):
            return self.called(node, source, frame)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return [self.get(e, source, frame) for e in node.elts[:200]]
        if isinstance(node, ast.Dict):
            return self._dict(node, source, frame)
        if isinstance(node, ast.IfExp):
            test = self.get(node.test, source, frame)
            if isinstance(test, Known):
                found = self.get(node.body if test.value else node.orelse, source, frame)
                return replace(found, sure=found.sure and test.sure) if isinstance(found, Known) else found
            return None
        return self._reckoned(node, source, frame)

    def _reckoned(self, node: ast.AST, source: Bindings, frame: Frame | None) -> Any:
        """Arithmetic, comparisons, and, or, not."""
        if isinstance(node, ast.BoolOp):
            return self._joined(node, source, frame)
        if isinstance(node, ast.UnaryOp):
            inner = self.get(node.operand, source, frame)
            if not isinstance(inner, Known):
                return None
            if isinstance(node.op, ast.Not):
                return replace(inner, value=not inner.value)
            number = isinstance(inner.value, int | float)
            return replace(inner, value=-inner.value) if isinstance(node.op, ast.USub) and number else None
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            sides = (self.get(node.left, source, frame), self.get(node.comparators[0], source, frame))
            return self.combined(node, source, sides, _TESTS.get(type(node.ops[0])))
        if isinstance(node, ast.BinOp):
            left, right = self.get(node.left, source, frame), self.get(node.right, source, frame)
            if isinstance(node.op, ast.BitOr) and isinstance(left, Space) and isinstance(right, Space):
                return left.over(right)
            if isinstance(node.op, ast.Pow):
                small = isinstance(right, Known) and isinstance(right.value, int | float) and 0 <= right.value <= 64
                return self.combined(node, source, (left, right), operator.pow) if small else None
            return self.combined(node, source, (left, right), _SUMS.get(type(node.op)))
        return None

    def combined(self, node: ast.expr, source: Bindings, sides: tuple[Any, Any], how: Any) -> Known | None:
        """Two values made into one; the line is that of the one that stands elsewhere, where only one does."""
        left, right = (self.plain(s, source.name, node) if isinstance(s, list) else s for s in sides)
        if how is None or not (isinstance(left, Known) and isinstance(right, Known)):
            return None
        numbers = [v.value for v in (left, right) if isinstance(v.value, int | float)]
        if any(abs(n) > _MOST for n in numbers):
            return None
        try:
            value = how(left.value, right.value)
        except (TypeError, ValueError, ZeroDivisionError, OverflowError):
            return None
        if isinstance(value, str | list) and len(value) > 2000:
            return None
        apart = [v for v in (left, right) if (v.file, v.line) != (source.name, node.lineno)]
        at = apart[0] if len(apart) == 1 else Known(None, source.name, node.lineno)
        return Known(value, at.file, at.line, left.sure and right.sure)

    def _joined(self, node: ast.BoolOp, source: Bindings, frame: Frame | None) -> Any:
        stops = isinstance(node.op, ast.Or)
        found = [self.get(v, source, frame) for v in node.values]
        for number, one in enumerate(found):
            if isinstance(one, Known) and one.sure and bool(one.value) is stops:
                return one if all(isinstance(f, Known) for f in found[:number]) else replace(one, value=stops)
        if all(isinstance(f, Known) for f in found):
            one = next((f for f in found if bool(f.value) is stops), found[-1])
            return replace(one, sure=all(f.sure for f in found))
        return None

    def _dict(self, node: ast.Dict, source: Bindings, frame: Frame | None) -> Space:
        made = Space()
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                inner = self.get(value, source, frame)
                made = made.over(inner) if isinstance(inner, Space) else Space(made.held, whole=False)
            elif isinstance(named := self.get(key, source, frame), Known):
                made.held[str(named.value)] = self.get(value, source, frame)
            else:
                made.whole = False
        return made

    # ----------
    # Names.

    def _name(self, node: ast.Name, source: Bindings, frame: Frame | None) -> Any:
        scope: Scope | None = source.scopes.get(node)
        if isinstance(source.parents.get(node), ast.arg | ast.arguments) and scope is not None:
            scope = source.outer(scope)
        before = source.statement(node).lineno  # pyright: ignore[reportAttributeAccessIssue]
        inside: ast.AST | None = node
        while scope is not None:
            bindings = source.bound.get((scope, node.id))
            is_parameter = isinstance(scope, Function | ast.Lambda) and node.id in parameters(scope)
            if bindings or is_parameter:
                start = self._parameter(scope, node.id, source, frame) if is_parameter else NOTHING
                return self._bound(bindings or [], start, source, inside, before, frame, node.id)
            scope, inside, before = source.outer(scope), None, LATEST
        if node.id == "__name__" and self.entry:
            own = "__main__" if source.name == self.entry else source.name
            return Known(own, source.name, node.lineno)
        return None

    def global_(self, source: Bindings, name: str) -> Any:
        """A global of a source as others see it."""
        bindings = source.bound.get((source.tree, name))
        return self._bound(bindings, NOTHING, source, None, LATEST, None, name) if bindings else None

    def _bound(
        self,
        bindings: Sequence[Binding],
        start: Any,
        source: Bindings,
        use: ast.AST | None,
        before: int,
        frame: Frame | None,
        name: str,
    ) -> Any:
        """The value of a name where it is used: of the last binding that surely held and of all that may have since."""
        if name in source.shared:
            return None
        top = bool(bindings) and isinstance(source.scopes.get(bindings[0].statement), ast.Module)
        if top and source.runs_text and before > source.runs_text and name in (new := self.executed(source)):
            return new[name]
        own = source.statement(use) if use is not None else None
        loops = set(_loops(source, use)) if use is not None else set()
        live = [b for b in bindings if b.statement is not own and self.comes_to(source, b.statement)]
        earlier = [b for b in live if b.statement.lineno < before]  # pyright: ignore[reportAttributeAccessIssue]
        later = [b for b in live if b not in earlier and loops & set(_loops(source, b.statement))]
        first = next((n for n in range(len(earlier) - 1, -1, -1) if not self._may_not(source, earlier[n])), None)
        found = [self._of_binding(b, source, frame) for b in (earlier[first or 0 :] + later)]
        if first is None and start is not NOTHING:
            found.append(start)
        elif first is None and not earlier and use is None:
            return None
        if top and source.runs_text and not self.given.known:
            found = [replace(f, sure=False) if isinstance(f, Known) else f for f in found]
        return agreed(found)

    def _may_not(self, source: Bindings, binding: Binding) -> bool:
        """Whether a binding may be passed over: it stands under an open condition, in a loop, or may fail."""
        node, above = binding.statement, source.parents.get(binding.statement)
        while above is not None and not isinstance(above, Function | ast.Lambda | ast.ClassDef | ast.Module):
            if isinstance(above, ast.If) and node is not above.test and self.decided(above.test, source) is None:
                return True
            if isinstance(above, ast.For | ast.AsyncFor | ast.While | ast.Try | ast.ExceptHandler | ast.Match):
                return True
            node, above = above, source.parents.get(above)
        return False

    def _of_binding(self, binding: Binding, source: Bindings, frame: Frame | None) -> Any:
        if binding.imported is not None:
            return self._imported(*binding.imported, source)
        if isinstance(binding.value, Function | ast.ClassDef):
            return Own(source, binding.value)
        found = self.get(binding.value, source, frame)
        if binding.part is None:
            return found
        return found[binding.part] if isinstance(found, list) and binding.part < len(found) else None

    def _imported(self, module: str, level: int, name: str, source: Bindings) -> Any:
        folder = PurePosixPath(source.name).parent
        for _ in range(level - 1):
            folder = folder.parent
        found = self._module(module, folder, bool(level))
        if not name:
            return Own(found, found.tree) if found else Foreign(module)
        if found is not None and (found.name, name) not in self._importing:  # modules may import from one another
            self._importing.add((found.name, name))
            try:
                if (inner := self.global_(found, name)) is not None:
                    return inner
            finally:
                self._importing.discard((found.name, name))
        deeper = self._module(f"{module}.{name}".strip("."), folder, bool(level))
        if deeper is not None:
            return Own(deeper, deeper.tree)
        return Foreign(f"{module}.{name}") if found is None and not level else None

    def _module(self, module: str, folder: PurePosixPath, relative: bool) -> Bindings | None:
        path = module.replace(".", "/")
        tails = [f"{path}.py", f"{path}/__init__.py"] if path else ["__init__.py"]
        tops = [folder] if relative else [PurePosixPath(self.entry).parent, folder]
        for top in tops:
            for tail in tails:
                if (name := (top / tail).as_posix()) in self.sources:
                    return self.sources[name]
        ends_so = [n for n in self.sources if any(n == t or n.endswith(f"/{t}") for t in tails)] if path else []
        return self.sources[ends_so[0]] if len(ends_so) == 1 and not relative else None

    def executed(self, source: Bindings) -> dict[str, Known]:
        """Globals that files run by `exec` and words `--name=value` set anew, as nanoGPT's configurator does it."""
        if source.name not in self._globals:
            self._globals[source.name] = new = {}
            named = [str(w.value) for w in self.given.words]
            order = sorted(self._scripts(), key=lambda n: next((i for i, w in enumerate(named) if n.endswith(w)), -1))
            for name in order:
                if name in self.sources:
                    inner = self.sources[name]
                else:
                    try:
                        inner = Bindings(name, ast.parse(self.text(name)))
                    except (SyntaxError, ValueError, RecursionError, MemoryError):
                        continue
                for scope, variable in list(inner.bound):
                    if scope is inner.tree and (source.tree, variable) in source.bound:
                        value = self.plain(self.global_(inner, variable), name, ast.Name(variable, lineno=1))
                        if value is not None:
                            new[variable] = value
            for key, value in self.given.flags.items():
                if (source.tree, key) in source.bound:
                    new[key] = value
        return self._globals[source.name]

    def _scripts(self) -> Iterable[str]:
        return (n for n in self.configs if n.endswith(".py") and n not in (self.entry,))

    # ----------
    # Parameters of functions.

    def _parameter(self, scope: ast.AST, name: str, source: Bindings, frame: Frame | None) -> Any:
        while frame is not None:
            if frame.function is scope:
                return self._argument(scope, name, source, frame.call, frame.source, frame.outer)
            frame = frame.outer
        if not isinstance(scope, Function):
            return None
        decorators = [dotted(d) for d in scope.decorator_list]
        if any(d.endswith("hydra.main") or d == "main" for d in decorators):
            if self._composed is None:
                self._composed = composed(self.configs, self.text, self.given)
            return self._composed
        if any(d.rpartition(".")[2] in ("wrap", "cli", "main", "command", "parse") for d in decorators):
            return self.from_command(scope, name, source)
        owner = source.class_of(scope) if scope.name == "__init__" else None
        sites = [
            (s, c) for s in self.sources.values() for c in s.calls.get(owner.name if owner else scope.name, ())
            if self.comes_to(s, c) and (owner or self._means(scope, c, s, source))
        ]  # fmt: skip
        if not sites and self._started_by_library(scope, source):
            return self.from_command(scope, name, source)
        if not sites or len(sites) > SITES:
            return None
        return agreed([self._argument(scope, name, source, c, s, None) for s, c in sites])

    def _means(self, function: Function, call: ast.Call, there: Bindings, source: Bindings) -> bool:
        """Whether a call by a function's name is one of it: `trainer.train()` is none of `def train()`."""
        if isinstance(call.func, ast.Name) or source.class_of(function) is not None:
            return True
        made = self.get(call.func, there)
        return isinstance(made, Own) and made.node is function

    def _started_by_library(self, function: Function, source: Bindings) -> bool:
        """Whether a function is handed to a library that calls it with the words of the command: `fire.Fire(train)`."""
        calls = (c for called in _STARTERS for c in source.calls.get(called, ()))
        return any(c.args and last(c.args[0]) == function.name and self.comes_to(source, c) for c in calls)

    def _argument(
        self, scope: ast.AST, name: str, source: Bindings, call: ast.Call, there: Bindings, frame: Frame | None
    ) -> Any:
        """What a call gives for a parameter, else its default."""
        assert isinstance(scope, Function | ast.Lambda)
        order = [a.arg for a in (*scope.args.posonlyargs, *scope.args.args)]
        if order[:1] in (["self"], ["cls"]):
            order = order[1:]
        for keyword in call.keywords:
            if keyword.arg == name:
                return self.get(keyword.value, there, frame)
        if name in order and order.index(name) < len(call.args):
            before = call.args[: order.index(name) + 1]
            starred = any(isinstance(a, ast.Starred) for a in before)
            return None if starred else self.get(before[-1], there, frame)
        for keyword in call.keywords:
            if keyword.arg is None:
                inner = self.get(keyword.value, there, frame)
                if not isinstance(inner, Space) or (name not in inner.held and not inner.whole):
                    return None
                if name in inner.held:
                    return inner.held[name]
        return self.get(parameters(scope).get(name), source)

    # ----------
    # Attributes and keys.

    def _attribute(self, node: ast.Attribute, source: Bindings, frame: Frame | None) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            return self._of_self(node, source, frame)
        base = self.get(node.value, source, frame)
        if (set_anew := self._stored(node, node.attr, node.value, source)) is not NOTHING:
            return set_anew
        if isinstance(base, Own):
            if isinstance(base.node, ast.Module):
                return self.global_(base.source, node.attr)
            return (
                None
                if isinstance(base.node, Function)
                else self._key(self.instance(base, None, source, frame), node.attr)
            )
        if isinstance(base, Foreign):
            return Foreign(f"{base.name}.{node.attr}")
        return self._by_key(node) if base is None else self._key(base, node.attr)

    def _by_key(self, node: ast.Attribute) -> Known | None:
        """`cfg.optim.clip` of an object nobody can follow, by the key `optim.clip` of the configs that were loaded."""
        root, *parts = dotted(node).split(".")
        if root == "self" and len(parts) > 1:
            root, *parts = parts
        if not CONFIG_NAME.search(root) or "?" in parts:
            return None
        if len(parts) > 1 and (given := self.given.flag(".".join(parts))) is not None:
            return replace(given, sure=False) if given.sure else None
        found = []
        for name in self.configs:
            loaded: Any = self.config(name)
            for part in parts:
                loaded = loaded.held.get(part) if isinstance(loaded, Space) else None
            found += [loaded] if isinstance(loaded, Known) else []
        made = agreed(found)
        return replace(made, sure=False) if isinstance(made, Known) else None

    def _subscript(self, node: ast.Subscript, source: Bindings, frame: Frame | None) -> Any:
        key = self.get(node.slice, source, frame)
        base = self.get(node.value, source, frame)
        if not isinstance(key, Known):
            return None
        if self.foreign(base) == "os.environ":
            return self.given.flags.get(f"env.{key.value}")
        if self.foreign(base) == "sys.argv" and isinstance(key.value, int):
            return self._word(key.value)
        if isinstance(base, list):
            fits = isinstance(key.value, int) and -len(base) <= key.value < len(base)
            return base[key.value] if fits else None
        if (set_anew := self._stored(node, str(key.value), node.value, source)) is not NOTHING:
            return set_anew
        return self._key(base, str(key.value))

    def _word(self, number: int) -> Known | None:
        command = self.given.command
        if command is None or not 0 < number <= len(self.given.all) or "$" in self.given.all[number - 1]:
            return None
        return Known(self.given.all[number - 1], command.file, command.line)

    @staticmethod
    def _key(base: Any, key: str) -> Any:
        return base.held.get(key) if isinstance(base, Space) else None

    def _stored(self, node: ast.AST, name: str, base: ast.expr, source: Bindings) -> Any:
        """What an assignment to the attribute or key itself gave it."""
        called = dotted(base)
        mine = [
            s for s in source.stores.get(name, ())
            if s.base == called and s.statement is not source.statement(node) and self.comes_to(source, s.statement)
        ]  # fmt: skip
        if not mine:
            return NOTHING
        return self._one_store(mine, source)

    def _one_store(self, stores: list[Store], source: Bindings) -> Any:
        if len(stores) > 1 or self._may_not(source, Binding(stores[0].statement)):
            return agreed([self.get(s.value, source) for s in stores]) if len(stores) > 1 else None
        return self.get(stores[0].value, source)

    def _of_self(self, node: ast.Attribute, source: Bindings, frame: Frame | None) -> Any:
        """`self.lr`: what the methods of the class set it to, else what the class has."""
        owner = source.class_of(node)
        if owner is None:
            return None
        mine = [
            s for s in source.stores.get(node.attr, ()) if s.base == "self" and source.class_of(s.statement) is owner
        ]
        mine = [s for s in mine if s.statement is not source.statement(node) and self.comes_to(source, s.statement)]
        if mine:
            return agreed([self.get(s.value, source, frame) for s in mine])
        bindings = source.bound.get((owner, node.attr))
        return self._bound(bindings, NOTHING, source, None, LATEST, frame, node.attr) if bindings else None


NOTHING = object()


def parameters(scope: ast.AST) -> dict[str, ast.expr | None]:
    """Parameters of a function with their defaults."""
    if not isinstance(scope, Function | ast.Lambda):
        return {}
    a = scope.args
    places = [*a.posonlyargs, *a.args]
    defaults: list[ast.expr | None] = [*[None] * (len(places) - len(a.defaults)), *a.defaults]
    found = {p.arg: d for p, d in zip(places, defaults, strict=True)}
    found |= {p.arg: d for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)}
    return found | {p.arg: None for p in (a.vararg, a.kwarg) if p is not None}


def _loops(source: Bindings, node: ast.AST) -> Iterable[ast.AST]:
    above = source.parents.get(node)
    while above is not None and not isinstance(above, Function | ast.Lambda | ast.ClassDef):
        if isinstance(above, ast.For | ast.AsyncFor | ast.While):
            yield above
        above = source.parents.get(above)


def agreed(found: list[Any]) -> Any:
    """The one thing that all answers are; None where they differ or one is unknown."""
    if not found or any(f is None for f in found):
        return None
    first = found[0]
    if all(f is first or f == first for f in found[1:]):
        return first
    if all(isinstance(f, Known) and repr(f.value) == repr(first.value) for f in found if isinstance(first, Known)):
        return replace(first, sure=all(f.sure for f in found)) if isinstance(first, Known) else None
    return None
