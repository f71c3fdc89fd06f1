"""Which source of a program a name in one of its sources comes from: defined there, or imported from another."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cached_property
from pathlib import PurePosixPath

from ..run.program.syntax import Syntax, last

Named = tuple[str, str]  # a source, or nothing where it may be any, and the name that it has there
_DEEP = 6


class Origins:
    """Where the names of a program's sources come from.

    Args:
        sources: all of them by their names.
    """

    def __init__(self, sources: Mapping[str, Syntax]) -> None:
        self._sources = sources
        self._imported: dict[str, dict[str, tuple[str, str]]] = {}
        self._aliases: dict[str, dict[str, str]] = {}

    def of(self, source: str, name: str, depth: int = 0) -> Named:
        """Where a plain name of a source is defined, and by which name; with an empty source where nobody can tell."""
        if name in self._imports(source):
            there, real = self._imports(source)[name]
            return self.of(there, real, depth + 1) if there and depth < _DEEP else ("", real)
        return (source, name) if name in self._defined[source] else ("", name)

    def module(self, source: str, value: ast.expr) -> str | None:
        """The source that a module's name stands for (`losses` in `losses.focal(x)`); empty where it may be several."""
        name = last(value)
        if source not in self._aliases:
            imports = (a for n in self._sources[source].every(ast.Import, ast.ImportFrom) for a in n.names)
            self._aliases[source] = {a.asname or a.name: a.name.rpartition(".")[2] for a in imports}
        name = self._aliases[source].get(name, name)
        found = self._modules.get(name)
        return None if found is None else next(iter(found)) if len(found) == 1 else ""

    def sources_of(self, source: str, value: ast.expr) -> set[str]:
        """All sources that a module's name may stand for."""
        name = last(value)
        return self._modules.get(self._aliases.get(source, {}).get(name, name), set())

    @cached_property
    def _modules(self) -> dict[str, set[str]]:
        """Sources by the names that their modules may go by."""
        found: dict[str, set[str]] = {}
        for name in self._sources:
            for part in name.removesuffix(".py").split("/")[-2:]:
                found.setdefault(part, set()).add(name)
        return found

    @cached_property
    def _defined(self) -> dict[str, set[str]]:
        """The functions and classes of each source."""
        return {
            name: {f.name for f in s.functions} | {c.name for c in s.every(ast.ClassDef)}
            for name, s in self._sources.items()
        }

    def _imports(self, source: str) -> dict[str, tuple[str, str]]:
        """Names that a source imports from another, with that (empty where nobody can tell) and the name there."""
        if source not in self._imported:
            found: dict[str, tuple[str, str]] = {}
            for n in self._sources[source].every(ast.ImportFrom):
                there = self._file(source, n)
                for a in n.names:
                    own = there if a.name in self._defined.get(there, ()) or there.endswith("__init__.py") else ""
                    found[a.asname or a.name] = (own, a.name) if (a.asname or a.name) not in found else ("", a.name)
            self._imported[source] = found
        return self._imported[source]

    def _file(self, source: str, n: ast.ImportFrom) -> str:
        """The source that names are imported from; empty where none or several may be meant."""
        end = (n.module or "").replace(".", "/")
        if n.level:
            folder = PurePosixPath(source).parent
            for _ in range(n.level - 1):
                folder = folder.parent
            end = (folder / end).as_posix()
        fits = [m for m in (f"{end}.py", f"{end}/__init__.py") if m in self._sources]
        if not fits and not n.level:
            ends = (f"/{end}.py", f"/{end}/__init__.py")
            fits = [name for name in self._sources if name.endswith(ends)]
        return fits[0] if len(fits) == 1 else ""
