"""The house rules that a reader relies on: imports point downwards, files stay small, words stay honest."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HOUSE = ("agent", "index", "evals", "tui", "knowledge")

# From the ground up. A module may import what stands on its own layer or below; tools not even each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "types", "paths", "sanitize", "shell", "redact", "disguises", "secret_kinds", "report", "deadline", "config",
     "model_keys", "project_config", "small_file", "events", "probes", "unified", "patch_rows"),
    ("playbook", "library", "knowledge", "index"),
    ("workspace", "nearby", "tool", "calls", "reading"),
    ("tools", "salvage", "patching", "applying", "rehearsal"),
    ("predicates", "fatal", "neighbours", "past", "hypotheses", "planner", "question", "prior", "gate", "salience", "wording", "restart",
     "conclude", "first_failure", "intent", "follow_ups", "follow_up_answers", "meaning", "weighing", "answers", "passages", "quotes",
     "llm", "claims", "treatment", "operations", "history", "proofs", "coverage", "skeleton", "advice"),
    ("state", "standing", "aftercare", "graph", "checkpoints", "session_alone", "store", "reported"),
    ("session",),
    ("outline", "render", "markdown", "evals", "collect", "page"),
    ("views", "conversation"),
    ("nodes", "notices", "hooks", "watching"),
    ("supervisor", "serving"),
    ("tui", "mcp"),
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
            parts = path.relative_to(ROOT).parts
            trained = parts[:2] == ("evals", "recorders") and len(parts) > 3  # what tables of incidents train with
            if not trained and not {"files", "scripts"} & set(parts):  # of recorded runs
                found.append((".".join(path.relative_to(ROOT).with_suffix("").parts), path))
    return found


@cache
def nodes(path: Path) -> list[ast.AST]:
    """What the rules look at in a module: itself, its imports, classes and functions at any depth."""
    kinds = (ast.Module, ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, kinds)]


def imports(name: str, path: Path) -> Iterator[str]:
    """Dotted names within the house that a module imports, at any depth of its code."""
    package = name.split(".")[:-1]
    for node in nodes(path):
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


@pytest.fixture(scope="module", autouse=True)
def _trees_are_let_go() -> Iterator[None]:
    yield
    nodes.cache_clear()


def below(*packages: str) -> list[tuple[str, Path]]:
    return [m for m in ALL if m[0].startswith(packages)]


def test_every_part_of_the_house_has_its_layer() -> None:
    assert sorted({layer(name) for name, _ in ALL if name != "agent.__init__"} - HEIGHT.keys()) == []


def test_imports_point_downwards() -> None:
    wrong = [
        f"{name} imports {imported}, which stands above it"
        for name, path in ALL
        for imported in imports(name, path)
        if imported.split(".")[0] in HOUSE
        and HEIGHT.get(layer(imported), 0) > HEIGHT["errors" if name == "agent.__init__" else layer(name)]
    ]
    assert wrong == []


def test_tools_stand_alone() -> None:
    heavy = {"langgraph", "openai", "chromadb", "torch", "sentence_transformers", "typer"}
    wrong = [
        f"{name} imports {imported}"
        for name, path in below("agent.tools.")
        for imported in imports(name, path)
        if (imported.startswith("agent.tools.") and imported != name) or imported.split(".")[0] in heavy
    ]
    assert wrong == []


DOORS = ("session", "conversation", "views", "events", "report", "outline", "render", "page", "types", "errors", "sanitize",
         "tool", "workspace", "rehearsal", "redact")  # fmt: skip


def test_the_chat_knows_the_doors_alone() -> None:
    """Nothing of the chat reads a run, plans, asks a model or writes a file by itself."""
    wrong = [
        f"{name} imports {imported}"
        for name, path in below("tui")
        for imported in imports(name, path)
        if (parts := imported.split("."))[0] == "agent" and len(parts) > 1 and parts[1] not in DOORS
    ]
    assert wrong == []


def test_index_and_knowledge_know_nothing_of_agent() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name, path in below("index", "knowledge")
        for imported in imports(name, path)
        if imported.split(".")[0] in ("agent", "evals", "tui")
    ]
    assert wrong == []


def test_only_relative_imports_cross_the_house() -> None:
    wrong = []
    for name, path in ALL:
        absolute = [n.module or "" for n in nodes(path) if isinstance(n, ast.ImportFrom) and not n.level]
        absolute += [a.name for n in nodes(path) if isinstance(n, ast.Import) for a in n.names]
        wrong += [f"{name} imports {a}" for a in absolute if a.split(".")[0] in (*HOUSE, "traindoctor")]
    assert wrong == []


def test_files_and_functions_stay_small() -> None:
    long = []
    for name, path in ALL:
        lines = path.read_bytes().count(b"\n")
        long += [f"{name} has {lines} lines"] if lines > FILE_LINES else []
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                long += [f"{name}: {node.name} has {length} lines"] if length > FUNCTION_LINES else []
    assert long == []


def test_names_say_what_a_thing_is() -> None:
    vague = [name for name, path in ALL if VAGUE.search(path.stem)]
    classes = [(name, n.name) for name, path in ALL for n in nodes(path) if isinstance(n, ast.ClassDef)]
    assert vague == [] and [c for c in classes if VAGUE_CLASS.search(c[1])] == []


def test_modules_and_public_functions_have_docstrings() -> None:
    bare = []
    for name, path in ALL:
        module = nodes(path)[0]
        assert isinstance(module, ast.Module)
        bare += [name] if not ast.get_docstring(module) else []
        if name.startswith("agent.commands"):
            continue  # a command group's help stands at its declaration
        for node in module.body:
            public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
            bare += [f"{name}: {node.name}"] if public and not ast.get_docstring(node) else []
    assert bare == []


def test_a_broad_except_is_always_explained() -> None:
    for _, path in ALL:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(r"except (?:Base)?Exception", line):
                assert re.search(r"# noqa: BLE001 -+ \w+", line), f"{path}:{number}: {line.strip()}"
