"""What the bodies of a program's functions refer to, and which functions what runs can come to by that.

References go by names, and by where a name comes from as far as imports tell. What only lists, imports, inherits from
or tests for a class is no use of it: a library offers a hundred classes, of which a run makes three.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..run.program.syntax import Function, Syntax, dotted, last
from .conditions import NO, PERHAPS, SURELY, Conditions
from .origins import Named, Origins

# Calls that reach by a path, which may stand in a config, what no name in the code tells.
_BY_PATH = frozenset({
    "instantiate", "instantiate_from_config", "get_obj_from_str", "locate", "import_string", "import_object",
    "LightningCLI", "auto_cli",
})  # fmt: skip
_ASKS_FOR = ("isinstance", "issubclass")  # that name a class and make none
# Decorators that leave it to the code itself to call what they decorate; any other may register it somewhere.
_QUIET = re.compile(
    r"^(?:torch|functools|nn|np|numpy|jax|abc|contextlib)\.|^(?:property|staticmethod|classmethod|dataclass|cache|lru_cache"
    r"|wraps|no_grad|inference_mode|abstractmethod|contextmanager|cached_property|override|overload|torch_compile|record)$"
    r"|\.setter$|(?:^|\.)dataclass$"
)
_REGISTERS = re.compile(r"(?i)regist|builder|add_to")
# Bases that call but one method of their own accord (others of theirs are called by name); any other base may call all.
_OWN_CALLS = {
    "Module": {"forward"}, "Function": {"forward", "backward"}, "object": set(), "Dataset": set(), "Sampler": set(),
    "IterableDataset": set(), "Enum": set(), "Exception": set(), "NamedTuple": set(), "TypedDict": set(), "ABC": set(),
}  # fmt: skip
_PATH = re.compile(r"(?:[\w-]+[.:/])*[A-Za-z_]\w*\Z")  # a text that may name something
_PARSES = re.compile(r"Parser$|^tyro\.cli$|^draccus\.(?:parse|wrap)$|^simple_parsing\.parse$|^OmegaConf\.structured$")
_TYPES = frozenset({"Callable", "Optional", "Union", "List", "Dict", "Tuple", "Type", "list", "dict", "tuple", "type"})
_PLAIN_METACLASSES = ("ABCMeta", "EnumMeta", "type")  # that keep no list of their classes
_DEEP = 60


@dataclass(slots=True)
class Body:
    """What one function, or a module by itself, refers to: names with whether they are called, attributes of objects.

    Names go with the source that defines them, attributes of `self` with the class; otherwise with neither.

    `texts` may be names of methods, the ends of `paths` such of functions and classes too.
    `opened` are sources of which it may call anything by a name that it looks up, `opens_all` where that may be in any
    source; of those in `wide` the name is put together, and may be any.
    """

    names: dict[Named, int] = field(default_factory=dict)
    attributes: dict[Named, int] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    prefixes: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)
    wide: set[str] = field(default_factory=set)
    opens_all: bool = False


class References:
    """The bodies of a program's sources, each read when it is first asked for.

    Args:
        dead: for each source the first and last lines of branches that are not taken.
    """

    def __init__(
        self, sources: Mapping[str, Syntax], dead: Mapping[str, list[tuple[int, int]]], conditions: Conditions
    ) -> None:
        self._sources, self._dead, self._conditions = sources, dead, conditions
        self._bodies: dict[ast.AST, Body] = {}
        self._origins = Origins(sources)

    def of(self, source: str, node: ast.AST) -> Body:
        """What runs with a function or a module refers to."""
        if node not in self._bodies:
            self._bodies[node] = self._read(source, node)
        return self._bodies[node]

    def _read(self, source: str, node: ast.AST) -> Body:
        s, body, dead = self._sources[source], Body(), self._dead[source]
        offers = source.endswith("__init__.py") and isinstance(node, ast.Module)
        for n in _own(node):
            line = getattr(n, "lineno", 0)
            if any(a <= line <= b for a, b in dead):
                continue
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load):
                _raise(body.names, self._origins.of(source, n.id), self._level(s, n, source, node))
            elif isinstance(n, ast.Attribute):
                self._attribute(source, s, n, node, body)
            elif isinstance(n, ast.JoinedStr) and n.values and isinstance(n.values[0], ast.Constant):
                body.prefixes.add(str(n.values[0].value))
            elif isinstance(n, ast.Constant) and isinstance(n.value, str) and _PATH.match(n.value):
                if not offers and not _exported(s, n):
                    parts = re.split(r"[.:/]", n.value)
                    body.texts.add(parts[-1])
                    body.paths |= set(parts[-1:] if len(parts) > 1 else ())
            elif isinstance(n, ast.Call):
                self._open(source, s, n, node, body)
        return body

    def _level(self, s: Syntax, n: ast.expr, source: str, body: ast.AST) -> int:
        """Whether what a name stands for is called where it stands, given that its body runs."""
        return min(self._conditions.level(source, n, body), SURELY if _called(s, n) else PERHAPS)

    def _attribute(self, source: str, s: Syntax, n: ast.Attribute, of: ast.AST, body: Body) -> None:
        """Add what an attribute refers to: something of a module, a method of the class around it, or of any object."""
        level = self._level(s, n, source, of)
        there = self._origins.module(source, n.value)
        if there is not None:
            _raise(body.names, self._origins.of(there, n.attr) if there else ("", n.attr), level)
            return
        own = last(n.value) in ("self", "cls", "super") and not isinstance(n.value, ast.Attribute)
        owner = next((c.name for c in s.above(n) if isinstance(c, ast.ClassDef)), "") if own else ""
        _raise(body.attributes, (owner, n.attr), level)

    def _open(self, source: str, s: Syntax, call: ast.Call, body_of: ast.AST, body: Body) -> None:
        """Add what a call may reach by a name that nobody can read in the code."""
        name, at_top = last(call.func), isinstance(body_of, ast.Module)
        if name in _BY_PATH:
            body.opens_all = True
        elif name == "globals" or (name in ("locals", "vars") and at_top and not call.args):
            by = _asked_for(s, call)
            if not isinstance(by, ast.Constant):
                (body.opened if isinstance(by, ast.Name | ast.Attribute) else body.wide).add(source)
        elif name in ("Fire", "exec") and not call.args:
            body.opened.add(source)
        elif name == "getattr" and len(call.args) > 1 and isinstance(call.args[1], ast.Constant):
            _raise(body.names, ("", str(call.args[1].value)), PERHAPS)
        elif name == "getattr" and len(call.args) > 1 and not isinstance(call.args[1], ast.JoinedStr):
            into = body.wide if isinstance(call.args[1], ast.BinOp) else body.opened
            into |= self._origins.sources_of(source, call.args[0])
        elif name in ("import_module", "__import__") and not _offers_lazily(s, call):
            body.opens_all = body.opens_all or any(
                len(c.args) > 1 and not isinstance(c.args[1], ast.Constant) and not _offers_lazily(s, c)
                for c in s.calls_of("getattr")
            )


@dataclass(slots=True)
class Seen:
    """All that the bodies that run refer to.

    `idle` are commands of the program that were not asked for. `said` are the words of configs, commands and logs, in
    small letters: what code looks up by a name that it does not have itself stands there.
    """

    classes: Mapping[str, tuple[str, ast.ClassDef]]
    idle: frozenset[Function | ast.ClassDef]
    said: frozenset[str]
    names: dict[Named, int] = field(default_factory=dict)
    attributes: dict[Named, int] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    prefixes: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)
    wide: set[str] = field(default_factory=set)
    opens_all: bool = False

    def add(self, body: Body, state: int) -> None:
        """Take in what a body that runs, perhaps or surely, refers to."""
        _merge(self.names, body.names, state)
        _merge(self.attributes, body.attributes, state)
        self.texts |= body.texts
        self.paths |= body.paths
        self.prefixes |= body.prefixes
        self.opened |= body.opened
        self.wide |= body.wide
        self.opens_all = self.opens_all or body.opens_all

    def state(self, source: str, s: Syntax, f: Function) -> int:
        """Whether a function is among it."""
        if f in self.idle:
            return NO
        if any(self._hands_on(d, f.name) for d in f.decorator_list):
            return PERHAPS
        owner = s.parents.get(f)
        while owner is not None and not isinstance(owner, Function | ast.ClassDef | ast.Module):
            owner = s.parents.get(owner)
        if not isinstance(owner, ast.ClassDef):
            return max(self._named(source, f.name), PERHAPS if self._loosely(source, f.name) else NO)
        made = self.made(source, owner)
        if not made:
            return NO
        if f.name == "__init__":
            return made
        if f.name.startswith("__") or self._called_by_base(owner, f.name):
            return min(made, PERHAPS)
        named = max(self._asked_of(owner, f.name), self._named(source, f.name))
        return min(made, PERHAPS, max(named, PERHAPS if f.name in self.texts or self._begun(f.name) else NO))

    def _named(self, source: str, name: str) -> int:
        return max(self.names.get(("", name), NO), self.names.get((source, name), NO))

    def _asked_of(self, owner: ast.ClassDef, method: str) -> int:
        """Whether a method is asked for, of any object or of one of its own kin."""
        asked = self.attributes.get(("", method), NO)
        for name in self._kin(owner.name):
            asked = max(asked, self.attributes.get((name, method), NO))
        return asked

    def _kin(self, name: str) -> set[str]:
        """A class, all that it inherits from and all that inherit from it."""
        found, pending = {name}, [name]
        while pending:
            c = self.classes.get(pending.pop())
            for base in (last(b) for b in c[1].bases) if c is not None else ():
                if base not in found:
                    found.add(base)
                    pending.append(base)
        heirs = {name}
        for _ in range(_DEEP):
            more = {n for n, (_, c) in self.classes.items() if any(last(b) in heirs for b in c.bases)} - heirs
            if not more:
                break
            heirs |= more
        return found | heirs

    def _loosely(self, source: str, name: str) -> bool:
        """Whether something of a module may be come to by a name that is made up or looked up."""
        open_to = self.opens_all or source in self.opened
        if name in self.paths or source in self.wide or (open_to and (name in self.texts or name.lower() in self.said)):
            return True
        return self._begun(name)

    def _begun(self, name: str) -> bool:
        return any(len(p) > 2 and name.startswith(p) for p in self.prefixes)

    def _hands_on(self, decorator: ast.expr, name: str) -> bool:
        """Whether a decorator may call what it decorates, or put it into a register from which it is taken."""
        if _QUIET.search(dotted(decorator)):
            return False
        if not _REGISTERS.search(dotted(decorator)):
            return True
        keys = {n.value for n in ast.walk(decorator) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        return any(key in self.texts or key.lower() in self.said for key in keys or {name})

    def made(self, source: str, c: ast.ClassDef, depth: int = 0, heirs_count: int = PERHAPS) -> int:
        """Whether a class, or one that inherits from it, is used.

        `heirs_count` is as much as an heir's use tells: its own methods may stand in the place of those of the class.
        """
        if c in self.idle:
            return NO
        heirs = [h for h in self.classes.values() if any(last(b) == c.name for b in h[1].bases) and h[1] is not c]
        own = max(self._named(source, c.name), min(PERHAPS, self.attributes.get(("", c.name), NO)))
        named = PERHAPS if self._loosely(source, c.name) or self._registered(c) else NO
        of_heirs = [self.made(*h, depth + 1, heirs_count) for h in heirs] if depth < _DEEP else []
        return max(own, named, min(heirs_count, max(of_heirs, default=NO)))

    def _registered(self, c: ast.ClassDef) -> bool:
        """Whether a decorator, a metaclass or a base keeps the class in a list from which it may be taken."""
        if any(self._hands_on(d, c.name) for d in c.decorator_list):
            return True
        return self._keeps_heirs(c) and (c.name in self.texts or c.name.lower() in self.said)

    def _keeps_heirs(self, c: ast.ClassDef, depth: int = 0) -> bool:
        if any(k.arg == "metaclass" and last(k.value) not in _PLAIN_METACLASSES for k in c.keywords):
            return True
        if any(isinstance(n, Function) and n.name == "__init_subclass__" for n in c.body):
            return True
        bases = (self.classes[last(b)][1] for b in c.bases if last(b) in self.classes)
        return depth < _DEEP and any(b is not c and self._keeps_heirs(b, depth + 1) for b in bases)

    def _called_by_base(self, c: ast.ClassDef, method: str, depth: int = 0) -> bool:
        for base in c.bases:
            name = last(base)
            if name in self.classes and depth < _DEEP and self.classes[name][1] is not c:
                if self._called_by_base(self.classes[name][1], method, depth + 1):
                    return True
            elif name not in _OWN_CALLS or method in _OWN_CALLS[name]:
                return True
        return False


def _merge(into: dict[Named, int], found: Mapping[Named, int], state: int) -> None:
    for name, level in found.items():
        _raise(into, name, min(state, level))


def _raise(levels: dict[Named, int], name: Named, level: int) -> None:
    levels[name] = max(levels.get(name, NO), level)


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """What runs with a body: without the bodies of functions in it, with their decorators and defaults.

    Bases of a class and classes that something is tested for are left out.
    """
    stack: list[ast.AST] = list(node.body) if isinstance(node, Function) else [node]
    while stack:
        n = stack.pop()
        if isinstance(n, Function):
            stack += [*n.decorator_list, *n.args.defaults, *(d for d in n.args.kw_defaults if d is not None)]
            continue
        yield n
        if isinstance(n, ast.ClassDef):
            stack += [*n.body, *n.decorator_list, *n.keywords, *(b for b in n.bases if not last(b))]
        elif isinstance(n, ast.Call) and last(n.func) in _ASKS_FOR:
            stack += [n.func, *n.args[:1]]
        elif isinstance(n, ast.Subscript) and last(n.value) in _TYPES:
            continue
        else:
            stack.extend(ast.iter_child_nodes(n))


def _called(s: Syntax, n: ast.AST) -> bool:
    """Whether what a name stands for is called, a class asked for one of its fields, or filled by a parser."""
    above = s.parents.get(n)
    given = s.parents.get(above) if isinstance(above, ast.Tuple | ast.List) else above
    if isinstance(given, ast.Call) and given.func is not n and _PARSES.search(dotted(given.func)):
        return True
    if isinstance(given, ast.Assign) and given is not above and last(n)[:1].isupper():
        names = {last(t) for t in given.targets}
        return any(_PARSES.search(dotted(c.func)) and names & set(map(last, c.args)) for c in s.calls)
    if isinstance(above, ast.Attribute) and last(n)[:1].isupper():
        return not isinstance(s.parents.get(above), ast.Call)
    return isinstance(above, ast.Call) and above.func is n


def _exported(s: Syntax, text: ast.Constant) -> bool:
    """Whether a text stands in `__all__`."""
    return any(
        any(last(t) == "__all__" for t in (n.targets if isinstance(n, ast.Assign) else [n.target]))
        for n in s.above(text) if isinstance(n, ast.Assign | ast.AugAssign | ast.AnnAssign)
    )  # fmt: skip


def _asked_for(s: Syntax, call: ast.Call) -> ast.expr | None:
    """What `globals()["main"]` or `globals().get(name)` is asked for; None where it is handed on as a whole."""
    above = s.parents.get(call)
    if isinstance(above, ast.Attribute) and above.attr in ("get", "pop"):
        use = s.parents.get(above)
        return use.args[0] if isinstance(use, ast.Call) and use.args else None
    return above.slice if isinstance(above, ast.Subscript) else None


def _offers_lazily(s: Syntax, node: ast.AST) -> bool:
    """Whether a module gives its parts only when they are imported: by `__getattr__`, or as a kind of module."""
    return any(
        (isinstance(n, Function) and n.name == "__getattr__")
        or (isinstance(n, ast.ClassDef) and any(last(b) == "ModuleType" for b in n.bases))
        for n in s.above(node)
    )
