"""Whose setting it is: places that belong to another model, to evaluation, to an engine, or to a part that is off."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ..reading.settings_python import dotted
from .spelling import lineage, listed

if TYPE_CHECKING:
    from .document import Document, Found

# Parts of a key or of a name in code that say: not the model that is trained.
OTHERS = frozenset(
    (
        "critic", "reward", "rm", "ref", "reference", "teacher", "discriminator", "draft", "eval", "evaluate",
        "evaluation", "val", "valid", "validate", "validation", "test", "predict", "inference",
    )
)  # fmt: skip
_NOT_FOR = {"learning_rate": {"scheduler", "sched", "ema", "swa"}}
_ENGINES = ("vllm", "sglang")
_TREES = ("yaml", "json", "toml", "override", "dict", "flag", "ini")


def elsewhere(doc: Document, found: Found) -> bool:
    """Whether a place that bears a setting's name sets it for something else than the training itself."""
    leaf = found.leaf
    if leaf.scope in _ENGINES and leaf.scope not in lineage(doc.framework) and doc.framework:
        return True
    if OTHERS & _parts(found.name):
        return False
    above = leaf.key.split(".")[: -len(found.spelling.segments)] if leaf.style in _TREES else []
    if above[:1] == ["defaults"] and leaf.style == "yaml":
        return True  # Hydra's list of files, not of values
    others = OTHERS | _NOT_FOR.get(found.name, set()) if not found.own else OTHERS
    if any(others & _parts(segment) for segment in above):
        return True
    return doc.form == "python" and (other_call(doc, leaf.line) or _not_passed(doc, found))


def _not_passed(doc: Document, found: Found) -> bool:
    """Whether a dictionary of the code does not reach the framework: its call is there, and takes no such name."""
    if found.leaf.style != "dict" or found.scope == "deepspeed":
        return False
    calls, line = listed("calls", doc.framework) or (), found.leaf.line
    made = [n for n in ast.walk(doc.tree) if isinstance(n, ast.Call) and dotted(n.func).rpartition(".")[2] in calls]
    if not made or any(n.lineno <= line <= (n.end_lineno or 0) for n in made):
        return False
    if any(k.arg is None for n in made for k in n.keywords):
        return False
    named = {n.id for call in made for n in ast.walk(call) if isinstance(n, ast.Name)}
    homes = [n for n in doc.tree.body if isinstance(n, ast.Assign) and n.lineno <= line <= (n.end_lineno or 0)]
    return not any(_name(target) in named for n in homes for target in n.targets)


def _parts(name: str) -> set[str]:
    """The words of a name. `actor_rollout_ref` is the actor's, though it names the reference."""
    if name.lower().startswith("actor"):
        return set()
    return set(re.split(r"[_\-]|(?<=[a-z])(?=[A-Z])", name)) | set(re.split(r"[_\-]", name.lower()))


def other_call(doc: Document, line: int) -> bool:
    """Whether code on a line makes something for another model or for evaluation, by the names around it."""
    return any(first <= line <= last for first, last in doc.others)


def lines_of_others(tree: ast.AST) -> list[tuple[int, int]]:
    """First and last lines of the statements and functions whose names say so."""
    found: list[tuple[int, int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [_name(target) for target in node.targets]
        elif isinstance(node, ast.AnnAssign):
            names = [_name(node.target)]
        else:
            continue
        if any(OTHERS & {part.lower() for part in _parts(name)} for name in names):
            found.append((node.lineno, node.end_lineno or node.lineno))
    return found


def _name(target: ast.expr) -> str:
    return target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""


def asleep(doc: Document, found: Found) -> bool:
    """Whether a mapping around a place says `enabled: false`, so that nobody reads it."""
    parts = found.leaf.key.split(".")
    return any(
        ".".join(parts[:i]) in doc.disabled and parts[i:] not in (["enabled"], ["enable"]) for i in range(1, len(parts))
    )


def switched_on(doc: Document, found: Found) -> bool:
    """Whether a mapping around a place says `enabled: true`."""
    parts = found.leaf.key.split(".")
    return any(".".join(parts[:i]) in doc.enabled for i in range(1, len(parts)))
