"""What a Python program reaches inside the folder: imports followed, files run by `exec`, modules named in strings."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import PurePosixPath

_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z")
_ROOTS = ("", "src/", "lib/", "python/")  # folders that set-ups put on the path
_FOREIGN = re.compile(r"(?:^|/)(?:site-packages|dist-packages)/")


class Modules:
    """The Python files of one folder, as a program in it imports them.

    Args:
        names: names of all Python files, relative to the run.
        tree: the syntax tree of one of them, None where it does not parse as a whole.
    """

    def __init__(self, names: Iterable[str], tree: Callable[[str], ast.Module | None]) -> None:
        self.names = [n for n in names if not _FOREIGN.search(n)]
        self._tree = tree
        self._known = set(self.names)
        self._imports: dict[str, frozenset[str]] = {}

    @cached_property
    def _by_end(self) -> Mapping[str, list[str]]:
        """Files by the last part of their module's name: `utils` -> src/a/utils.py, src/b/utils/__init__.py."""
        found: dict[str, list[str]] = defaultdict(list)
        for name in self.names:
            path = PurePosixPath(name)
            found[path.parent.name if path.stem == "__init__" else path.stem].append(name)
        return found

    def reached(self, entry: str, most: int = 400) -> list[str]:
        """The entry program and all files that it comes to import, nearest first."""
        found, pending = {entry: None}, [entry]
        while pending and len(found) < most:
            for name in sorted(self.imports(pending.pop(0), entry)):
                if name not in found:
                    found[name] = None
                    pending.append(name)
        return list(found)

    def imports(self, name: str, entry: str = "") -> frozenset[str]:
        """Files that one file imports directly, the packages around them included."""
        if name not in self._imports:
            tree = self._tree(name)
            self._imports[name] = frozenset(self._of_tree(tree, name, entry or name)) if tree else frozenset()
        return self._imports[name]

    def named(self, module: str, near: str = "") -> str | None:
        """The file of a module: beside the program that imports it, at a usual root, or the only one that ends so."""
        path = module.replace(".", "/")
        folder = PurePosixPath(near).parent.as_posix() if near else ""
        tops = ["" if folder == "." else f"{folder}/", *_ROOTS]
        for top in dict.fromkeys(tops):
            for name in (f"{top}{path}.py", f"{top}{path}/__init__.py"):
                if name in self._known:
                    return name
        ends = [
            n for n in self._by_end.get(path.rsplit("/", 1)[-1], ())
            if n.endswith((f"/{path}.py", f"/{path}/__init__.py"))
        ]  # fmt: skip
        return ends[0] if len(ends) == 1 else None

    def of_statement(self, node: ast.Import | ast.ImportFrom, name: str, entry: str) -> set[str]:
        """Files whose modules an import statement of a file runs."""
        if isinstance(node, ast.ImportFrom):
            return set(self._from(node, name, entry))
        return {found for alias in node.names for found in self._chain(alias.name, entry)}

    def _of_tree(self, tree: ast.Module, name: str, entry: str) -> Iterable[str]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._chain(alias.name, entry)
            elif isinstance(node, ast.ImportFrom):
                yield from self._from(node, name, entry)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
                yield from self._of_text(node.value, entry)
            elif isinstance(node, ast.Call) and node.args:
                yield from self._of_package(node, entry)

    def _from(self, node: ast.ImportFrom, name: str, entry: str) -> Iterable[str]:
        base = node.module or ""
        if node.level:
            folder = PurePosixPath(name).parent
            for _ in range(node.level - 1):
                folder = folder.parent
            top = "" if folder.as_posix() == "." else folder.as_posix()
            base = ".".join(p for p in (top.replace("/", "."), base) if p)
        yield from self._chain(base, entry)
        for alias in node.names:
            if (base and (found := self.named(f"{base}.{alias.name}", entry))) or (
                not base and (found := self.named(alias.name, entry))
            ):
                yield found

    def _chain(self, module: str, entry: str) -> Iterable[str]:
        """A module and the packages that are run on the way to it."""
        if not module:
            return
        parts = module.split(".")
        for end in range(1, len(parts) + 1):
            if found := self.named(".".join(parts[:end]), entry):
                yield found

    def _of_text(self, text: str, entry: str) -> Iterable[str]:
        """A file that `exec` or `runpy` is given, a class named by its path (`_target_`, registries)."""
        if text.endswith(".py"):
            yield from (n for n in (text, self._beside(text, entry)) if n in self._known)
        elif _DOTTED.match(text):
            module, _, name = text.rpartition(".")
            if found := self.named(text, entry) or (self.named(module, entry) if name[:1].isupper() else None):
                yield found

    def _of_package(self, node: ast.Call, entry: str) -> Iterable[str]:
        """Every module of a package of which one is chosen by name: `import_module(f"models.{name}")`."""
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = node.args[0]
        if called not in ("import_module", "__import__", "iter_modules", "walk_packages"):
            return
        start = given.values[0] if isinstance(given, ast.JoinedStr) and given.values else None
        text = start.value if isinstance(start, ast.Constant) and isinstance(start.value, str) else ""
        package = self.named(text.rstrip("."), entry) if text.endswith(".") else None
        folder = (
            PurePosixPath(package).parent.as_posix() if package else PurePosixPath(text.replace(".", "/")).as_posix()
        )
        if text:
            yield from (n for n in self.names if f"/{folder}/" in f"/{n}")

    @staticmethod
    def _beside(text: str, entry: str) -> str:
        folder = PurePosixPath(entry).parent
        return (folder / text).as_posix() if folder.as_posix() != "." else text
