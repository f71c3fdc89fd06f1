"""The house rules that a reader relies on: rooms that hold together, imports that point downwards, honest words."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HOUSE = ("agent", "index", "evals", "tui", "knowledge")

# From the ground up. A module may import what stands in its own room or in those before it.
FLOORS: Mapping[str, tuple[str, ...]] = {
    "agent": (
        "core", "safety", "reading", "tools", "verdict", "repair", "llm", "session", "telling", "jobs", "chat", "doors",
    ),
    "agent.reading": (
        "run", "scan", "settings", "memory", "machine", "curves", "logs", "stacks", "checkpoints", "datasets", "code", "profiles",
    ),
}  # fmt: skip

FILE_LINES, FUNCTION_LINES, FOLDER_ENTRIES = 600, 60, 12
VAGUE = re.compile(r"(?:^|_)(?:manager|helper|helpers|handler|utils|util|misc)(?:_|$)", re.IGNORECASE)
VAGUE_CLASS = re.compile(r"(?:Manager|Helper|Handler|Utils?)$")


def modules() -> dict[str, Path]:
    """Every module of the house by its dotted name; a package by the name of its folder."""
    found = {}
    for top in HOUSE:
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).parts
            trained = parts[:2] == ("evals", "recorders") and len(parts) > 3  # what tables of incidents train with
            if not trained and not {"files", "scripts"} & set(parts):  # of recorded runs
                named = path.parent if path.stem == "__init__" else path.with_suffix("")
                found[".".join(named.relative_to(ROOT).parts)] = path
    return found


ALL = modules()


@cache
def nodes(path: Path) -> list[ast.AST]:
    """What the rules look at in a module: itself, its imports, classes and functions at any depth."""
    kinds = (ast.Module, ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, kinds)]


@pytest.fixture(scope="module", autouse=True)
def _trees_are_let_go() -> Iterator[None]:
    yield
    nodes.cache_clear()


@cache
def imports(name: str) -> frozenset[str]:
    """Modules of the house that a module imports, at any depth of its code."""
    path = ALL[name]
    package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1] + (node.module or "").split(".") * bool(node.module)
            for alias in node.names:
                whole = ".".join([*base, alias.name])
                found.add(whole if whole in ALL else ".".join(base))
    return frozenset(found - {name})


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Groups of nodes from each of which every other one can be reached."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            group = [stack.pop()]
            while group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in order:
            visit(node)
    return found


def below(*packages: str) -> list[str]:
    return [name for name in ALL if name.startswith(packages)]


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles({name: imports(name) for name in ALL}) == []


def test_no_folders_import_each_other_in_a_circle() -> None:
    """What stands side by side in a folder, modules and folders alike, has an order: at every depth of the house."""
    found = {}
    for folder in {name.rpartition(".")[0] for name in ALL} - {""}:
        depth = folder.count(".") + 2
        graph = defaultdict(set)
        for name in below(f"{folder}."):
            for imported in imports(name):
                ours, theirs = (".".join(n.split(".")[:depth]) for n in (name, imported))
                if theirs.startswith(f"{folder}.") and ours != theirs:
                    graph[ours].add(theirs)
        found[folder] = circles(graph)
    assert {folder: group for folder, group in found.items() if group} == {}


@pytest.mark.parametrize("house", FLOORS)
def test_imports_point_downwards(house: str) -> None:
    height = {f"{house}.{room}": n for n, room in enumerate(FLOORS[house])}
    depth = house.count(".") + 2
    assert {p.name for p in (ROOT / house.replace(".", "/")).iterdir() if (p / "__init__.py").is_file()} == set(FLOORS[house])
    wrong = []
    for name in below(f"{house}."):
        ours = ".".join(name.split(".")[:depth])
        for imported in imports(name):
            theirs = ".".join(imported.split(".")[:depth])
            if height.get(theirs, -1) > height[ours]:
                wrong.append(f"{name} imports {imported}, which stands above it")
    assert wrong == []


def test_a_folder_can_be_taken_in_at_a_glance() -> None:
    crowded = []
    for folder in {path.parent for name, path in ALL.items() if name.startswith("agent")}:
        entries = [p for p in folder.iterdir() if p.name not in ("__init__.py", "__pycache__") and p.suffix in ("", ".py")]
        if len(entries) > FOLDER_ENTRIES:
            crowded.append(f"{folder.relative_to(ROOT)} has {len(entries)} entries")
    assert crowded == []


def test_a_name_stands_once_in_the_agent() -> None:
    names = Counter(path.name for name, path in ALL.items() if name.startswith("agent") and path.stem != "__init__")
    assert [name for name, count in names.items() if count > 1] == []


def test_every_room_says_what_lives_there() -> None:
    for name in below("agent."):
        if ALL[name].stem == "__init__":
            said = ast.get_docstring(ast.parse(ALL[name].read_text(encoding="utf-8"))) or ""
            assert 1 <= len(said.partition("\n\n")[0].splitlines()) <= 3, name
    for room in FLOORS["agent"]:
        said = (ROOT / "agent" / room / "__init__.py").read_text(encoding="utf-8")
        assert re.search(r"\bimports?\b", said, re.IGNORECASE), f"agent/{room} does not say what it may import"


def test_tools_stand_alone() -> None:
    heavy = {"langgraph", "openai", "chromadb", "torch", "sentence_transformers", "typer"}
    wrong = [
        f"{name} imports {imported}"
        for name in below("agent.tools.")
        for imported in imports(name)
        if imported.startswith("agent.tools.") and name.count(".") > 2 and imported not in ("agent.tools.tool", "agent.tools.rehearsal")
    ]
    for name in below("agent.tools."):
        for node in nodes(ALL[name]):
            named = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            named += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            wrong += [f"{name} imports {n}" for n in named if n.split(".")[0] in heavy]
    assert wrong == []


DOORS = (
    "agent.core.errors", "agent.core.events", "agent.core.report", "agent.core.types", "agent.safety.", "agent.session.session",
    "agent.telling.", "agent.chat.", "agent.tools.tool", "agent.tools.rehearsal", "agent.reading.run.workspace",
)  # fmt: skip


def test_the_chat_knows_the_doors_alone() -> None:
    """Nothing of the chat reads a run, plans, asks a model or writes a file by itself."""
    wrong = [
        f"{name} imports {imported}"
        for name in below("tui")
        for imported in imports(name)
        if imported.startswith("agent.") and not imported.startswith(DOORS)
    ]
    assert wrong == []


def test_index_and_knowledge_know_nothing_of_agent() -> None:
    assert [(n, i) for n in below("index", "knowledge") for i in imports(n) if i.startswith(("agent", "evals", "tui"))] == []


def test_only_relative_imports_cross_the_house() -> None:
    wrong = []
    for name, path in ALL.items():
        absolute = [n.module or "" for n in nodes(path) if isinstance(n, ast.ImportFrom) and not n.level]
        absolute += [a.name for n in nodes(path) if isinstance(n, ast.Import) for a in n.names]
        wrong += [f"{name} imports {a}" for a in absolute if a.split(".")[0] in (*HOUSE, "traindoctor")]
    assert wrong == []


def test_files_and_functions_stay_small() -> None:
    long = []
    for name, path in ALL.items():
        lines = path.read_bytes().count(b"\n")
        long += [f"{name} has {lines} lines"] if lines > FILE_LINES else []
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                long += [f"{name}: {node.name} has {length} lines"] if length > FUNCTION_LINES else []
    assert long == []


def test_names_say_what_a_thing_is() -> None:
    vague = [name for name, path in ALL.items() if VAGUE.search(path.stem)]
    classes = [(name, n.name) for name, path in ALL.items() for n in nodes(path) if isinstance(n, ast.ClassDef)]
    assert vague == [] and [c for c in classes if VAGUE_CLASS.search(c[1])] == []


def test_modules_and_public_functions_have_docstrings() -> None:
    bare = []
    for name, path in ALL.items():
        module = nodes(path)[0]
        assert isinstance(module, ast.Module)
        bare += [name] if not ast.get_docstring(module) else []
        if name.startswith("agent.doors.commands"):
            continue  # a command group's help stands at its declaration
        for node in module.body:
            public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
            bare += [f"{name}: {node.name}"] if public and not ast.get_docstring(node) else []
    assert bare == []


def test_a_broad_except_is_always_explained() -> None:
    for path in ALL.values():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(r"except (?:Base)?Exception", line):
                assert re.search(r"# noqa: BLE001 -+ \w+", line), f"{path}:{number}: {line.strip()}"
