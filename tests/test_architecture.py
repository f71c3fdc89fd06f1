"""The house rules that a reader relies on: imports point downwards, files stay small, words stay honest."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HOUSE = ("agent", "index", "evals", "tui", "knowledge")

# From the ground up. A module may import what stands on its own layer or below; tools not even each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "types", "paths", "sanitize", "shell", "redact", "disguises", "secret_kinds", "report", "deadline", "config",
     "model_keys", "project_config", "small_file", "events", "probes", "unified"),
    ("playbook", "library", "knowledge", "index"),
    ("workspace", "nearby", "tool", "calls", "reading"),
    ("tools", "salvage", "patching", "applying"),
    ("predicates", "hypotheses", "planner", "question", "prior", "gate", "salience", "wording", "restart",
     "conclude", "intent", "follow_ups", "follow_up_answers", "meaning", "weighing", "answers", "passages", "quotes",
     "llm", "claims", "treatment", "operations", "history", "proofs", "coverage", "skeleton", "advice"),
    ("state", "aftercare", "graph", "checkpoints", "store"),
    ("session",),
    ("outline", "render", "markdown", "evals", "tui", "collect", "page"),
    ("mcp",),
    ("commands", "cli"),
)  # fmt: skip
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}

FILE_LINES, FUNCTION_LINES = 350, 60
VAGUE = re.compile(r"(?:^|_)(?:manager|helper|helpers|handler|utils|util|misc)(?:_|$)", re.IGNORECASE)
VAGUE_CLASS = re.compile(r"(?:Manager|Helper|Handler|Utils?)$")


def modules() -> list[tuple[str, Path]]:
    """Every module of the house with its dotted name."""
    found = []
    for top in HOUSE:
        for path in sorted((ROOT / top).rglob("*.py")):
            if not {"files", "scripts"} & set(path.relative_to(ROOT).parts):  # of recorded runs
                found.append((".".join(path.relative_to(ROOT).with_suffix("").parts), path))
    return found


def imports(name: str, path: Path) -> Iterator[str]:
    """Dotted names within the house that a module imports, at any depth of its code."""
    package = name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            if node.module:
                yield ".".join([*base, *node.module.split(".")])
            for alias in node.names if not node.module else ():
                yield ".".join([*base, alias.name])
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def layer(dotted: str) -> str:
    """The part of the house that the table knows a module by: `agent.reading.files` is `reading`."""
    parts = dotted.split(".")
    return parts[1] if parts[0] == "agent" and len(parts) > 1 else parts[0]


ALL = modules()
NAMES = [name for name, _ in ALL]


@pytest.mark.parametrize(("name", "path"), ALL, ids=NAMES)
def test_imports_point_downwards(name: str, path: Path) -> None:
    here = layer(name)
    if name == "agent.__init__":
        here = "errors"
    assert here in HEIGHT, f"{name}: say in LAYERS where agent/{here}.py stands"
    for imported in imports(name, path):
        there = layer(imported)
        if imported.split(".")[0] in HOUSE and there in HEIGHT:
            assert HEIGHT[there] <= HEIGHT[here], f"{name} imports {imported}, which stands above it"


@pytest.mark.parametrize(("name", "path"), [m for m in ALL if m[0].startswith("agent.tools.")])
def test_tools_stand_alone(name: str, path: Path) -> None:
    heavy = {"langgraph", "openai", "chromadb", "torch", "sentence_transformers", "typer"}
    for imported in imports(name, path):
        assert not imported.startswith("agent.tools.") or imported == name, f"{name} imports the tool {imported}"
        assert imported.split(".")[0] not in heavy, f"{name} imports {imported}"


@pytest.mark.parametrize(("name", "path"), [m for m in ALL if m[0].startswith(("index", "knowledge"))])
def test_index_and_knowledge_know_nothing_of_agent(name: str, path: Path) -> None:
    assert not [i for i in imports(name, path) if i.split(".")[0] in ("agent", "evals", "tui")]


@pytest.mark.parametrize(("name", "path"), ALL, ids=NAMES)
def test_only_relative_imports_cross_the_house(name: str, path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    absolute = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and not n.level]
    absolute += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    assert not [a for a in absolute if a.split(".")[0] in (*HOUSE, "traindoctor")]


@pytest.mark.parametrize(("name", "path"), ALL, ids=NAMES)
def test_files_and_functions_stay_small(name: str, path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= FILE_LINES, f"{path.name} has {text.count(chr(10))} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= FUNCTION_LINES, f"{path.name}: {node.name} has {length} lines"


@pytest.mark.parametrize(("name", "path"), ALL, ids=NAMES)
def test_names_say_what_a_thing_is(name: str, path: Path) -> None:
    assert not VAGUE.search(path.stem), f"{path.name} says nothing about what is in it"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            assert not VAGUE_CLASS.search(node.name), f"{path.name}: {node.name}"


@pytest.mark.parametrize(("name", "path"), ALL, ids=NAMES)
def test_modules_and_public_functions_have_docstrings(name: str, path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), f"{path} has no docstring"
    if name.startswith("agent.commands"):
        return  # a command group's help stands at its declaration
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{path.name}: {node.name} has no docstring"


def test_a_broad_except_is_always_explained() -> None:
    for _, path in ALL:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(r"except (?:Base)?Exception", line):
                assert re.search(r"# noqa: BLE001 -+ \w+", line), f"{path}:{number}: {line.strip()}"
