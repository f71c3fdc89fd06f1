"""Environment variables of a run's own files: launch scripts, `.env` files and Python code."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from .document import Document
from .environment_shell import Assigned, Elsewhere, assigned, effective, put_variable, rewritten, taken_out
from .insert_code import Source, dotted
from .insert_data import put_env
from .spelling import REMOVE, Changed, Edit, Snippet, Splice, Unplaced, as_python, as_word, spliced
from .steps_of_change import json_variable

# ----------
# Environment variables that Python code sets: `os.environ["X"] = "..."`, before the libraries are imported.


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


# ----------
# Environment variables that hold lists: a new value joins what stands there, and nothing of it is lost.

ALLOCATORS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_SETS = ("NCCL_DEBUG_SUBSYS",)
PATHS = ("LD_PRELOAD", "LD_LIBRARY_PATH")
_PARTS = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")


def merged(name: str, old: str, new: str) -> str:
    """The value that holds both.

    Args:
        old: what stands in the file, without its quotes.

    Raises:
        Unplaced: what stands there is filled in from elsewhere, so that its parts cannot be told.
    """
    if name in ALLOCATORS:
        return _by_key(_plain(old), new)
    if name in _SETS:
        return _as_set(_plain(old), new)
    if name in PATHS:
        return _in_front(old, new)
    return new


def _plain(old: str) -> str:
    if "$" in old or "`" in old:
        raise Unplaced(f"`{old[:60]}` is filled in from elsewhere, so nothing can be added to it")
    return old


def _by_key(old: str, new: str) -> str:
    """`a:b,c:d`: each key of the new text takes its place, the other keys stay."""
    parts = [part.strip() for part in _PARTS.findall(old) if part.strip()]
    keys = [part.partition(":")[0] for part in parts]
    for part in (p.strip() for p in _PARTS.findall(new)):
        key = part.partition(":")[0]
        if key in keys:
            parts[keys.index(key)] = part
        else:
            parts.append(part)
            keys.append(key)
    return ",".join(parts)


def _as_set(old: str, new: str) -> str:
    there = [part.strip() for part in old.split(",") if part.strip()]
    if "ALL" in there:
        return old
    kept = [part for part in there if part.removeprefix("^") not in new.split(",") or part[:1] != "^"]
    return ",".join([*kept, *(part for part in new.split(",") if part not in there)])


def _in_front(old: str, new: str) -> str:
    there = [re.sub(r"\$\{[^}]*\}", "", part) for part in re.findall(r"(?:\$\{[^}]*\}|[^: ])+", old)]
    added = [part for part in new.split(":") if part and part not in there]
    return ":".join([*added, old]) if old else ":".join(added)


def alone(name: str, value: str) -> str:
    """The text of a value where nothing stands in the file: a search path keeps what the shell already holds."""
    if name in PATHS:
        return f'"{value}${{{name}:+:${name}}}"'
    return ""


# ----------

BOM = "\ufeff"
_NAME = re.compile(r"[A-Za-z_]\w{0,80}\Z")
_ENV_ROW = re.compile(r"(?m)^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=([^\r\n]*)")
_NO_SCRIPT = re.compile(r"(?:^|/)(?:dockerfile[^/]*|[^/]*\.dockerfile|containerfile)\Z", re.IGNORECASE)


def change_variables(text: str, name: str, values: Mapping[str, Any]) -> Changed:
    """Change environment variables in a text.

    A variable that is set is changed where it stands; one that holds a list keeps what is in it. A new one is put where
    it reaches the processes that train.

    Args:
        text: the file, as decoded without translation of line ends.
        name: the file's name, which tells its format.
        values: variable -> its value as a string, or `REMOVE`.

    Returns:
        The text with its edits; what cannot be written safely is a snippet with the reason.
    """
    bom, body = (BOM, text[1:]) if text.startswith(BOM) else ("", text)
    edits: list[Edit] = []
    left: list[Snippet] = []
    for variable, value in values.items():
        shown = "" if value is REMOVE else _shown(name, variable, str(value))
        try:
            body, made = _one(body, name, variable, value)
            edits += made
        except Elsewhere as e:
            left.append(Snippet(variable, e.text if value is not REMOVE else "", str(e)))
        except Unplaced as e:
            left.append(Snippet(variable, shown, str(e)))
    return Changed(bom + body, tuple(edits), tuple(left))


def _shown(name: str, variable: str, value: str) -> str:
    """What to put in by hand, in the form that the file takes."""
    low = name.lower()
    if _NO_SCRIPT.search(low):
        return f"ENV {variable}={as_word(value)}"
    if low.endswith((".yaml", ".yml")):
        quoted = as_python(value).replace("'", '"') if '"' not in value else as_python(value)
        return f"{variable}: {quoted}" if "compose" in low else f"- name: {variable}\n  value: {quoted}"
    if low.endswith(".py"):
        return f'os.environ["{variable}"] = {as_python(value)}'
    return f"export {variable}={alone(variable, value) or as_word(value)}"


def _one(text: str, name: str, variable: str, value: Any) -> tuple[str, list[Edit]]:
    if not _NAME.match(variable) or (value is not REMOVE and re.search(r"[\x00-\x1f\x7f]", str(value))):
        raise Unplaced(f"{variable[:80]} cannot be set to this value")
    form = _form(text, name)
    if form == "env":
        splices = _env_file(text, variable, value)
        after = spliced(text, splices)
        now = [m[2] for m in _ENV_ROW.finditer(after) if m[1] == variable]
        if (value is REMOVE) != (not now):
            raise Unplaced("the file cannot be read back after the change")
        return after, _told(text, after, variable, splices)
    doc = Document.read(text, name if form == "shell" else "a.py")
    splices = _python(doc, variable, value) if form == "python" else _shell(doc, variable, value)
    if not splices:
        return text, []
    after = doc.again(spliced(text, splices))
    if form == "python" and doc.parses() and not after.parses():
        raise Unplaced("the code would not parse after the change")
    _same_otherwise(doc, after, variable)
    again = _python(after, variable, value) if form == "python" else _shell(after, variable, value)
    if again:
        raise Unplaced("the variable cannot be read back after the change")
    return after.text, _told(text, after.text, variable, splices)


def _form(text: str, name: str) -> str:
    """`shell`, `env` or `python`.

    Raises:
        Unplaced: a file of another kind.
    """
    low = name.lower().rsplit("/", 1)[-1]
    suffix = "." + low.rpartition(".")[2] if "." in low else ""
    first = text[:200].split("\n", 1)[0]
    if _NO_SCRIPT.search(low):
        raise Unplaced("an image file, not a script: put the line in where the training's stage begins")
    if suffix == ".py" or (suffix == "" and re.match(r"#!.*\bpython", first)):
        return "python"
    if suffix == ".env" or low in (".env", "env") or low.startswith(".env."):
        return "env"
    script = re.match(r"#!.*\b(?:ba|z|da|k)?sh\b", first) or "\n#SBATCH" in text[:4000] or first.startswith("#SBATCH")
    if suffix in (".sh", ".bash", ".sbatch", ".slurm", ".job") or (suffix in ("", ".txt") and script):
        return "shell"
    raise Unplaced("no launch script: put the variable where the job's environment is written")


def _told(before: str, after: str, variable: str, splices: list[Splice]) -> list[Edit]:
    out: list[Edit] = []
    for s in splices:
        shift = sum(len(o.text) - (o.end - o.start) for o in splices if o.start < s.start)
        line = after.count("\n", 0, min(s.start + shift, len(after))) + 1
        out.append(Edit(variable, variable, line, before[s.start : s.end].strip("\r\n"), s.text.strip("\r\n")))
    return out


def _same_otherwise(before: Document, after: Document, variable: str) -> None:
    """Nothing but the variable may differ once the text is read again."""
    names = {variable, *(ALLOCATORS if variable in ALLOCATORS else ())}

    def rest(doc: Document) -> list[tuple[str, str]]:
        leaves = [leaf for leaf in doc.sheet.leaves if leaf.key not in names]
        return sorted(
            (leaf.key, repr(leaf.value)) for leaf in leaves if variable not in repr(leaf.value) and leaf.key != "export"
        )

    if rest(before) != rest(after):
        raise Unplaced("the change would touch other settings of the file")


def _shell(doc: Document, variable: str, value: Any) -> list[Splice]:
    variable, found = _alias(doc, variable, lambda v: assigned(doc, v))
    if value is REMOVE:
        return [json_variable(doc, variable, p.start, p.end) if p.kind == "json" else taken_out(doc, p) for p in found]
    if not found:
        return put_variable(doc, variable, alone(variable, value) or as_word(value))
    out: list[Splice] = []
    for place in effective(doc, found, variable):
        new = merged(variable, place.value(doc), value)
        if new != place.value(doc) or place.kind == "plain":
            out += rewritten(doc, place, new)
    return out


def _alias(doc: Document, variable: str, look: Any) -> tuple[str, list[Assigned]]:
    """The allocator's variable has three names: the one that stands there is kept."""
    found = look(variable)
    for other in ALLOCATORS if variable in ALLOCATORS and not found else ():
        if there := look(other):
            return other, there
    return variable, found


def _python(doc: Document, variable: str, value: Any) -> list[Splice]:
    variable, found = _alias(doc, variable, lambda v: python_places(doc, v))
    if value is REMOVE:
        return [cut_python(doc, place) for place in found]
    if not found:
        return put_python(doc, variable, value)
    out: list[Splice] = []
    for place in found:
        new = merged(variable, place.value(doc), value)
        if new != place.value(doc):
            out.append(Splice(place.start, place.end, as_python(new, place.source(doc)), variable))
    return out


def _env_file(text: str, variable: str, value: Any) -> list[Splice]:
    newline = "\r\n" if "\r\n" in text else "\n"
    rows = {m[1]: m for m in _ENV_ROW.finditer(text)}
    if sum(m[1] == variable for m in _ENV_ROW.finditer(text)) > 1:
        raise Unplaced(f"{variable} stands twice")
    if variable in ALLOCATORS and variable not in rows:
        variable = next((a for a in ALLOCATORS if a in rows), variable)
    m = rows.get(variable)
    if value is REMOVE:
        return [_row_out(text, m, newline)] if m else []
    if m is None and variable in PATHS:
        raise Unplaced(f"{variable} would replace the whole search path: set it in the launch script")
    if m is None:
        return put_env(text, variable, as_word(value), newline)
    quoted = re.match(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'", m[2].strip())
    source = quoted[0] if quoted else re.split(r"[ \t]+#", m[2])[0].strip()
    old = source.strip("'\"") if quoted else source
    new = merged(variable, old, value)
    start = m.start(2) + (m[2].find(source) if source else 0)
    return [] if new == old else [Splice(start, start + len(source), as_word(new, source), variable)]


def _row_out(text: str, m: re.Match[str], newline: str) -> Splice:
    start, end = m.start(), m.end()
    stop = text.find("\n", end)
    if stop >= 0:
        return Splice(start, stop + 1, "")
    return Splice(max(start - len(newline), 0) if start else 0, len(text), "")
