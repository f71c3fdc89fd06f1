"""The nouns of a dataset: rows with the place they stand in, and what is broken about a file."""

from __future__ import annotations

import ast
import fnmatch
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ...core.types import Evidence
from ..curves.curves import heads
from ..run.files import Line, RunFile
from ..run.program.syntax import constant, keyword, last
from ..run.records import Record
from ..settings.settings import read_settings

if TYPE_CHECKING:
    from ..run.workspace import Workspace

NO_LINE = Line(0, 0, b"")
PREVIEW = 400  # characters of a row without lines that evidence shows


@dataclass(frozen=True, slots=True)
class Row(Record):
    """A record of a dataset and its place.

    Attributes:
        file: the file it stands in.
        number: its number in that file, from 0.
        member: where it stands in a file without lines (`row group 3, row 17`); empty where `line` tells it.
        size: bytes it takes in the file, or of its values.
    """

    file: RunFile
    number: int
    member: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """Something broken about a file: `kind` is a key below `data.`, `member` or `line` say where."""

    file: RunFile
    kind: str
    text: str
    member: str = ""
    line: Line | None = None


@dataclass(slots=True)
class Source:
    """A file that holds samples.

    `kind` is one of jsonl, json, csv, tsv, text, parquet, arrow, megatron, tokens, array, tar.
    """

    file: RunFile
    kind: str


def cited(ws: Workspace, row: Row, key: str, value: Any, text: str = "") -> Evidence:
    """Evidence that shows a row: its line where it has one, otherwise its place and the start of its fields."""
    if row.member:
        return ws.binary(row.file, row.member, key, value, text=text or preview(row.fields))
    return ws.cite(row.file, row.line, key, value)


def place(row: Row) -> str:
    """Where a row stands, in words."""
    return f"{row.file.name}, {row.member}" if row.member else f"{row.file.name}:{row.line.number}"


def told(ws: Workspace, fault: Fault) -> Evidence:
    """Evidence of a fault."""
    if fault.line is not None:
        return ws.cite(fault.file, fault.line, f"data.{fault.kind}", fault.text)
    return ws.binary(fault.file, fault.member or "file", f"data.{fault.kind}", fault.text, text=fault.text)


def preview(fields: dict[str, Any], limit: int = PREVIEW) -> str:
    """The fields in one line, cut."""
    try:
        said = json.dumps(fields, ensure_ascii=False, default=_short)
    except (ValueError, RecursionError, TypeError):
        said = str(list(fields))
    said = said.encode("utf-8", "replace").decode()  # JSON may carry half of a surrogate pair
    return said if len(said) <= limit else f"{said[:limit]}... ({len(said)} characters)"


def _short(value: Any) -> str:
    return f"<{type(value).__name__}, {len(value)} bytes>" if isinstance(value, bytes) else str(value)[:200]


# ----------
# Which files of a run hold samples, and in which format: by name where it is clear, by first bytes where not.

FILES = 400  # files taken as a dataset
NUMBERS = ("megatron", "tokens", "array")  # kinds that hold token ids and no records

_PACKED = re.compile(r"\.(gz|zst|bz2|xz)$", re.IGNORECASE)
_KINDS = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".tar": "tar", ".npy": "array", ".npz": "array", ".txt": "text",
    ".idx": "megatron", ".bin": "tokens", ".tokens": "tokens",
}  # fmt: skip
_TEXT = re.compile(r"(?i)^(train|valid|val|test|eval|corpus|dataset|data|input|text|wiki|dev)[\w.\-]*\.txt$")
_TOKENS = re.compile(r"(?i)(^|[/_.\-])(train|valid|val|test|eval|data|tokens?|corpus|shard|fineweb|openwebtext|part)")
_WEIGHTS = re.compile(r"(?i)model|optimizer|scheduler|random_states|rng|adapter|training_args|weights|grad")
_RESULTS = re.compile(rb'"(filtered_resps|doc_hash|resps)"\s*:')
_REPORT = re.compile(r"(?m)Traceback \(most|\b(ERROR|WARNING|INFO)\b|tensor\(\[|^\s*\w[\w ]*\s*[:=]\s*[\d.,]+\s*$")
_NO_TOKENS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x04", b"\x80\x05", b"PAR1", b"GGUF", b"lmdb")


def sources(ws: Workspace, path: str = "") -> list[Source]:
    """The datasets of the run, or of one file, folder or pattern of it; in the order of their names.

    Args:
        path: name of a file or folder inside the run, or a pattern with `*`. A file that is named so is read
            whatever role it plays otherwise.
    """
    named = [f for f in (ws.files if path else of_the_run(ws, ws.files)) if matches(f.name, path)]
    found = [s for f in named if (s := _source(ws, f, bool(path)))]
    indexed = {s.file.name[: -len(".idx")] + ".bin" for s in found if s.kind == "megatron"}
    found = [s for s in found if s.file.name not in indexed]
    if len(found) > FILES:
        ws.tell(path or "data", f"{len(found) - FILES} of {len(found)} data files were not read")
    return found[:FILES]


def unopened(ws: Workspace, path: str = "") -> list[str]:
    """Files of records that were found and could not be opened or not read wholly, and why."""
    said = {path or "data"}
    kinds = ("jsonl", "csv", "tsv", "parquet", "arrow", "tar")
    return [
        f"{name}: {why}"
        for name, why in ws.skipped
        if name in said or (matches(name, path) and _KINDS.get(_suffix(name), "") in kinds)
    ]


def matches(name: str, path: str) -> bool:
    """Whether a file's name is what a user means by `path`: itself, a folder above it, a pattern, its last part."""
    if not path:
        return True
    path = path.rstrip("/")
    return name == path or name.startswith(path + "/") or name.endswith("/" + path) or fnmatch.fnmatchcase(name, path)


def _source(ws: Workspace, file: RunFile, named: bool) -> Source | None:
    base = _PACKED.sub("", file.name.rsplit("/", 1)[-1])
    suffix = _suffix(base)
    kind = _KINDS.get(suffix)
    if suffix in (".lock", ".incomplete") or file.good:
        return None
    if kind is None:
        return Source(file, "jsonl") if named and file.role in ("data", "log", "other") else None
    if kind in ("jsonl", "json", "csv", "tsv"):
        return Source(file, kind) if named or (file.role == "data" and not _results(ws, file)) else None
    if kind == "text":
        return Source(file, kind) if named or (_TEXT.match(base) and not _printed(ws, file)) else None
    if kind in ("tokens", "array"):
        return _numbers(ws, file, kind, base, named)
    head = ws.head(file) if kind == "megatron" else b""
    if kind == "megatron" and not head.startswith(b"MMIDIDX"):
        return None
    return Source(file, kind)


def _suffix(name: str) -> str:
    base = _PACKED.sub("", name.rsplit("/", 1)[-1])
    return "." + base.rsplit(".", 1)[-1].lower() if "." in base else ""


def _numbers(ws: Workspace, file: RunFile, kind: str, base: str, named: bool) -> Source | None:
    """A file of numbers that may be tokens: not weights, not a saved state."""
    if not named and (_WEIGHTS.search(base) or not _TOKENS.search(file.name)):
        return None
    if kind == "tokens" and ws.head(file).startswith(_NO_TOKENS):
        return None
    return Source(file, kind)


def _results(ws: Workspace, file: RunFile) -> bool:
    """Results of an evaluation, one a line: not samples to train on."""
    return bool(_RESULTS.search(ws.read(file, 64 << 10)))


def _printed(ws: Workspace, file: RunFile) -> bool:
    """Text that reports on something rather than being the data."""
    head = ws.text(file, 16 << 10)
    return bool(_REPORT.search(head))


# ----------
# Which of the data a run read, and which it wrote: its settings, its commands, its logs and the code that was reached
# name files and folders. A file that none of them names, beside one that is named, is no data of this run.

_PATH = re.compile(r"[^\s\\\"'|<>]{1,300}$")
_OPENS = frozenset({
    "open", "Path", "PurePath", "join", "joinpath", "glob", "rglob", "iglob", "listdir", "walk", "iterdir",
    "load_dataset", "load_from_disk", "ImageFolder", "read_csv", "read_json", "read_parquet",
})  # fmt: skip
_WRITES = frozenset({"to_json", "to_csv", "to_parquet", "write_text", "write_bytes", "savetxt", "save_to_disk"})
_DATA_FOLDER = re.compile(r"(?i)(?:^|/)(?:data|datasets?|corpus|corpora|raw_data)/")
_ANY = "\0"  # what an expression puts into a name


@dataclass(slots=True)
class Named:
    """Names of files and of folders that the run read, and of files that it wrote; `\\0` stands for any text."""

    read: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)

    def add(self, text: str, folder: bool) -> None:
        """Take a text of settings or code; `folder`: a word without an ending may be one."""
        text = re.sub(r"\{[^{}]*\}|%\(?\w*\)?[sd]|[*?]+", _ANY, text.strip().removeprefix("./").rstrip("/"))
        if not _PATH.match(text) or "://" in text:
            return
        if "." in PurePosixPath(text).name.strip("."):
            self.read.add(text)
        elif text.strip("." + _ANY) and (folder or "/" in text):
            self.folders.add(text)


def of_the_run(ws: Workspace, files: list[RunFile]) -> list[RunFile]:
    """These files without the data that the run did not read."""
    aside = ws.memo("data aside", lambda: _aside(ws))
    return [f for f in files if f.name not in aside]


def is_written(ws: Workspace, file: RunFile) -> bool:
    """Whether the code that was reached writes a file of this name, as it does with what a model said."""
    return _meaning(_named(ws).written)(file.name)


def _aside(ws: Workspace) -> frozenset[str]:
    if not ws.ran.programs:
        return frozenset()
    found = _named(ws)
    files = [f.name for f in ws.by_role("data") if not f.good]
    read, folders, writes = map(_meaning, (found.read, found.folders, found.written))
    written = set(filter(writes, files))
    above = {n: [str(p) for p in PurePosixPath(n).parents if p.name] for n in files}
    own = {n for n in files if n not in written and (read(n) or any(map(folders, above[n])))}
    around = {PurePosixPath(n).parent for n in own}
    left = (n for n in files if own and n not in own | written)
    return frozenset(n for n in left if PurePosixPath(n).parent in around or _DATA_FOLDER.search(n))


def _meaning(texts: set[str]) -> Callable[[str], bool]:
    """Whether one of these paths, be it of another machine, means a file or a folder: their ends are the same."""
    whole = {t for t in texts if _ANY not in t}
    ends = {end for t in whole for end in _ends(t)}
    shapes = "|".join(re.escape(t).replace(re.escape(_ANY), "[^/]*") for t in texts - whole)
    pattern = re.compile(f"(?:^|/)(?:{shapes})$") if shapes else None
    return lambda name: (
        name in ends or not whole.isdisjoint(_ends(name)) or (pattern is not None and pattern.search(name) is not None)
    )


def _ends(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[n:]) for n in range(len(parts))]


def _named(ws: Workspace) -> Named:
    return ws.memo("data named", lambda: _read_names(ws))


def _read_names(ws: Workspace) -> Named:
    found = Named()
    given: dict[str, set[str]] = {}  # options that are set, with what to
    for s in read_settings(ws).all:
        for value in s.value if isinstance(s.value, list) else [s.value]:
            if isinstance(value, str):
                found.add(value, folder=True)
                given.setdefault(s.key.rpartition(".")[2].lstrip("-").replace("-", "_"), set()).add(value)
    for program in ws.ran.programs:
        for word in (w for c in program.commands for w in c.arguments):
            found.add(word.rpartition("=")[2], folder=False)
        for tree in (t for name in program.reached if (t := ws.ran.trees.get(name)) is not None):
            _of_code(tree, found, given)
    for _, line in heads(ws):
        for word in re.findall(r"[\w./\-]+\.\w{2,8}\b", line.text[:2000]):
            found.add(word, folder=False)
    return found


def _of_code(tree: ast.Module, found: Named, given: Mapping[str, set[str]]) -> None:
    """Constants of a source; of options the defaults, where nothing else was given."""
    passed: set[int] = set()
    for node in ast.walk(tree):
        if id(node) in passed:
            continue
        if (option := _option(node)) and option in given:
            passed |= {id(n) for n in ast.walk(node)}
        elif isinstance(node, ast.Call):
            name = last(node.func)
            texts = [t for n in ast.walk(node) if (t := _text(n))]
            if name in _WRITES or (name == "open" and _to_write(node)):
                found.written |= {t for t in texts if "." in t and _PATH.match(t)}
                passed |= {id(n) for n in ast.walk(node)}
            elif name in _OPENS:
                for text in texts:
                    found.add(text, folder=True)
        elif text := _text(node):
            found.add(text, folder=False)


def _option(node: ast.AST) -> str:
    """The name of an option that a field of a dataclass or `add_argument` declares."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if isinstance(node, ast.Call) and last(node.func) == "add_argument":
        flags = [v for a in node.args if isinstance(v := constant(a), str)]
        return max(flags, key=len, default="").lstrip("-").replace("-", "_")
    return ""


def _to_write(call: ast.Call) -> bool:
    mode = keyword(call, "mode") or (call.args[1] if len(call.args) > 1 else call.args[0] if call.args else None)
    said = constant(mode)
    return isinstance(said, str) and bool(re.fullmatch(r"[wax][bt+]*|r\+b?", said))


def _text(node: ast.AST) -> str:
    """A constant text, or one with gaps for what an expression puts in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(p.value) if isinstance(p, ast.Constant) else _ANY for p in node.values)
    return ""


# ----------
# What a run's own files say about its data: lengths, classes, vocabulary, special tokens, stop words.

LIMITS_FILES = 60

_LIMIT = re.compile(
    r"(?i)\b(?:max_?seq(?:uence)?_?len(?:gth)?|model_max_length|max_length|cutoff_len|sequence_len(?:gth)?|seq_len(?:gth)?"
    r"|max_prompt_length|block_size|context_length)[\"']?\s*[:= ]\s*[\"']?(\d{2,7})\b"
)
_CLASSES = re.compile(r"(?i)\b(?:num_labels|num_classes|n_classes|nb_classes)[\"']?\s*[:= ]\s*(\d{1,6})\b")
_VOCABULARY = re.compile(r"(?i)\bvocab_?size[\"']?\s*[:= ]\s*(\d{2,7})\b")
_POSITIONS = re.compile(r"(?i)\bmax_position_embeddings[\"']?\s*[:= ]\s*(\d{2,8})\b")
_STOP = re.compile(r"""(?i)\b(?:stop(?:_strings|_sequences|_words)?|until)["']?\s*[:=]\s*\[([^\]]{0,400})""")


class Limits:
    """What the run's settings say.

    Attributes:
        tokens: the smallest sequence length set.
        classes, vocabulary: the largest number of classes and of ids.
        bos, eos, pad: ids of the special tokens, where exactly one is named.
        positions: places that the model has embeddings for.
        stops: stop words of the generation, likely ones first.
    """

    def __init__(self, ws: Workspace) -> None:
        files = [f for f in ws.by_role("config", "code") if not f.name.endswith("tokenizer.json")]
        text = "\n".join(ws.text(f, 64 << 10) for f in files[:LIMITS_FILES])
        lengths = [int(n) for n in _LIMIT.findall(text)]
        self.tokens = min(lengths) if lengths else None
        self.classes = max((int(n) for n in _CLASSES.findall(text)), default=None)
        self.bos, self.eos, self.pad = (_token(name, text) for name in ("bos", "eos", "pad"))
        self.positions = max((int(n) for n in _POSITIONS.findall(text)), default=None)
        self.vocabulary = max((int(n) for n in _VOCABULARY.findall(text)), default=None)
        listed = [w for part in _STOP.findall(text) for w in re.findall(r"""["']([^"']{1,40})["']""", part)]
        self.stops = sorted(dict.fromkeys(listed), key=lambda w: not re.fullmatch(r"[A-Za-z]{2,14}", w))


def limits(ws: Workspace) -> Limits:
    """The reading, made once."""
    return ws.memo("data limits", lambda: Limits(ws))


def _token(name: str, text: str) -> int | None:
    """The id of a special token, where the settings name exactly one."""
    found = set(re.findall(rf"(?i)\b{name}_token_id[\"']?\s*[:=]\s*(\d{{1,7}})\b", text))
    return int(found.pop()) if len(found) == 1 else None
