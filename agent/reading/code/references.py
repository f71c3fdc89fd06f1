"""What the bodies of a program's functions refer to, and which functions what runs can come to by that.

References go by plain names. What only lists, imports, inherits from or tests for a class is no use of it: a library
offers a hundred classes, of which a run makes three.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..run.program.syntax import Function, Loop, Syntax, dotted, last

# UNTOLD is what a condition decides that holds or not for all of a run, and of which nothing is known.
NO, UNTOLD, PERHAPS, SURELY = 0, 1, 2, 3

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
_TYPES = frozenset({"Callable", "Optional", "Union", "List", "Dict", "Tuple", "Type", "list", "dict", "tuple", "type"})
_PLAIN_METACLASSES = ("ABCMeta", "EnumMeta", "type")  # that keep no list of their classes
_DEEP = 60

Decided = Callable[[str, ast.expr], bool | None]


@dataclass(slots=True)
class Body:
    """What one function, or a module by itself, refers to: names with whether they are called.

    `texts` may be names of methods, the ends of `paths` such of functions and classes too.
    `opened` are sources of which it may call anything by a name that it looks up, `opens_all` where that may be in any
    source; of those in `wide` the name is put together, and may be any.
    """

    names: dict[str, int] = field(default_factory=dict)
    attributes: dict[str, int] = field(default_factory=dict)
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
        decided: whether a condition of a source holds, where that is known.
        shown: for each source the lines whose print the log has.
    """

    def __init__(
        self,
        sources: Mapping[str, Syntax],
        dead: Mapping[str, list[tuple[int, int]]],
        decided: Decided,
        shown: Mapping[str, list[int]],
    ) -> None:
        self._sources, self._dead, self._decided, self._shown = sources, dead, decided, shown
        self._bodies: dict[ast.AST, Body] = {}
        self._aliases: dict[Syntax, dict[str, str]] = {}

    @cached_property
    def _modules(self) -> dict[str, set[str]]:
        """Sources by the names that their modules may go by."""
        found: dict[str, set[str]] = {}
        for name in self._sources:
            for part in name.removesuffix(".py").split("/")[-2:]:
                found.setdefault(part, set()).add(name)
        return found

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
                _raise(body.names, n.id, self._level(s, n, source, node))
            elif isinstance(n, ast.Attribute):
                kept = body.names if self._module(s, n.value) in self._modules else body.attributes
                _raise(kept, n.attr, self._level(s, n, source, node))
            elif isinstance(n, ast.JoinedStr) and n.values and isinstance(n.values[0], ast.Constant):
                body.prefixes.add(str(n.values[0].value))
            elif isinstance(n, ast.Constant) and isinstance(n.value, str) and _PATH.match(n.value):
                if not offers and not _exported(s, n):
                    parts = re.split(r"[.:/]", n.value)
                    body.texts.add(parts[-1])
                    body.paths |= set(parts[-1:] if len(parts) > 1 else ())
            elif isinstance(n, ast.alias) and n.asname:
                _raise(body.names, n.name.rpartition(".")[2], PERHAPS)
            elif isinstance(n, ast.Call):
                self._open(source, s, n, node, body)
        return body

    def _level(self, s: Syntax, n: ast.expr, source: str, body: ast.AST) -> int:
        """Whether what a name stands for is called where it stands, given that its body runs."""
        shown = self._shown.get(source, ())
        return min(conditional(s, n, self._decided, source, body, shown), SURELY if _called(s, n) else PERHAPS)

    def _module(self, s: Syntax, value: ast.expr) -> str:
        """The module that a name may stand for: `losses` in `losses.focal(x)`."""
        if s not in self._aliases:
            imports = (a for n in s.every(ast.Import, ast.ImportFrom) for a in n.names)
            self._aliases[s] = {a.asname or a.name: a.name.rpartition(".")[2] for a in imports}
        name = last(value)
        return self._aliases[s].get(name, name)

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
            _raise(body.names, str(call.args[1].value), PERHAPS)
        elif name == "getattr" and len(call.args) > 1 and not isinstance(call.args[1], ast.JoinedStr):
            into = body.wide if isinstance(call.args[1], ast.BinOp) else body.opened
            into |= self._modules.get(self._module(s, call.args[0]), set())
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

    classes: Mapping[str, tuple[Syntax, ast.ClassDef]]
    idle: frozenset[Function | ast.ClassDef]
    said: frozenset[str]
    names: dict[str, int] = field(default_factory=dict)
    attributes: dict[str, int] = field(default_factory=dict)
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
            return max(self.names.get(f.name, NO), PERHAPS if self._loosely(source, f.name) else NO)
        made = self.made(source, owner)
        if not made:
            return NO
        if f.name == "__init__":
            return made
        if f.name.startswith("__") or self._called_by_base(owner, f.name):
            return min(made, PERHAPS)
        named = max(self.attributes.get(f.name, NO), self.names.get(f.name, NO))
        return min(made, PERHAPS, max(named, PERHAPS if f.name in self.texts or self._begun(f.name) else NO))

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

    def made(self, source: str, c: ast.ClassDef, depth: int = 0) -> int:
        """Whether a class, or one that inherits from it, is used."""
        if c in self.idle:
            return NO
        heirs = [h for _, h in self.classes.values() if any(last(b) == c.name for b in h.bases) and h is not c]
        own = max(self.names.get(c.name, NO), min(PERHAPS, self.attributes.get(c.name, NO)))
        named = PERHAPS if self._loosely(source, c.name) or self._registered(c) else NO
        of_heirs = [self.made(source, h, depth + 1) for h in heirs] if depth < _DEEP else []
        return max(own, named, min(PERHAPS, max(of_heirs, default=NO)))

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


def _merge(into: dict[str, int], found: Mapping[str, int], state: int) -> None:
    for name, level in found.items():
        _raise(into, name, min(state, level))


def _raise(levels: dict[str, int], name: str, level: int) -> None:
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
    above = s.parents.get(n)
    return isinstance(above, ast.Call) and above.func is n


def conditional(
    s: Syntax,
    node: ast.AST,
    decided: Decided,
    source: str,
    until: ast.AST | None = None,
    shown: Sequence[int] = (),
) -> int:
    """Whether a node is come to when the body that it belongs to runs: SURELY where nothing undecided stands before it.

    UNTOLD where one of the conditions is the same for the whole run (an option, a number of processes): then it is
    always come to, or never. Of a branch in which a line that the log has was printed it is known that it was taken.

    Args:
        shown: lines of the source whose print the log has.
    """
    inner, level = node, SURELY
    for n in s.above(node):
        if n is until or isinstance(n, Function | ast.Lambda):
            return min(level, PERHAPS) if isinstance(n, ast.Lambda) else level
        if isinstance(n, ast.If | ast.IfExp | ast.While) and inner is not n.test and decided(source, n.test) is None:
            if any(
                _spans_any(block, shown) for block in (n.body, n.orelse) if isinstance(block, list) and inner in block
            ):
                inner = n
                continue
            level = min(level, UNTOLD if not isinstance(n, ast.While) and _stands(s, n) else PERHAPS)
        if isinstance(n, ast.ExceptHandler) or (isinstance(n, ast.BoolOp) and inner is not n.values[0]):
            level = min(level, PERHAPS)
        inner = n
    return level


def _spans_any(block: list[ast.stmt], lines: Sequence[int]) -> bool:
    return any(block[0].lineno <= line <= (block[-1].end_lineno or 0) for line in lines)


_CHANGES = re.compile(r"rank|main_process|training$|global_zero|is_master|local_process", re.IGNORECASE)


def _stands(s: Syntax, branch: ast.If | ast.IfExp) -> bool:
    """Whether a condition is the same each time: nothing in it is assigned in a loop, counted, or given by a caller."""
    held = list(ast.walk(branch.test))
    if any(isinstance(n, ast.BinOp) for n in held) or any(_CHANGES.search(last(n)) for n in held if last(n)):
        return False
    function = s.function_of(branch)
    given = {a.arg for a in _arguments(function)} if function is not None else set[str]()
    moved = {n for a in s.above(branch) if isinstance(a, Loop) for n in _assigned(a)}
    bare = {n.id for n in held if isinstance(n, ast.Name) and not isinstance(s.parents.get(n), ast.Attribute)}
    fields = {n.attr for n in held if isinstance(n, ast.Attribute)}
    of_self = {n.attr for n in held if isinstance(n, ast.Attribute) and last(n.value) == "self"}
    later = _set_later(s, branch) if of_self else set[str]()
    return not bare & (moved | given) and not fields & moved and not of_self & later


def _arguments(f: Function) -> Iterator[ast.arg]:
    a = f.args
    yield from (*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x is not None))


def _assigned(loop: ast.AST) -> set[str]:
    """Names and attributes that a loop assigns."""
    stores = (n for n in ast.walk(loop) if isinstance(n, ast.Name | ast.Attribute) and isinstance(n.ctx, ast.Store))
    return {last(n) for n in stores}


def _set_later(s: Syntax, node: ast.AST) -> set[str]:
    """Attributes of an object that other methods of its class than `__init__` assign."""
    owner = next((n for n in s.above(node) if isinstance(n, ast.ClassDef)), None)
    methods = (f for f in (owner.body if owner is not None else ()) if isinstance(f, Function) and f.name != "__init__")
    return {name for f in methods for name in _assigned(f)}


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
