"""What a pickle's opcodes make when nothing is executed: names, calls that never happen, views on storages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal


class Global:
    """A class or function by name."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    @property
    def full(self) -> str:
        return f"{self.module}.{self.name}"


class Built:
    """An object that a call would make: what was called, with what, and what was put into it afterwards."""

    __slots__ = ("args", "entries", "items", "name", "state")

    def __init__(self, name: str, args: tuple[Any, ...] = ()) -> None:
        self.name, self.args = name, args
        self.state: Any = None
        self.items: list[Any] | None = None
        self.entries: dict[Any, Any] | None = None


class Storage:
    """A run of elements that lies outside the pickle. `count` is in elements of `dtype`."""

    __slots__ = ("count", "dtype", "key", "offset")

    def __init__(self, key: str, dtype: str, count: int, offset: int = 0) -> None:
        self.key, self.dtype, self.count, self.offset = key, dtype, count, offset


class View:
    """A tensor on a storage: offset and strides in elements of `dtype`. Storage None: no data (a meta tensor)."""

    __slots__ = ("dtype", "offset", "shape", "storage", "strides")

    def __init__(
        self, storage: Storage | None, dtype: str, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        self.storage, self.dtype, self.offset, self.shape, self.strides = storage, dtype, offset, shape, strides


class Blob:
    """Many bytes inside the pickle, left where they lie: `start` counts from the beginning of the file."""

    __slots__ = ("size", "start")

    def __init__(self, start: int, size: int) -> None:
        self.start, self.size = start, size


class Array:
    """A numpy array inside the pickle; `data` is None until its state has come."""

    __slots__ = ("data", "dtype", "fortran", "shape", "swapped")

    def __init__(self) -> None:
        self.dtype, self.fortran, self.swapped = "", False, False
        self.shape: tuple[int, ...] = ()
        self.data: Blob | bytes | list[Any] | None = None


class NumpyType:
    """numpy's dtype: `descr` such as `f8`, byte order `<`, `>`, `|` or `=`."""

    __slots__ = ("descr", "order")

    def __init__(self, descr: str) -> None:
        self.descr, self.order = descr, "="


_PLAIN_KEYS = (str, int, float, bytes, bool, type(None))


def as_key(key: Any, depth: int = 0) -> Any:
    """A key of a dict whose hash is cheap and cannot be made to collide or to nest without end.

    Raises:
        ValueError: it cannot be one.
    """
    if isinstance(key, int) and not -(1 << 63) <= key < 1 << 64:
        return f"{key:x}"
    if isinstance(key, _PLAIN_KEYS) or type(key) in (Built, View, Blob, Storage):
        return key
    if isinstance(key, tuple) and depth < 3 and len(key) <= 64:
        return tuple(as_key(k, depth + 1) for k in key)
    if type(key) is Global:
        return key.full
    raise ValueError("something that cannot be a key")


# ----------
# Which names in a pickle are known to make data only. A list of what is allowed: lists of what is forbidden leak.

Verdict = Literal["safe-to-parse", "unknown-globals", "dangerous"]

_DATA = re.compile(
    r"""
    torch\.(Size|device|dtype|Tensor|Generator|layout|memory_format|per_tensor_affine|per_channel_affine)
    | torch\.(float|double|half|bfloat|int|uint|long|short|bool|complex|qint|quint|float8_|float4_|strided)\w*
    | torch\.(cuda\.)?[A-Z]\w*Storage | torch\.storage\.(Typed|Untyped)Storage
    | torch\._utils\._rebuild_\w+ | torch\._tensor\._rebuild_from_type_v2
    | torch\.nn\.parameter\.(Parameter|Buffer) | torch\.serialization\._get_layout
    | torch\.distributed\.(_?tensor|checkpoint|_shard|device_mesh|_mesh_layout|_composable|fsdp)(\.\w+)*\._?[A-Z]\w*
    | torch\.nn\.modules(\.\w+)*\.[A-Z]\w* | torch\.optim(\.\w+)*\.[A-Z]\w* | torch\.torch_version\.TorchVersion
    | collections\.(OrderedDict|defaultdict|Counter|deque)
    | (builtins|__builtin__)\.(dict|list|set|frozenset|tuple|complex|bytearray|bytes|int|float|str|bool|slice|range)
    | _?codecs\.encode
    | numpy\.(dtype|ndarray|bool_?|(u?int|float|complex)\d+) | numpy\._?core\.multiarray\.(_reconstruct|scalar)
    | numpy\._?core\.numeric\._frombuffer | numpy\.dtypes\.\w+DType
    | numpy\.random\._pickle\.__\w+_ctor | numpy\.random\.(_mt19937\.MT19937|_pcg64\.PCG64|bit_generator\.SeedSequence)
    | _?io\.(BytesIO|StringIO) | random\.Random
    | argparse\.Namespace | pathlib(\._local)?\.\w*Path | datetime\.(datetime|date|time|timedelta|timezone)
    | types\.SimpleNamespace | enum\.\w*Enum | decimal\.Decimal | uuid\.UUID
    | (pytorch_)?lightning(_fabric)?(\.\w+)*\.[A-Z]\w*
    | omegaconf(\.\w+)*\.[A-Z]\w* | deepspeed(\.\w+)*\.[A-Z]\w*
    | deepspeed\.utils\.tensor_fragment\.fragment_address
    | megatron\.(core|training|model)(\.\w+)*\.[A-Z]\w* | megatron\.(core\.)?enums\.\w+
    | transformers(\.\w+)*\.[A-Z]\w* | accelerate(\.\w+)*\.[A-Z]\w* | peft(\.\w+)*\.[A-Z]\w*
    | torchao(\.\w+)*\.[A-Z]\w* | bitsandbytes(\.\w+)*\.[A-Z]\w*
    """,
    re.VERBOSE,
)

# Roots that run commands or code, or reach the network, whatever is taken from them. Nothing more is claimed.
_ROOTS = {
    *("os", "posix", "nt", "subprocess", "_posixsubprocess", "commands", "sys", "shutil", "pty", "socket", "_socket"),
    *("ctypes", "_ctypes", "importlib", "_frozen_importlib", "runpy", "code", "codeop", "imp", "pkgutil", "zipimport"),
    *("pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "webbrowser", "pydoc"),
    *("timeit", "cProfile", "profile", "trace", "pdb", "bdb", "doctest", "idlelib", "lib2to3", "ensurepip", "venv"),
    *("pip", "setuptools", "distutils", "_osx_support", "_aix_support", "asyncio", "multiprocessing", "threading"),
    *("_thread", "signal", "http", "urllib", "urllib2", "httplib", "requests", "aiohttp", "ftplib", "smtplib"),
    *("telnetlib", "xmlrpc", "ssl", "operator", "_operator", "inspect", "gc", "platform"),
    *("tempfile", "linecache", "fileinput", "builtins.__dict__", "site", "sitecustomize", "atexit"),
    *("test", "unittest", "antigravity", "turtledemo", "cgitb", "bsddb", "_pyrepl", "_testcapi", "_xxsubinterpreters"),
}
_BUILTINS = {
    *("eval", "exec", "execfile", "compile", "open", "file", "input", "raw_input", "__import__", "getattr", "setattr"),
    *("delattr", "hasattr", "globals", "locals", "vars", "breakpoint", "apply", "map", "filter", "reload"),
    *(
        "memoryview",
        "type",
        "object",
        "super",
        "classmethod",
        "staticmethod",
        "property",
        "print",
        "help",
        "exit",
        "quit",
    ),
}
_CALLS = re.compile(
    r"(types\.(CodeType|FunctionType|LambdaType|MethodType)|numpy\.(load|fromfile|save|testing\b.*|f2py\b.*|distutils\b.*)"
    r"|torch\.(load|hub\b.*|jit\b.*|ops\b.*|classes\b.*|compile|package\b.*|utils\.(cpp_extension|collect_env|bottleneck)\b.*"
    r"|serialization\.load|storage\._load_from_bytes\.\w+|_inductor\b.*|_dynamo\b.*|testing\b.*|distributed\.rpc\b.*)"
    r"|_?io\.(open|open_code|FileIO)|_?functools\.reduce|logging\.config\.\w+|uuid\._\w+|.*\.__(reduce|reduce_ex|globals|builtins|import|subclasses|getattribute|call)__.*)"
)


def known(name: str) -> bool:
    """Whether a global is known to make data only; a dotted path through a package to a module of danger is not."""
    return _DATA.fullmatch(name) is not None and not _ROOTS.intersection(name.split(".")[1:])


def dangerous(name: str) -> bool:
    """Whether a global plainly runs commands or code."""
    if known(name):
        return False
    words = name.split(".")
    if words[0] in ("builtins", "__builtin__"):
        return bool(_BUILTINS.intersection(words[1:])) or len(words) > 2
    return words[0] in _ROOTS or bool(_CALLS.fullmatch(name)) or bool({"os", "subprocess", "sys"} & set(words[1:]))


def verdict(names: Iterable[str]) -> Verdict:
    """What to think of a pickle that names these globals. Never "safe": only that reading it as data is."""
    found = [n for n in names if not known(n)]
    if not found:
        return "safe-to-parse"
    return "dangerous" if any(map(dangerous, found)) else "unknown-globals"
