"""What calls come to in one start of a program: parsed arguments, loaded configs, objects, what functions return."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from ...run.program.syntax import Function, dotted, last
from ..settings_map import parse
from .bindings import Bindings
from .given import Known, Space
from .resolving import Frame, Own, Resolving, agreed, parameters

_LOADS = {"safe_load", "load", "full_load", "unsafe_load", "loads", "load_yaml", "load_yaml_config"}
_WRAPS = {
    "EasyDict", "edict", "dict", "DictConfig", "create", "Namespace", "SimpleNamespace", "vars", "asdict", "deepcopy",
    "copy", "to_container", "Munch", "munchify", "Box", "AttrDict", "DotDict", "Dict", "ConfigDict", "to_object",
    "resolve", "structured", "DotMap", "Path", "str", "expanduser", "read_text", "open", "read",
}  # fmt: skip
_PLAIN = ("int", "float", "str", "")  # types of options that are read as they stand
_PARSES = {"parse_args", "parse_known_args", "parse_intermixed_args"}
_OF_CLASS = {"cli", "parse", "CLI", "auto_cli"}  # tyro.cli(Config), draccus.parse(Config), simple_parsing.parse(Config)
_MAKES = {"float": float, "int": int, "str": str, "bool": bool, "abs": abs, "round": round}
_SECONDS = {"days": 86400, "seconds": 1, "microseconds": 1e-6, "milliseconds": 0.001, "minutes": 60, "hours": 3600,
            "weeks": 604800}  # fmt: skip


class Objects(Resolving):
    """Expressions of the sources of one start, calls included."""

    _declared: Space | None = None

    def forget(self) -> None:
        super().forget()
        self._declared = None

    def called(self, node: ast.Call, source: Bindings, frame: Frame | None) -> Any:
        name = last(node.func)
        if name in _PARSES:
            return self._options_of(node, source)
        if name == "parse_args_into_dataclasses":
            return self._dataclasses(node, source, frame)
        if name == "timedelta":
            return self._span(node, source, frame)
        if name in ("get", "getenv", "getattr", "pop"):
            return self._looked_up(node, name, source, frame)
        target = self.get(node.func, source, frame)
        if isinstance(target, Own):
            if isinstance(target.node, ast.ClassDef):
                return self.instance(target, node, source, frame)
            return self._returned(target, node, source, frame)
        if name in _MAKES and len(node.args) == 1 and isinstance(node.func, ast.Name):
            return self._made(_MAKES[name], self.get(node.args[0], source, frame))
        if name in _OF_CLASS and node.args:
            of = self.get(node.args[0], source, frame)
            is_class = isinstance(of, Own) and isinstance(of.node, ast.ClassDef)
            return self.told(self.instance(of, None, source, frame)) if is_class else None
        if name in _LOADS:
            return self._loaded(node, source, frame)
        if name == "merge":
            return self._merged([self.get(a, source, frame) for a in node.args])
        if name in ("from_cli", "from_dotlist"):
            made = Space()
            for key, value in self.given.dotted() if name == "from_cli" else ():
                made.put(key, value)
            return made if name == "from_cli" and self.given.known else None
        if name in _WRAPS:
            return self._wrapped(node, source, frame)
        return None

    @staticmethod
    def _made(kind: Callable[[Any], Any], found: Any) -> Any:
        if not isinstance(found, Known):
            return None
        try:
            return replace(found, value=kind(found.value))
        except (TypeError, ValueError, OverflowError):
            return None

    @staticmethod
    def _merged(spaces: list[Any]) -> Space | None:
        if not spaces or not all(isinstance(s, Space) for s in spaces):
            return None
        made = Space()
        for s in spaces:
            made = made.over(s)
        return made

    def _wrapped(self, node: ast.Call, source: Bindings, frame: Frame | None) -> Any:
        """What is only wrapped in another form stays what it is; keywords are put over it."""
        inner = [self.get(a, source, frame) for a in node.args[:1]]
        if not inner and isinstance(node.func, ast.Attribute):  # open(path).read(), Path(path).read_text()
            inner = [self.get(node.func.value, source, frame)]
        if last(node.func) in ("Path", "str", "expanduser", "open", "read", "read_text"):
            return inner[0] if inner and isinstance(inner[0], Known) else None
        made = Space() if not node.args else inner[0]
        if not isinstance(made, Space):
            return None
        more = Space()
        for k in node.keywords:
            found = self.get(k.value, source, frame)
            if k.arg is not None:
                more.held[k.arg] = found
            elif isinstance(found, Space):
                more = more.over(found)
            else:
                more.whole = False
        return made.over(more)

    def _returned(self, target: Own, node: ast.Call, source: Bindings, frame: Frame | None) -> Any:
        function = target.node
        if not isinstance(function, Function) or (function.decorator_list and not node.args and not node.keywords):
            return None
        inner = Frame(function, node, source, frame)
        seen, outer = 0, frame
        while outer is not None:
            seen, outer = seen + (outer.function is function), outer.outer
        if seen:
            return None
        returns = [
            r for r in ast.walk(function)
            if isinstance(r, ast.Return) and target.source.scopes.get(r) is function and self.comes_to(target.source, r)
        ]  # fmt: skip
        return agreed([self.get(r.value, target.source, inner) for r in returns]) if returns else None

    def _looked_up(self, node: ast.Call, name: str, source: Bindings, frame: Frame | None) -> Any:
        """`cfg.get("lr", 1e-3)`, `getattr(args, "lr", None)`, `os.environ.get("X")`."""
        whole = name == "getattr"
        rest = node.args[1:] if whole else node.args
        base = (
            node.args[0] if whole and node.args else node.func.value if isinstance(node.func, ast.Attribute) else None
        )
        key = self.get(rest[0], source, frame) if rest else None
        default = self.get(rest[1], source, frame) if len(rest) > 1 else Known(None, source.name, node.lineno)
        if not isinstance(key, Known):
            return None
        held = self.get(base, source, frame)
        if name == "getenv" or self.foreign(held) == "os.environ":
            found = self.given.flags.get(f"env.{key.value}")
            return found or (replace(default, sure=False) if isinstance(default, Known) else None)
        if not isinstance(held, Space):
            return None
        if str(key.value) in held.held:
            return held.held[str(key.value)]
        return default if held.whole else None

    def _span(self, node: ast.Call, source: Bindings, frame: Frame | None) -> Known | None:
        total: Known | None = Known(0, source.name, node.lineno)
        order = [*zip(_SECONDS, node.args, strict=False), *((k.arg or "", k.value) for k in node.keywords)]
        for unit, given in order:
            value = self.get(given, source, frame)
            if total is None or unit not in _SECONDS or not isinstance(value, Known):
                return None
            scaled = self._made(lambda v, by=_SECONDS[unit]: v * by, value)
            total = self.combined(node, source, (total, scaled), operator.add)
        return total

    # ----------
    # Parsers, classes and files.

    def _options_of(self, node: ast.Call, source: Bindings) -> Any:
        """What a parser of arguments returns: all options that the program declares, as this start sets them."""
        if node.args and not (isinstance(node.args[0], ast.Name) or "argv" in ast.dump(node.args[0])):
            return None
        return [self.options(), None] if last(node.func) == "parse_known_args" else self.options()

    def options(self) -> Space:
        """All options that the program declares, as this start sets them."""
        if self._declared is None:
            self._declared = Space(whole=self.given.known)
            made = Space(whole=self.given.known)
            for each in self.sources.values():
                for call in each.calls.get("add_argument", ()):
                    if self.comes_to(each, call):
                        self._option(made, call, each)
                for call in each.calls.get("set_defaults", ()):
                    for k in call.keywords:
                        self._put_default(made, k, each)
            self._declared = made
        return self._declared

    def _put_default(self, made: Space, keyword: ast.keyword, source: Bindings) -> None:
        found = self.get(keyword.value, source)
        news = {keyword.arg: found} if keyword.arg else dict(found.held) if isinstance(found, Space) else {}
        for name, value in news.items():
            if name in made.held and self.given.flag(name) is None:
                made.held[name] = value

    def _option(self, made: Space, call: ast.Call, source: Bindings) -> None:
        name = option_name(call)
        if not name:
            return
        value = self._option_value(call, source)
        if name in made.held:
            value = agreed([made.held[name], value])
        made.held[name] = value

    def _option_value(self, call: ast.Call, source: Bindings) -> Known | None:
        names = _names(call)
        chosen = next((n for n in names if n.startswith("--")), names[0] if names else "")
        keywords = {k.arg: k.value for k in call.keywords}
        action = keywords.get("action")
        named = action.value if isinstance(action, ast.Constant) else dotted(action) if action is not None else ""
        switch = {"store_true": True, "store_false": False}.get(str(named))
        given, kind = self.given.flag(*names), dotted(keywords["type"]) if "type" in keywords else ""
        if given is None and not chosen.startswith("-"):
            declared = [
                c for s in self.sources.values() for c in s.calls.get("add_argument", ())
                if c.args and isinstance(c.args[0], ast.Constant) and not str(c.args[0].value).startswith("-")
            ]  # fmt: skip
            at = declared.index(call) if call in declared else len(declared)
            given = self.given.words[at] if at < len(self.given.words) else None
        if given is not None:
            if switch is not None:
                return replace(given, value=switch)
            if not given.sure:
                return None
            if kind == "str" and not isinstance(given.value, list | bool):
                return replace(given, value=str(given.value))
            return given if kind in _PLAIN else replace(given, sure=False)  # a type of its own may make anything of it
        if self.started_otherwise:
            return None
        default = keywords.get("default")
        if default is None:
            usual = None if switch is None else not switch
            return Known(usual, source.name, call.lineno, self.given.known)
        found = self.plain(self.get(default, source), source.name, default)
        if found is None:
            return None
        value = parse(found.value) if isinstance(found.value, str) and kind in ("int", "float") else found.value
        return replace(found, value=value, sure=found.sure and self.given.known)

    def defaults(self, name: str) -> Iterator[tuple[str, Any]]:
        """Names with what holds where they are not given: options, fields with a type, keys that are looked up."""
        source = self.sources[name]
        found: list[tuple[str, ast.expr | None]] = []
        for call in source.calls.get("add_argument", ()):
            given = {k.arg: k.value for k in call.keywords}
            stores = str(getattr(given.get("action"), "value", ""))
            usual = ast.copy_location(ast.Constant(False), call) if stores in ("store_true", "store_false") else None
            found.append((option_name(call), given.get("default", usual)))
        for (_, field), bound in source.bound.items():
            found += [(field, b.value) for b in bound if isinstance(b.statement, ast.AnnAssign)]  # pyright: ignore
        for called in ("get", "pop", "setdefault", "getattr"):
            for call in source.calls.get(called, ()):
                key, *rest = call.args[called == "getattr" :] or [None]
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    found.append((key.value, rest[0] if rest else None))
        for key, node in found:
            value = Known(None, name, 0) if node is None else self._field(node, source)
            if isinstance(value := self.plain(value, name, node or ast.Constant(None)), Known):
                yield key, value.value

    def _dataclasses(self, node: ast.Call, source: Bindings, frame: Frame | None) -> Any:
        """`HfArgumentParser((A, B)).parse_args_into_dataclasses()`: one object for each class."""
        parser = node.func.value if isinstance(node.func, ast.Attribute) else None
        if isinstance(parser, ast.Name):
            scope = source.scopes.get(parser)
            held = source.bound.get((scope, parser.id)) or source.bound.get((source.tree, parser.id)) if scope else None
            parser = held[-1].value if held else None
        if not (isinstance(parser, ast.Call) and parser.args):
            return None
        first = parser.args[0]
        classes = list(first.elts) if isinstance(first, ast.Tuple | ast.List) else [first]
        out: list[Any] = []
        for each in classes:
            made = self.get(each, source, frame)
            if isinstance(made, Own) and isinstance(made.node, ast.ClassDef):
                out.append(self.told(self.instance(made, None, source, frame)))
            else:
                flags = Space(whole=False)
                flags.held.update((k, v) for k, v in self.given.dotted())
                out.append(flags)
        return out

    def told(self, space: Space) -> Space:
        """An object that a library fills: its class's defaults, configs that were loaded, and words of the command."""
        made = space if self.given.known else space.unsure()
        for name in self.configs:
            loaded = self.config(name) if PurePosixPath(name).suffix != ".py" else None
            for key, value in loaded.held.items() if loaded is not None else ():
                if key in made.held:
                    made = made.over(Space({key: value}, made.whole))
        for key, value in self.given.dotted():
            if key.partition(".")[0] in made.held:
                made.put(key, value if value.sure else None)
        return made

    def instance(self, of: Own, call: ast.Call | None, source: Bindings, frame: Frame | None) -> Space:
        """An object of a class: fields with their defaults, what the call gives, what `__init__` sets."""
        made, order = Space(), []
        assert isinstance(of.node, ast.ClassDef)
        for base in of.node.bases:
            found = self.get(base, of.source)
            if isinstance(found, Own) and isinstance(found.node, ast.ClassDef) and found.node is not of.node:
                made = made.over(self.instance(found, call, source, frame))
                order = list(made.held)
            elif last(base) not in ("object", "BaseModel", "ABC", "NamedTuple"):
                made.whole = False
        for statement in of.node.body:
            target = statement.target if isinstance(statement, ast.AnnAssign) else None
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                target = statement.targets[0]
            if isinstance(target, ast.Name) and isinstance(statement, ast.AnnAssign | ast.Assign):
                order.append(target.id)
                made.held[target.id] = self._field(statement.value, of.source)
        init = next((n for n in of.node.body if isinstance(n, Function) and n.name == "__init__"), None)
        if init is not None and call is not None:
            inner = Frame(init, call, source, frame)
            for name, stores in of.source.stores.items():
                for s in stores:
                    if s.base == "self" and of.source.scopes.get(s.statement) is init:
                        made.held[name] = self.get(s.value, of.source, inner)
        elif call is not None:
            return self._filled(made, order, call, source, frame)
        return made

    def _filled(self, made: Space, order: list[str], call: ast.Call, source: Bindings, frame: Frame | None) -> Space:
        for name, arg in zip(order, call.args, strict=False):
            made.held[name] = self.get(arg, source, frame)
        for k in call.keywords:
            found = self.get(k.value, source, frame)
            if k.arg is not None:
                made.held[k.arg] = found
            elif isinstance(found, Space):
                made = made.over(found)
            else:
                return Space(dict.fromkeys(made.held), whole=False)
        return made

    def _field(self, node: ast.expr | None, source: Bindings) -> Any:
        """The default of a field: plain, or `field(default=...)`, `Field(1e-4)`, `field(default_factory=Inner)`."""
        if isinstance(node, ast.Call) and last(node.func) in ("field", "Field"):
            given = {k.arg: k.value for k in node.keywords}
            if "default_factory" in given:
                factory = given["default_factory"]
                if isinstance(factory, ast.Lambda):
                    return self.get(factory.body, source)
                made = self.get(factory, source)
                inner = isinstance(made, Own) and isinstance(made.node, ast.ClassDef)
                return self.instance(made, None, source, None) if inner else None
            return self.get(given.get("default") or (node.args[0] if node.args else None), source)
        return self.get(node, source)

    def _loaded(self, node: ast.Call, source: Bindings, frame: Frame | None) -> Space | None:
        """The config that a call loads: the file that it names, else the only one that the program is known to load."""
        named = [*node.args[:1], *(k.value for k in node.keywords if k.arg in ("f", "stream", "fp", "file_"))]
        path = self.get(named[0], source, frame) if named else None
        wanted = str(path.value) if isinstance(path, Known) and isinstance(path.value, str) else ""
        plain = [n for n in self.configs if PurePosixPath(n).suffix in (".yaml", ".yml", ".json", ".toml")]
        ends_so = [n for n in plain if wanted and (n == wanted or n.endswith("/" + wanted.removeprefix("./")))]
        if wanted and not ends_so:
            ends_so = [n for n in plain if PurePosixPath(n).name == PurePosixPath(wanted).name]
        if not wanted and len(plain) == 1 and last(node.func) != "loads":
            ends_so = plain
        return self.config(ends_so[0]) if len(ends_so) == 1 else None

    def from_command(self, scope: Function, name: str, source: Bindings) -> Any:
        """A parameter that a library fills from the command line: fire, typer, click, draccus, pyrallis."""
        arg = next((a for a in (*scope.args.args, *scope.args.kwonlyargs) if a.arg == name), None)
        made = self.get(arg.annotation, source) if arg is not None and arg.annotation is not None else None
        if isinstance(made, Own) and isinstance(made.node, ast.ClassDef):
            return self.told(self.instance(made, None, source, None))
        if (given := self.given.flag(name)) is not None:
            return given
        loaded = (self.config(n) for n in self.configs if PurePosixPath(n).suffix != ".py")
        held = [space.held[name] for space in loaded if space is not None and name in space.held]
        if held:  # use_yaml_config(): what the file has goes before the default; of another decorator nobody knows
            return held[0] if any("config" in dotted(d).lower() for d in scope.decorator_list) else None
        default = self.get(parameters(scope).get(name), source)
        return replace(default, sure=self.given.known and default.sure) if isinstance(default, Known) else None


def _names(call: ast.Call) -> list[str]:
    return [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]


def option_name(call: ast.Call) -> str:
    """The name that `add_argument` gives an option among the parsed ones."""
    dest = next((k.value for k in call.keywords if k.arg == "dest"), None)
    if isinstance(dest, ast.Constant):
        return str(dest.value)
    names = _names(call)
    return next((n for n in names if n.startswith("--")), names[0] if names else "").lstrip("-").replace("-", "_")
