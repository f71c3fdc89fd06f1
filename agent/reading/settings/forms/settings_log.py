"""Settings that a run printed about itself: configuration dumps, argument blocks, trainer banners, echoed commands."""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterator

from ...run.files import Line
from ..settings_map import Leaf, Sheet, parse
from .settings_python import Reader
from .settings_shell import _PROMPT, read_command

REPEATS = 12  # lines alike but for their digits that are looked at: metrics, not settings
BLOCK = 400  # lines a printed dictionary may span
# One cheap test for every line; what it lets through is looked at closely.
_ANY = re.compile(
    rb" \.{2,} |^\s*(?:\+{1,4}|\$) \S|Namespace\(|[Aa]rg(?:ument)?s\b.{0,40}?[:=(]|^\s*\{'"
    rb"|[Cc]onfig\w*['\"]?.{0,40}?[:=(]|batch size |ccumulation [Ss]teps = |optimization steps = |Num Epochs = "
    rb"|[Ww]orld[ _]size|/ world |\b\w+=(?:[Tt]rue|[Ff]alse)\b"
    rb"|^Overriding|^\W*(?:att(?:n|ention)_|torch_dtype|dtype|precision|mixed_precision|backend|compile)"
)
_DOTS = re.compile(r"(?:^|\s|>\s?)([A-Za-z_][\w]{2,60}) \.{2,} ?(\S.{0,300})?$")
_BANNER = re.compile(
    r"(?P<key>Instantaneous batch size per device|Total train batch size \(w\. parallel, distributed & accumulation\)"
    r"|Gradient [Aa]ccumulation steps|Total optimization steps|Num Epochs|Num examples) = (?P<value>[\d,.]+)\s*$"
)
_BANNER_KEYS = {
    "Instantaneous batch size per device": "per_device_train_batch_size",
    "Total train batch size (w. parallel, distributed & accumulation)": "total_train_batch_size",
    "Gradient Accumulation steps": "gradient_accumulation_steps",
    "Gradient accumulation steps": "gradient_accumulation_steps",
    "Total optimization steps": "total_optimization_steps",
    "Num Epochs": "num_train_epochs",
    "Num examples": "num_examples",
}  # fmt: skip
_CALL = re.compile(r"\b(Namespace|TrainingArguments|\w+Arguments|\w+Args|\w+Config)\((?=\w+=|$)")
_ARGS_DICT = re.compile(
    r"(?:[Aa]rgs|[Aa]rguments|[Cc]onfig\w*|[Hh]yperparameters|[Hh]params)['\"]?(?: is| are)?\s*[:=]\s*(?=\{['\"])"
)
_WITH_CONFIG = re.compile(r"with config: (?=\w+=)")
_WORLD = re.compile(r"\b[Ww]orld[ _]size(?: is|:| =|=)?\s+(\d{1,6})\b|\brank \d+ ?/ ?world (\d{1,6})\b")
_FIELD = re.compile(r"(?:^|[\s(,])([A-Za-z_]\w{1,60})=('[^']*'|\"[^\"]*\"|[^\s,()]+)")
# A line of `name=value` pairs with a switch among them tells settings, unless it also tells a measurement.
_SWITCH = re.compile(r"\b\w+=(?:[Tt]rue|[Ff]alse)\b")
_MEASURED = re.compile(r"(?i)\b(?:loss|step|iter\w*|epoch|lr|grad_?norm|reward|time|elapsed|rank|pid|shape|device)=")
# A choice of kernel or precision that a run states on a line of its own.
_STATED = re.compile(
    r"^\W*(attn_?impl\w*|attention_(?:backend|impl\w*)|torch_dtype|dtype|precision|mixed_precision|backend|compile)\b"
    r" ?[:=] ?([\w.\-]{2,40})\s*$"
)
# What a run measured, printed as a dictionary: no settings.
_METRICS = re.compile(
    r"\{'(?:train/|eval_|loss|grad_norm|reward|objective/)|\{.*'(?:train_runtime|train_loss|\w+_per_second|total_flos)':"
)
TAKEN = "taken"  # the note of what a program says that it took from its command
# nanoGPT's configurator tells each word of the command that it took
_TAKEN = re.compile(r"^Overriding:? ([A-Za-z_]\w*) ?= ?(\S.{0,200})$")


def read_log(lines: list[Line]) -> Sheet:
    """Leaves of the settings a log prints. `lines` are the part of it that is looked at."""
    sheet, alike = Sheet(), Counter[bytes]()
    index = 0
    while index < len(lines) and not sheet.full:
        line = lines[index]
        index += 1
        shape = line.data[:96].translate(None, b"0123456789.eE+-")
        alike[shape] += 1
        if alike[shape] > REPEATS:
            continue
        if _ANY.search(line.data[:4000]):
            index += _look(lines, index - 1, sheet)
    return sheet


def _look(lines: list[Line], at: int, sheet: Sheet) -> int:
    """Take what one line (and a block that begins there) says; how many further lines were used."""
    number, text = lines[at].number, lines[at].text.rstrip("\r")
    if _METRICS.search(text):
        return 0
    if m := _DOTS.search(text):
        scope = "deepspeed" if ":print]" in text else "megatron"
        sheet.add(Leaf(m[1], _scalar(m[2] or ""), number, "log", scope, used=True, column=m.start(2)))
        return 0
    if m := _BANNER.search(text):
        sheet.add(Leaf(_BANNER_KEYS[m["key"]], parse(m["value"].replace(",", "")), number, "log", "hf", used=True))
        return 0
    if _PROMPT.match(text):
        for leaf in read_command(text, number).leaves:
            sheet.add(leaf)
        return 0
    if m := _WORLD.search(text):
        sheet.add(Leaf("world_size", int(m[1] or m[2]), number, "log", "", used=True))
        return 0
    m = _CALL.search(text) or _ARGS_DICT.search(text) or _WITH_CONFIG.search(text)
    if m or text.lstrip().startswith("{'"):
        engine = (
            "vllm"
            if m and (m.re is _WITH_CONFIG or "non-default args" in text)
            else "sglang"
            if "ServerArgs(" in text
            else ""
        )
        return _block(
            lines, at, m.start() if m and m.re is _CALL else (m.end() if m else text.find("{")), sheet, engine
        )
    if m := _TAKEN.match(text) or _STATED.match(text):
        note = TAKEN if m.re is _TAKEN else ""
        sheet.add(Leaf(m[1], parse(m[2].strip("'\"")), number, "log", "", used=True, column=m.start(2), note=note))
        return 0
    if _SWITCH.search(text[:2000]) and not _MEASURED.search(text[:2000]):
        pairs = list(_FIELD.finditer(text[:2000]))
        if len(pairs) > 1 and 2 * sum(len(p[0]) for p in pairs) > len(text):
            for p in pairs:
                sheet.add(Leaf(p[1], parse(p[2].strip("'\"")), number, "log", "", used=True, column=p.start(2)))
    return 0


def _block(lines: list[Line], at: int, start: int, sheet: Sheet, scope: str) -> int:
    """A dictionary or call, on one line or over many, read as Python; on failure, its `name=value` pairs."""
    first = lines[at].text[start:]
    body, used = [first], 0
    depth = _balance(first)
    while depth > 0 and used < BLOCK and at + used + 1 < len(lines):
        used += 1
        row = lines[at + used].text
        body.append(row)
        depth += _balance(row)
    if depth > 0:
        body, used = [first], 0
    source = "\n".join(body).lstrip()
    leaves = list(_python(source, lines[at].number - 1, scope))
    if not leaves and used == 0:
        leaves = [
            Leaf(m[1], parse(m[2].strip("'\"")), lines[at].number, "log", scope, used=True)
            for m in _FIELD.finditer(first[:8000])
        ]
    for leaf in leaves:
        sheet.add(leaf)
    return used if leaves else 0


def _balance(text: str) -> int:
    return sum(text.count(c) for c in "([{") - sum(text.count(c) for c in ")]}")


def _python(source: str, shift: int, scope: str) -> Iterator[Leaf]:
    """Leaves of a printed dictionary or `Name(key=value, ...)`."""
    if not source.startswith("{") and not re.match(r"\w+\(", source):
        source = f"config({source})"
    source = re.sub(r"<[^<>]{0,200}>", "None", source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            node = ast.parse(source[:200_000].rstrip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    reader = Reader(ast.Module(body=[], type_ignores=[]), shift)
    if isinstance(node, ast.Dict):
        found = reader._dict("", node, "")
    elif isinstance(node, ast.Call):
        found = (leaf for k in node.keywords if k.arg for leaf in reader._leaf(k.arg, k.value, "log"))
    else:
        return
    for leaf in found:
        yield Leaf(leaf.key, leaf.value, leaf.line, "log", leaf.scope or scope, used=True)


def _scalar(text: str) -> object:
    text = text.strip()
    return _json_like(text) if text[:1] in "{[" else parse(text)


def _json_like(text: str) -> object:
    return text[:300]
