"""What the functions that PyTorch and numpy leave in a pickle would make. They are never called: their arguments are
enough to say where a tensor lies."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ..elements import STORAGES, numpy_dtype, torch_dtype
from ..parts import Damaged
from .symbols import Array, Blob, Built, Global, NumpyType, Storage, View, known

_LARGEST = 1 << 62
_WIDE_DIMENSIONS = 64


def called(what: Any, args: tuple[Any, ...]) -> Any:
    """The result of calling `what`, symbolically."""
    if type(what) is not Global:
        return Built("call of an object", (what, *args))
    make = _MAKERS.get(what.full)
    if make is None:
        return Built(what.full, args)
    try:
        return make(*args)
    except (TypeError, ValueError, LookupError, struct.error) as e:
        raise Damaged("pickle_invalid", f"{what.full} is given what it does not take ({type(e).__name__})") from None


def set_state(target: Any, state: Any) -> Any:
    """`target` after its state was set."""
    if type(target) is Array:
        _fill(target, state)
    elif type(target) is NumpyType:
        if isinstance(state, tuple) and len(state) > 1 and isinstance(state[1], str):
            target.order = state[1]
    elif type(target) is Built:
        target.state = state
    return target  # attributes of a dict (state dicts carry versions there) are not kept


def persisted(identity: Any, storages: dict[str, Storage]) -> Any:
    """The storage that a persistent id of PyTorch stands for."""
    if not isinstance(identity, tuple) or len(identity) < 5 or identity[0] != "storage":
        return Built("persistent id", (identity,))
    kind, key, _, count = identity[1:5]
    dtype = STORAGES.get(kind.name) if type(kind) is Global else None
    if dtype is None or not isinstance(key, str) or len(key) > 200 or not _whole(count):
        raise Damaged("pickle_invalid", "a storage whose type, key or size makes no sense")
    known = storages.get(key)
    if known is None:
        known = storages[key] = Storage(key, dtype, count)
    view = identity[5] if len(identity) > 5 else None
    if view is None:
        return known if known.dtype == dtype else Storage(key, dtype, count)
    if not isinstance(view, tuple) or len(view) != 3 or not _whole(view[1]) or not _whole(view[2]):
        raise Damaged("pickle_invalid", "a view of a storage that makes no sense")
    return Storage(key, dtype, view[2], view[1])


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _sizes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple | list) or len(value) > _WIDE_DIMENSIONS or not all(map(_whole, value)):
        raise ValueError("not sizes")
    return tuple(value)


def _view(storage: Any, offset: Any, shape: Any, strides: Any, dtype: str = "") -> View | Built:
    if type(storage) is Built:
        return Built("torch.Tensor", (shape,))  # its storage is itself a pickled object
    if type(storage) is not Storage or not _whole(offset):
        raise TypeError("not a storage")
    sizes, steps = _sizes(shape), _sizes(strides)
    if len(sizes) != len(steps):
        raise ValueError("as many strides as sizes are needed")
    return View(storage, dtype or storage.dtype, offset, sizes, steps)


def _dtype(value: Any) -> str:
    name = torch_dtype(value.name) if type(value) is Global and value.module == "torch" else None
    if name is None:
        raise ValueError("not a type of torch")
    return name


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> View | Built:
    return _view(storage, offset, shape, strides)


def _typed_tensor(
    storage: Any, offset: Any, shape: Any, strides: Any, _grad: Any, _hooks: Any, dtype: Any, *_: Any
) -> View | Built:
    return _view(storage, offset, shape, strides, _dtype(dtype))


def _meta(dtype: Any, shape: Any, strides: Any, *_: Any) -> View:
    return View(None, _dtype(dtype), 0, _sizes(shape), _sizes(strides))


def _first(value: Any, *_: Any) -> Any:
    return value


def _of_type(_function: Any, kind: Any, args: Any, state: Any = None) -> Any:
    """A tensor subclass: the plain tensor below it, or a note with what it is made of."""
    made = called(_function, args) if isinstance(args, tuple) else None
    if type(made) is View and made.storage is not None:
        return made
    note = Built(kind.full if type(kind) is Global else "tensor subclass", (made,))
    note.state = state[0] if isinstance(state, tuple) and len(state) == 2 and state[0] else state
    return note


def _mapping(*args: Any) -> Any:
    if not args:
        return {}
    pairs = args[0]
    if not isinstance(pairs, list | tuple) or any(not isinstance(p, list | tuple) or len(p) != 2 for p in pairs):
        return {} if type(pairs) is Global or pairs is None else Built("dict", args)
    if any(not isinstance(p[0], str | int) for p in pairs):
        return Built("dict", args)
    return dict(pairs)


def _encoded(text: Any, encoding: Any = "utf-8", *_: Any) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", "utf-8", "ascii"):
        raise TypeError("not text")
    return text.encode(encoding)


def _bytes(*args: Any) -> Any:
    if not args:
        return b""
    if isinstance(args[0], str):
        return _encoded(*args)
    return args[0] if isinstance(args[0], bytes | Blob) else Built("bytes", args)


def _listed(*args: Any) -> Any:
    return args[0] if args and isinstance(args[0], list | tuple) else []


def _numpy_type(descr: Any, *_: Any) -> NumpyType:
    if not isinstance(descr, str):
        raise TypeError("not a type of numpy")
    return NumpyType(descr)


def _fill(array: Array, state: Any) -> None:
    if not isinstance(state, tuple) or len(state) != 5 or type(state[2]) is not NumpyType:
        raise Damaged("pickle_invalid", "a numpy array whose state makes no sense")
    _, shape, kind, fortran, data = state
    _set_array(array, data, kind, shape, bool(fortran))


def _set_array(array: Array, data: Any, kind: NumpyType, shape: Any, fortran: bool) -> None:
    found = numpy_dtype(("" if kind.order == "=" else kind.order) + kind.descr.lstrip("<>|="))
    array.shape, array.fortran = _sizes(shape), fortran
    array.dtype, array.swapped = found or (f"numpy {kind.descr}"[:60], False)
    array.data = data if isinstance(data, bytes | Blob | list) else None


def _from_buffer(data: Any, kind: Any, shape: Any, order: Any = "C", *_: Any) -> Array:
    if type(kind) is not NumpyType:
        raise TypeError("not a type of numpy")
    array = Array()
    _set_array(array, data, kind, shape, order == "F")
    return array


def _scalar(kind: Any, data: Any = None, *_: Any) -> Any:
    """A numpy scalar as a Python number."""
    name = numpy_dtype(kind.order.replace("=", "<") + kind.descr.lstrip("<>|=")) if type(kind) is NumpyType else None
    if name is None or not isinstance(data, bytes):
        return Built("numpy.scalar", (kind.descr if type(kind) is NumpyType else None, data))
    code = _CODES.get(name[0])
    return struct.unpack((">" if name[1] else "<") + code, data)[0] if code else Built("numpy.scalar", (name[0], data))


_CODES = {
    "float16": "e", "float32": "f", "float64": "d", "int8": "b", "int16": "h", "int32": "i", "int64": "q",
    "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "bool": "?",
}  # fmt: skip


def _attribute(owner: Any, name: Any, *rest: Any) -> Any:
    """A member of a class that is known to be data; a note of the lookup otherwise."""
    if (
        type(owner) is Global
        and known(owner.full)
        and isinstance(name, str)
        and name.isidentifier()
        and "__" not in name
    ):
        return Global(owner.module, f"{owner.name}.{name}")
    return Built("builtins.getattr", (owner, name, *rest))


def _path(*parts: Any) -> Any:
    return "/".join(parts).replace("//", "/") if all(isinstance(p, str) for p in parts) else Built("path", parts)


_MAKERS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _typed_tensor,
    "torch._utils._rebuild_qtensor": _tensor,
    "torch._utils._rebuild_parameter": _first,
    "torch._utils._rebuild_parameter_with_state": _first,
    "torch._utils._rebuild_meta_tensor_no_storage": _meta,
    "torch._utils._rebuild_device_tensor_from_numpy": _first,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _first,
    "torch._tensor._rebuild_from_type_v2": _of_type,
    "torch.Size": lambda sizes=(): _sizes(sizes),
    "torch.device": lambda kind, index=None: kind if index is None else f"{kind}:{index}",
    "torch.serialization._get_layout": _first,
    "collections.OrderedDict": _mapping,
    "collections.defaultdict": _mapping,
    "collections.Counter": lambda counts=None: counts if isinstance(counts, dict) else {},
    "collections.deque": _listed,
    "builtins.getattr": _attribute,
    "builtins.dict": _mapping,
    "builtins.list": _listed,
    "builtins.set": _listed,
    "builtins.frozenset": _listed,
    "builtins.tuple": _listed,
    "builtins.complex": complex,
    "builtins.bytearray": _bytes,
    "builtins.bytes": _bytes,
    "_codecs.encode": _encoded,
    "codecs.encode": _encoded,
    "numpy.dtype": _numpy_type,
    **{f"pathlib.{name}": _path for name in ("Path", "PosixPath", "PurePath", "PurePosixPath", "WindowsPath")},
    **{f"pathlib._local.{name}": _path for name in ("Path", "PosixPath", "PurePosixPath", "WindowsPath")},
}
_MAKERS |= {f"__builtin__.{n[9:]}": make for n, make in _MAKERS.items() if n.startswith("builtins.")}
for _core in ("numpy.core", "numpy._core"):
    _MAKERS[f"{_core}.multiarray._reconstruct"] = lambda *_: Array()
    _MAKERS[f"{_core}.multiarray.scalar"] = _scalar
    _MAKERS[f"{_core}.numeric._frombuffer"] = _from_buffer
