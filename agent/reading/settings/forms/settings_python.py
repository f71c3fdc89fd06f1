"""Settings written in Python: keyword calls, plain assignments, dictionaries, argparse defaults. Parsed, never run."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any

from ..settings_map import DEPTH, LIST_CAP, VALUE_CAP, Leaf, Sheet, parse

SOURCE_CAP = 1 << 20
ROW_CAP = 20_000  # characters of a line in which places are looked for
# A call whose keywords are settings, known by the end of its name.
_CALLS = re.compile(
    r"(?:Loader|Dataset|Args|Arguments|Config|Configuration|Trainer|Params|Options|DataLoader|LLM|Engine|Plugin|Strategy|Accelerator"
    r"|Adam\w*|SGD|Lion|Adafactor|Muon|LoRA|Lora|DDP|DistributedDataParallel|FullyShardedDataParallel|FSDP|fully_shard"
    r"|GradScaler|autocast|from_pretrained|get_peft_model|init_process_group|initialize|get_\w*schedule\w*|\w*LR"
    r"|clip_grad_norm_|clip_grad_value_|compile|SamplingParams|InitProcessGroupKwargs|LlmConfig|Namespace|gen|checkpoint|add_argument|run|train)\Z"
)
_PLAIN = re.compile(r"^[ \t]*([A-Za-z_]\w{0,60})[ \t]*=[ \t]*([\w.+\-'\"/]{1,200})[ \t]*,?[ \t]*(?:#.*)?$")
_SCOPED = {"DataLoader": "pytorch", "LLM": "vllm", "SamplingParams": "vllm", "LoraConfig": "peft", "Trainer": "",
           "TrainingArguments": "hf", "Seq2SeqTrainingArguments": "hf"}  # fmt: skip
_HELD_OUT = re.compile(r"(?i)(?:^|[^a-z])(?:val|valid|validation|test|eval|evaluation|dev|held_?out)(?:$|[^a-z])")
_TRL = re.compile(r"(?:SFT|DPO|GRPO|PPO|RLOO|ORPO|KTO|CPO|Reward|OnlineDPO)(?:v2)?Config\Z")


def read_python(text: str, tree: ast.Module | None = None) -> Sheet:
    """Leaves of a Python source; of one that does not parse, its plain `name = literal` lines.

    Args:
        tree: the tree of that very text, where somebody has it already.
    """
    sheet = Sheet()
    if len(text) > SOURCE_CAP:
        sheet.problems.append("over 1 MiB of Python, not read")
        return sheet
    excerpt = text.lstrip("\r\n")[:1] in (" ", "\t")  # starts inside a class or a function
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = tree or ast.parse(textwrap.dedent(text) if excerpt else text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        sheet.problems.append(f"line {getattr(e, 'lineno', 1)}: not Python: {getattr(e, 'msg', e)}"[:200])
        for number, row in enumerate(text.split("\n"), 1):
            if m := _PLAIN.match(row):
                sheet.add(Leaf(m[1], parse(m[2].strip("'\"")), number, "keyword"))
        return sheet
    rows = None if excerpt else text.split("\n")  # columns of a text that was moved are not those of the file
    sheet.tree = tree
    for leaf in Reader(tree, rows=rows).leaves():
        sheet.add(leaf)
    return sheet


class Reader:
    """One pass over a syntax tree. Names assigned once at module level are looked up.

    Without the `rows` of the source no place of a value is told.
    """

    def __init__(self, tree: ast.AST, shift: int = 0, rows: list[str] | None = None) -> None:
        self.tree, self.shift, self.rows = tree, shift, rows or []
        self._wide: dict[int, bytes | None] = {}
        self.constants: dict[str, Any] = {}
        for node in getattr(tree, "body", []):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.constants[node.targets[0].id] = self.value(node.value)

    def leaves(self) -> Iterator[Leaf]:
        pending: list[ast.AST] = [self.tree]
        aside: set[int] = set()  # calls that make what is held out
        while pending:
            node = pending.pop()
            pending.extend(reversed(list(ast.iter_child_nodes(node))))
            named = [node] if isinstance(node, ast.FunctionDef) else getattr(node, "targets", [])
            if any(map(_held_out, named)):
                aside |= {id(n) for n in ast.walk(node) if isinstance(n, ast.Call)}
            if isinstance(node, ast.Call):
                data = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "dataset")]
                loads = dotted(node.func).endswith("Loader")
                if not loads or not (id(node) in aside or any(map(_held_out, data))):
                    yield from self._call(node)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                yield from self._assign(node)

    def _leaf(
        self, key: str, node: ast.expr, style: str, scope: str = "", note: str = "", line: int = 0
    ) -> Iterator[Leaf]:
        if isinstance(node, ast.Dict):
            yield from self._dict(key, node, scope)
            return
        column, width = self.place(node, line or node.lineno)
        at = (line or node.lineno) + self.shift
        yield Leaf(key, self.value(node), at, style, scope, column=column, width=width, note=note, node=node)

    def place(self, node: ast.expr, line: int) -> tuple[int, int]:
        """Column and width in characters (a syntax tree counts bytes); (0, 0) when not all of it is on the line."""
        if not (node.lineno == node.end_lineno == line <= len(self.rows)) or len(self.rows[line - 1]) > ROW_CAP:
            return 0, 0
        begin, end = node.col_offset, node.end_col_offset or 0
        if (row := self._bytes(line)) is not None:
            begin, end = len(row[:begin].decode(errors="replace")), len(row[:end].decode(errors="replace"))
        return begin, end - begin

    def _bytes(self, line: int) -> bytes | None:
        """The bytes of a row in which they are not its characters."""
        if line not in self._wide:
            row = self.rows[line - 1]
            self._wide[line] = None if row.isascii() else row.encode()
        return self._wide[line]

    def _call(self, node: ast.Call) -> Iterator[Leaf]:
        name = dotted(node.func)
        last = name.rpartition(".")[2]
        if last == "add_argument":
            yield from self._argument(node)
        elif last in ("clip_grad_norm_", "clip_grad_value_") and len(node.args) > 1:
            yield from self._leaf("max_grad_norm", node.args[1], "keyword", note=last)
        elif name in ("manual_seed", "torch.manual_seed") and node.args:
            yield from self._leaf("seed", node.args[0], "keyword", note=last)
        elif last == "set_float32_matmul_precision" and node.args:
            yield from self._leaf("matmul_precision", node.args[0], "keyword", "env", note=last)
        if last in ("setdefault", "putenv") and "environ" in name and len(node.args) == 2:
            key = self.value(node.args[0])
            if isinstance(key, str):
                yield from self._leaf(key, node.args[1], "environment", "env")
        if last == "add_argument" or not _CALLS.search(last):
            return
        scope = (
            "sft"
            if last == "SFTConfig"
            else "trl"
            if _TRL.search(last)
            else _SCOPED.get(last, "pytorch" if last in ("init_process_group", "InitProcessGroupKwargs") else "")
        )
        for keyword in node.keywords:
            if keyword.arg is None:
                continue
            if isinstance(keyword.value, ast.Call) and dotted(keyword.value.func).endswith("timedelta"):
                column, width = self.place(keyword.value, keyword.value.lineno)
                span = self._timedelta(keyword.value)
                line = keyword.value.lineno + self.shift
                yield Leaf(
                    keyword.arg, span, line, "keyword", scope,
                    column=column, width=width, note=last, node=keyword.value,
                )  # fmt: skip
            else:
                yield from self._leaf(keyword.arg, keyword.value, "keyword", scope, note=last)

    def _argument(self, node: ast.Call) -> Iterator[Leaf]:
        """`parser.add_argument("--lr", default=1e-4)`: what applies when the flag is not given."""
        names = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        long = next((n for n in names if n.startswith("--")), names[-1] if names else "")
        keywords = {k.arg: k.value for k in node.keywords}
        default = keywords.get("default")
        if long and default is not None:
            yield from self._leaf(long.lstrip("-"), default, "default", note="add_argument", line=default.lineno)
        elif long and isinstance(action := keywords.get("action"), ast.Constant) and action.value == "store_true":
            yield Leaf(long.lstrip("-"), False, node.lineno + self.shift, "default", note="add_argument", node=action)

    def _assign(self, node: ast.Assign | ast.AnnAssign) -> Iterator[Leaf]:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is None or len(targets) != 1:
            return
        target = targets[0]
        if isinstance(target, ast.Subscript) and "environ" in dotted(target.value):
            key = self.value(target.slice)
            if isinstance(key, str):
                yield from self._leaf(key, node.value, "environment", "env")
        elif isinstance(target, ast.Name | ast.Attribute):
            name = target.id if isinstance(target, ast.Name) else target.attr
            if name.startswith("_") and name.isupper() and isinstance(node.value, ast.Dict):
                return  # a table of the module's own, of what may be given
            if isinstance(node.value, ast.Dict):
                yield from self._dict("" if isinstance(target, ast.Name) else name, node.value, "")
            elif isinstance(node.value, ast.Constant | ast.UnaryOp | ast.BinOp | ast.List | ast.Tuple | ast.Attribute):
                yield from self._leaf(name, node.value, "assignment", line=node.lineno)
            elif isinstance(node, ast.AnnAssign) and (default := _field_default(node.value)) is not None:
                yield from self._leaf(name, default, "assignment")

    def _dict(self, prefix: str, node: ast.Dict, scope: str, depth: int = 0) -> Iterator[Leaf]:
        for key, value in zip(node.keys, node.values, strict=True):
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                continue
            path = f"{prefix}.{key.value}" if prefix else key.value
            if isinstance(value, ast.Dict) and depth < DEPTH:
                yield from self._dict(path, value, scope, depth + 1)
            else:
                column, width = self.place(value, value.lineno)
                line = value.lineno + self.shift
                yield Leaf(path, self.value(value), line, "dict", scope, column=column, width=width, node=value)

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """What an expression plainly says: a constant, a list of constants, arithmetic, or its source text."""
        if isinstance(node, ast.Constant):
            return _bounded(node.value)
        if isinstance(node, ast.Name):
            return self.constants.get(node.id, f"<{node.id}>")
        if isinstance(node, ast.Attribute):
            return dotted(node)
        if depth < 20 and isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.value(node.operand, depth + 1)
            return -inner if isinstance(inner, int | float) else inner
        if depth < 20 and isinstance(node, ast.BinOp):
            return self._arithmetic(node, depth)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return [self.value(e, depth + 1) for e in node.elts[:LIST_CAP]] if depth < 5 else []
        if isinstance(node, ast.Call):
            return f"{dotted(node.func)}(...)"
        return f"<{type(node).__name__}>"

    def _arithmetic(self, node: ast.BinOp, depth: int) -> Any:
        left, right = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
        if isinstance(left, int | float) and isinstance(right, int | float) and abs(left) < 1e15 and abs(right) < 1e15:
            if isinstance(node.op, ast.Mult):
                return left * right
            if isinstance(node.op, ast.Add):
                return left + right
            if isinstance(node.op, ast.Sub):
                return left - right
            if isinstance(node.op, ast.Div | ast.FloorDiv) and right:
                return left / right if isinstance(node.op, ast.Div) else left // right
            if isinstance(node.op, ast.Pow) and 0 <= right <= 40 and abs(left) <= 1024:
                return left**right
        return "<BinOp>"

    def _timedelta(self, node: ast.Call) -> Any:
        units = {
            "days": 86400,
            "seconds": 1,
            "microseconds": 1e-6,
            "milliseconds": 0.001,
            "minutes": 60,
            "hours": 3600,
            "weeks": 604800,
        }  # fmt: skip  (in the order in which the call takes them)
        if len(node.args) > len(units):
            return "timedelta(...)"
        total = 0.0
        for unit, given in (*zip(units, node.args, strict=False), *((k.arg or "", k.value) for k in node.keywords)):
            value = self.value(given)
            if unit not in units or not isinstance(value, int | float):
                return "timedelta(...)"
            total += value * units[unit]
        return total


def _held_out(node: ast.AST) -> bool:
    """Whether a name, or what it is taken from, is of data that is held out: `val_set`, `sets["test"]`, `self.dev`."""
    if isinstance(node, ast.Subscript):
        return _held_out(node.slice) or _held_out(node.value)
    if isinstance(node, ast.Call):  # Subset(full, val_ids), load("test.csv")
        return any(map(_held_out, node.args))
    name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "name", None)
    name = node.value if isinstance(node, ast.Constant) else name
    return isinstance(name, str) and _HELD_OUT.search(name) is not None and not re.search(r"(?i)train", name)


def _field_default(node: ast.expr) -> ast.expr | None:
    """The default of a dataclass or model field: `field(default=1e-4)`, `Field(1e-4)`."""
    if not isinstance(node, ast.Call) or dotted(node.func).rpartition(".")[2] not in ("field", "Field"):
        return None
    given = next((k.value for k in node.keywords if k.arg == "default"), None)
    first = node.args[0] if node.args else None
    found = given or first
    return found if isinstance(found, ast.Constant | ast.UnaryOp | ast.BinOp | ast.List | ast.Attribute) else None


def dotted(node: ast.AST) -> str:
    """`torch.bfloat16` of an attribute chain."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < 12:
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    elif isinstance(node, ast.Call):
        parts.append(dotted(node.func))
    return ".".join(reversed(parts))


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return value[:VALUE_CAP]
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return "<a very long integer>"
    return value if isinstance(value, bool | int | float | None) else str(value)[:VALUE_CAP]
