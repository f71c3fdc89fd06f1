"""Pickles that may hold nothing but numbers, text, lists, tuples and dictionaries.

Two locks: every operation is checked against the few that build plain values before anything is loaded, and what
loads it refuses every name. The check also refuses positions in the memo beyond `MEMO`, as one such operation of
five bytes would make the interpreter allocate gigabytes.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from typing import Any, NoReturn

from ...core.errors import ParseError

MEMO = 1 << 20  # positions of the memo, as the pattern has it
_RUN = re.compile(
    rb"(?:[hqK].|[}\](.Ntueas0\x85\x86\x87\x88\x89\x94]|[rj]..[\0-\x0f]\0|M..|J....|\x95.{8}"
    rb"|\x8a(?:\x08.{8}|\x07.{7}|\0|\x01.|\x02..|\x03...|\x04....|\x05.{5}|\x06.{6}|\x09.{9})|G.{8})*+",
    re.DOTALL,
)
_TEXT, _SHORT_TEXT = 0x58, 0x8C  # BINUNICODE with four bytes of length, SHORT_BINUNICODE with one
_NAMES = {ord(op.code): op.name for op in pickletools.opcodes}


class _Nothing(pickle.Unpickler):
    """An unpickler that knows no class and no function."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise ParseError(f"it names {module}.{name}, which a dump never does: not loaded")

    def persistent_load(self, pid: Any, /) -> NoReturn:
        raise ParseError("it refers to an object outside of itself: not loaded")


def plain(data: bytes) -> Any:
    """The value a pickle holds.

    Raises:
        ParseError: an operation that plain values do not need, or damage. Nothing was executed.
    """
    check(data)
    try:
        # buffered, as it reads operation by operation: six times as fast
        return _Nothing(io.BufferedReader(io.BytesIO(data), 1 << 17)).load()  # pyright: ignore[reportArgumentType]
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, IndexError, KeyError, AttributeError,
            OverflowError, MemoryError, RecursionError) as e:  # fmt: skip
        raise ParseError(f"damaged: {type(e).__name__}: {str(e)[:120]}") from None


def check(data: bytes) -> None:
    """Raise ParseError at the first operation that builds anything but plain values."""
    at = 2 if data[:1] == b"\x80" else 0
    end, match = len(data), _RUN.match
    while True:
        found = match(data, at)
        at = found.end() if found else at
        if at >= end:
            return
        code = data[at]
        if code == _TEXT and at + 5 <= end:
            at += 5 + int.from_bytes(data[at + 1 : at + 5], "little")
        elif code == _SHORT_TEXT and at + 2 <= end:
            at += 2 + data[at + 1]
        else:
            raise ParseError(_why(data, at))


def _why(data: bytes, at: int) -> str:
    """What stands at the offset where the check stopped."""
    name = _NAMES.get(data[at], f"byte {data[at]:#04x}")
    if name in ("LONG_BINPUT", "LONG_BINGET") and at + 5 <= len(data):
        return f"{name} at byte {at} asks for memory it has no use for: not loaded"
    if name in ("GLOBAL", "INST"):
        named = b".".join(data[at + 1 : at + 160].split(b"\n")[:2]).decode(errors="replace")
        return f"it names {named}, which a dump never does: not loaded"
    if name in ("STACK_GLOBAL", "REDUCE", "BUILD", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID",
                "BINPERSID"):  # fmt: skip
        return f"{name} at byte {at} would make an object: not loaded"
    return f"damaged at byte {at} ({name})"
