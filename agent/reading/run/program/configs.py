"""Which files a program loaded as its configuration: its command, its code, its log or one of them names them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from ..files import RunFile
from .commands import Command

_SUFFIXES = (
    ".yaml",
    ".yml",
    ".json",
    ".toml",
    ".ini",
    ".cfg",
    ".conf",
    ".py",
    ".gin",
    ".json5",
    ".jsonc",
    ".env",
    ".properties",
)
_PATH = re.compile(r"[\w./\-@]+\.(?:ya?ml|json[5c]?|toml|ini|cfg|conf|gin|py|env|properties|args|flags|opts)\b")
_GROUP = re.compile(r"^[+~]{0,2}([\w/@.]+)=([\w./\-]+)$")
_DEFAULT_KEY = re.compile(r"^\s*-?\s*(?:override\s+)?/?([\w/@]+)\s*:\s*([\w./\-]+)\s*(?:#.*)?$")
_CONFIG_WORD = re.compile(r"conf(?:ig)?|cfg|settings|recipe|params|yaml", re.IGNORECASE)
_TELLS = re.compile(r"(?i)config|overrid|load|using|read|yaml|json|toml|settings|params")
_CALLED = re.compile(r"(?i)\bconfig(?:uration)?(?: name| file)?\s*[:=]?\s*['\"]?([\w\-]{3,80})['\"]?(?=\s|$)")
_DEEP = 4  # configs that name configs


def loaded(
    commands: Sequence[Command],
    reached: Sequence[str],
    tree: Callable[[str], ast.Module | None],
    log: Iterable[tuple[str, int, str]],
    files: Mapping[str, RunFile],
    text: Callable[[str, int], str],
    root: str = "",
    known: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Names of the files a program loaded, each with how that is known.

    Args:
        commands: how the program was started.
        reached: its sources, the entry first.
        log: `(log, line, text)` of what it printed.
        files: all files of its folder that may be configs.
        text: the first characters of a file.
        root: what stands before all names of this folder.
        known: configs that are known already; beside them a default in code is none.
    """
    search = _Search(files, root)
    found: dict[str, str] = {}
    given = bool(known)
    for command in commands:
        for name, how in _of_command(command, search):
            found.setdefault(name, how)
            given = True
    for log_name, number, line in log:
        if (m := _CALLED.search(line)) and (name := search.stem("", m[1])):
            found.setdefault(name, f"{log_name}:{number} names it")
        if _TELLS.search(line):
            for m in _PATH.finditer(line):
                if (name := search.file(m[0])) and name not in reached:
                    found.setdefault(name, f"{log_name}:{number} names it")
    for source in reached:
        if (module := tree(source)) is not None:
            for name, line, optional in _of_source(module, source, search):
                if name not in reached and not (optional and (given or found)):
                    found.setdefault(name, f"{source}:{line} loads it")
    given_by = [{m[1] for word in c.arguments if (m := _GROUP.match(word))} for c in commands]
    chosen = set.intersection(*given_by) if given_by else set[str]()
    _follow(found, search, text, chosen)
    return found


class _Search:
    """The files of a folder by the ends of their names."""

    def __init__(self, files: Mapping[str, RunFile], root: str) -> None:
        self.root = root
        roles = ("config", "code", "other")
        self.names = [n for n, f in files.items() if f.role in roles and n.endswith(_SUFFIXES) and "/.hydra/" not in n]
        self.by_base: dict[str, list[str]] = {}
        for name in self.names:
            self.by_base.setdefault(PurePosixPath(name).name, []).append(name)

    def file(self, path: str, near: str = "") -> str | None:
        """The file that a path names, whatever stands before it on another machine."""
        parts = [p for p in PurePosixPath(path.strip("'\"`,;()@")).parts if p not in (".", "..", "/")]
        if not parts:
            return None
        same = self.by_base.get(parts[-1], [])
        if near:
            beside = (PurePosixPath(near).parent / "/".join(parts)).as_posix()
            if beside in same:
                return beside
        best = [n for n in same if n == self.root + "/".join(parts)]
        if best:
            return best[0]
        for size in range(len(parts), 0, -1):
            end = "/".join(parts[-size:])
            ends = [n for n in same if n == self.root + end or n.endswith(f"/{end}")]
            if len(ends) == 1:
                return ends[0]
            if ends:
                return None
        return None

    def stem(self, group: str, choice: str, near: str = "") -> str | None:
        """The file of a config group's choice: `model=small` -> conf/model/small.yaml."""
        end = f"{group.split('@')[0].strip('/')}/{choice}".strip("/")
        for suffix in ("", ".yaml", ".yml"):
            ends = [n for n in self.names if n == f"{self.root}{end}{suffix}" or n.endswith(f"/{end}{suffix}")]
            if near and len(ends) > 1:  # of the tree that the config itself belongs to
                tree = PurePosixPath(near).parts[: max(len(PurePosixPath(near).parts) - 2, 1)]
                ends = [n for n in ends if PurePosixPath(n).parts[: len(tree)] == tree]
            if len(ends) == 1:
                return ends[0]
        return None


def _of_command(command: Command, search: _Search) -> Iterable[tuple[str, str]]:
    words = [w.partition("=")[2] if w.startswith("--") and "=" in w else w for w in command.arguments]
    words += [value for _, value in command.variables]
    where = f"named in {command.file}:{command.line}"
    for word, before in zip(words, ["", *command.arguments], strict=False):
        name = None
        if word.endswith(_SUFFIXES):
            name = search.file(word)
        elif before in ("--config-name", "-cn") or (before.startswith("-") and _CONFIG_WORD.search(before)):
            name = search.stem("", word)
        elif m := _GROUP.match(word):
            name = search.stem(m[1], m[2])
        if name:
            yield name, where


def _of_source(tree: ast.Module, source: str, search: _Search) -> Iterable[tuple[str, int, bool]]:
    """Files that a source names, and whether that is only a default which a command may replace."""
    optional = {
        id(k.value) for n in ast.walk(tree) if isinstance(n, ast.Call) for k in n.keywords if k.arg == "default"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and 3 < len(node.value) < 200:
            if node.value.endswith(_SUFFIXES) and "\n" not in node.value and (name := search.file(node.value, source)):
                yield name, node.lineno, id(node) in optional
        elif isinstance(node, ast.Call):
            keywords = {k.arg: k.value for k in node.keywords}
            chosen = keywords.get("config_name")
            if (
                isinstance(chosen, ast.Constant)
                and isinstance(chosen.value, str)
                and (name := search.stem("", chosen.value))
            ):
                yield name, node.lineno, True


def _follow(found: dict[str, str], search: _Search, text: Callable[[str, int], str], chosen: set[str]) -> None:
    """Configs that loaded configs name: defaults lists but for groups chosen on the command line, `_base_`, paths."""
    pending = [(name, 0) for name in found]
    while pending:
        name, depth = pending.pop()
        if depth >= _DEEP or name.endswith(".py"):
            continue
        inside = text(name, 1 << 17)
        listed = False
        for number, row in enumerate(inside.split("\n")[:4000], 1):
            listed = row.startswith("defaults:") or (listed and row[:1] in (" ", "-", "#", ""))
            names = [search.file(m[0], name) for m in _PATH.finditer(row) if not row.lstrip().startswith("#")]
            if listed and (m := _DEFAULT_KEY.match(row)):
                names += [] if m[1] in chosen else [search.stem(m[1], m[2], name)]
            elif listed and (bare := re.match(r"\s*-\s*([\w/\-.]+)\s*$", row)) and bare[1] != "_self_":
                names.append(search.stem("", bare[1], name))
            for other in names:
                if other and other not in found:
                    found[other] = f"{name}:{number} names it"
                    pending.append((other, depth + 1))
