"""Environment variables that Python code sets: `os.environ["X"] = "..."`, before the libraries are imported."""

from __future__ import annotations

import ast
import re

from .document import Document
from .environment_shell import Assigned
from .insert_python import Source, dotted
from .literals import as_python
from .model import Splice, Unplaced

_HEAVY = {
    "torch", "transformers", "accelerate", "deepspeed", "lightning", "pytorch_lightning", "vllm", "sglang", "megatron",
    "trl", "datasets", "tensorflow", "jax", "numpy", "nemo", "verl", "slime", "openrlhf", "torchtitan", "torchvision",
    "bitsandbytes", "flash_attn", "peft", "axolotl", "unsloth", "xformers", "apex", "ray", "pandas", "scipy",
}  # fmt: skip
# What is read before Python code runs.
_TOO_LATE = re.compile(r"LD_|PYTHON(?!_)|PATH\Z|GLIBC_|MALLOC_")


def python_places(doc: Document, name: str) -> list[Assigned]:
    """The statements that set a variable to a plain text.

    Raises:
        Unplaced: it is computed, set in a branch, or set several times with different values.
    """
    source = Source(doc)
    found: list[Assigned] = []
    for node, branch in _statements(source.tree, False):
        value = _value_of(node, name)
        if value is None:
            continue
        if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
            raise Unplaced(f"{name} is computed (line {node.lineno})")
        if branch:
            raise Unplaced(f"{name} is set in a branch (line {node.lineno})")
        found.append(Assigned(name, "python", source.start(value), source.end(value), node.lineno))
    if len({ast.literal_eval(p.source(doc)) for p in found}) > 1:
        raise Unplaced(f"{name} is set {len(found)} times with different values")
    mentions = re.findall(rf"environ[^\n]*['\"]{name}['\"][^\n]*(?<![=!<>])=(?!=)|\b{name}=", doc.clean)
    if len(mentions) > len(found):
        raise Unplaced(f"{name} is set in a way that is not read")
    return found


def _statements(node: ast.AST, branch: bool) -> list[tuple[ast.stmt, bool]]:
    """Every statement, and whether it runs only in a branch."""
    out: list[tuple[ast.stmt, bool]] = []
    for child in ast.iter_child_nodes(node):
        inner = branch
        if isinstance(child, ast.stmt):
            out.append((child, branch))
            main = isinstance(child, ast.If) and "__main__" in ast.dump(child.test)
            inner = branch or (
                isinstance(child, ast.If | ast.For | ast.While | ast.Try | ast.Match | ast.ClassDef) and not main
            )
        out += _statements(child, inner)
    return out


def _value_of(node: ast.stmt, name: str) -> ast.expr | None:
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(target := node.targets[0], ast.Subscript):
        key = target.slice
        if dotted(target.value).endswith("environ") and isinstance(key, ast.Constant) and key.value == name:
            return node.value
    if isinstance(node, ast.Expr) and isinstance(call := node.value, ast.Call) and len(call.args) == 2:
        key = call.args[0]
        if re.fullmatch(r"(?:os\.)?(?:environ\.setdefault|putenv)", dotted(call.func)):
            return call.args[1] if isinstance(key, ast.Constant) and key.value == name else None
    return None


def put_python(doc: Document, name: str, value: str) -> list[Splice]:
    """A line above the first import of a library that reads its environment, with `import os` where that is missing.

    Raises:
        Unplaced: Python code is too late for it, or there is no such place at the top level of the module.
    """
    if _TOO_LATE.match(name):
        raise Unplaced(f"{name} is read before the code runs: set it in the launch script")
    source = Source(doc)
    body = [node for node in source.tree.body if not _first(node)]
    if not body:
        raise Unplaced("the module holds no code")
    heavy = next((node for node in body if _imports(node)), None)
    if heavy is None:
        raise Unplaced("the code imports no library that reads it")
    made = [node for node in body if node.lineno < heavy.lineno and _sets_some(node)]
    row = f'os.environ["{name}"] = {as_python(value)}'
    if made and (line := _after(doc, made[-1])) is not None:
        target = made[-1].targets[0] if isinstance(made[-1], ast.Assign) else None
        owner = dotted(target.value) if isinstance(target, ast.Subscript) else "os.environ"
        return [Splice(line, line, row.replace("os.environ", owner, 1) + doc.newline)]
    at = doc.lines.start(heavy.lineno)
    if doc.text[at : at + heavy.col_offset].strip() or _shares_line(source.tree, heavy):
        raise Unplaced("the import shares its line with other code")
    known = any(
        isinstance(node, ast.Import) and any(a.name == "os" and not a.asname for a in node.names)
        for node in body if node.lineno < heavy.lineno
    )  # fmt: skip
    text = ("" if known else f"import os{doc.newline}") + row + doc.newline
    return [Splice(at, at, text)]


def _first(node: ast.stmt) -> bool:
    """The docstring and imports from the future stay where they are."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _imports(node: ast.stmt) -> bool:
    """Whether a statement imports one of the libraries when the module is loaded."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    for part in ast.walk(node):
        if isinstance(part, ast.Import) and any(a.name.partition(".")[0] in _HEAVY for a in part.names):
            return True
        if isinstance(part, ast.ImportFrom) and (part.level or (part.module or "").partition(".")[0] in _HEAVY):
            return True
    return False


def _sets_some(node: ast.stmt) -> bool:
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    return isinstance(target, ast.Subscript) and dotted(target.value).endswith("environ")


def _after(doc: Document, node: ast.stmt) -> int | None:
    """The start of the line below a statement, where it has its last line for itself."""
    row = doc.row(node.end_lineno or node.lineno)
    behind = row.encode()[node.end_col_offset or 0 :].decode(errors="replace")
    if not row.endswith("\n") or not re.fullmatch(r"\s*(?:#.*)?\s*", behind):
        return None
    return doc.lines.start(node.end_lineno or node.lineno) + len(row)


def _shares_line(tree: ast.Module, node: ast.stmt) -> bool:
    return any(n is not node and (n.end_lineno or n.lineno) >= node.lineno > n.lineno - 1 for n in tree.body
               if n.lineno <= node.lineno)  # fmt: skip


def cut_python(doc: Document, place: Assigned) -> Splice:
    """The whole line of a statement that sets a variable.

    Raises:
        Unplaced: it does not have the line for itself.
    """
    at = doc.lines.start(place.line)
    row = doc.row(place.line)
    if not re.fullmatch(r"(?:\w+\.)*environ\[[^\]\n]*\]\s*=\s*[^\n]*", row.rstrip()) or ";" in row:
        raise Unplaced("the statement does not have its line for itself")
    return Splice(at, at + len(row), "", place.name)
