"""Elements of tensors that are not one run of bytes: slices, transposed and expanded views, arrays inside a pickle."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ... import deadline
from .bits import Array
from .dtypes import KINDS
from .parts import Tensor
from .placed import extent
from .source import Window

WHOLE = 64 << 20  # bytes of a view that are read at once to have its elements in their order


def dense(tensor: Tensor) -> bool:
    """Whether the elements are, in some order, all elements of one run of bytes."""
    if tensor.inline is not None:
        return False
    if tensor.strides is None:
        return True
    step = 1
    for stride, n in sorted((s, n) for s, n in zip(tensor.strides, tensor.shape, strict=True) if n != 1):
        if stride != step:
            return False
        step *= n
    return True


def runs(window: Window, tensor: Tensor, size: int) -> Iterator[Array]:
    """Elements as uint8 in runs of about `size` bytes.

    Elements that stand in a view more than once (expanded dimensions) come once. A view of more than `WHOLE` bytes
    whose dimensions are permuted comes in the order of its storage.
    """
    width = KINDS[tensor.dtype].bits // 8
    size = max(width, size // width * width)
    if tensor.inline is not None:
        elements = np.frombuffer(tensor.inline, f"V{width}")
        if tensor.strides is not None and len(elements):
            elements = as_strided(elements, tensor.shape, [s * width for s in tensor.strides], writeable=False)
        yield np.ascontiguousarray(elements).reshape(-1).view(np.uint8)
        return
    start, length = tensor.start - window.start, tensor.size
    if tensor.strides is None or (length > WHOLE and dense(tensor)) or tensor.count * width > length:
        yield from _plain(window, start, length, size)
        return
    dimensions = list(zip(tensor.shape, tensor.strides, strict=True))
    if length > WHOLE:
        dimensions.sort(key=lambda d: -d[1])
    yield from _strided(window, start, dimensions, width, size if length > WHOLE else WHOLE)


def _plain(window: Window, start: int, length: int, size: int) -> Iterator[Array]:
    for at in range(0, length, size):
        deadline.check()
        yield np.frombuffer(window.read(start + at, min(size, length - at)), np.uint8)


def _strided(window: Window, start: int, dimensions: list[tuple[int, int]], width: int, size: int) -> Iterator[Array]:
    """Rows of the first dimension, as many at once as lie within `size` bytes; rows longer than that one by one."""
    deadline.check()
    if not dimensions:
        yield np.frombuffer(window.read(start, width), np.uint8)
        return
    (count, stride), rest = dimensions[0], dimensions[1:]
    row = extent(tuple(n for n, _ in rest), tuple(s for _, s in rest)) * width
    if row > size and rest:
        for i in range(count):
            yield from _strided(window, start + i * stride * width, rest, width, size)
        return
    step = max(1, (size - row) // max(1, stride * width))
    for first in range(0, count, step):
        deadline.check()
        n = min(step, count - first)
        raw = window.read(start + first * stride * width, (n - 1) * stride * width + row)
        shape = (n, *(d[0] for d in rest))
        elements = np.frombuffer(raw, f"V{width}")
        view = as_strided(elements, shape, (stride * width, *(d[1] * width for d in rest)), writeable=False)
        yield np.ascontiguousarray(view).reshape(prod(shape)).view(np.uint8)
