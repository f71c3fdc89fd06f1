"""Files of token ids: Megatron's bin and idx, flat bins as nanoGPT and llm.c write them, numpy arrays."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core import deadline
from ...core.errors import ParseError
from ..run.files import RunFile, open_regular
from .dataset_files import Fault

if TYPE_CHECKING:
    import numpy as np

CHUNK = 1 << 20  # elements read at a time
SEQUENCES = 50_000_000  # of one index

_MEGATRON = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}
_LLMC = {20240520: "<u2", 20240801: "<u4"}


@dataclass(slots=True)
class TokenFile:
    """A flat run of token ids on disk.

    Attributes:
        dtype: numpy's spelling of one id.
        start: bytes before the first.
        count: ids that lie there.
        lengths: of the sequences, where an index tells them.
        member: array inside an npz.
    """

    file: RunFile
    dtype: str
    start: int
    count: int
    lengths: Any = None
    member: str = ""
    shape: tuple[int, ...] = ()
    faults: list[Fault] = field(default_factory=list)
    guessed: bool = False  # the width is not said anywhere


def megatron(index: RunFile, data: RunFile | None) -> TokenFile:
    """The index of a Megatron dataset, checked against its .bin.

    Raises:
        ParseError: not an index that can be read.
    """
    import numpy as np

    with open_regular(index.path) as raw:
        head = raw.read(34)
        if len(head) < 34 or not head.startswith(b"MMIDIDX\0\0"):
            raise ParseError("cut off in its header")
        version, code, sequences, documents = struct.unpack("<QBQQ", head[9:34])
        dtype = _MEGATRON.get(code)
        need = 34 + sequences * 12 + documents * 8
        if version != 1 or dtype is None or sequences > SEQUENCES:
            raise ParseError(f"an index of version {version}, type {code}, {sequences} sequences is not known")
        if need > index.size:
            raise ParseError(f"{index.size} bytes, but {sequences} sequences need {need}: cut off")
        lengths = np.frombuffer(raw.read(sequences * 4), "<i4")
        pointers = np.frombuffer(raw.read(sequences * 8), "<i8")
        borders = np.frombuffer(raw.read(documents * 8), "<i8")
    width = np.dtype(dtype).itemsize
    out = TokenFile(data or index, dtype, 0, (data.size // width) if data else 0, lengths)
    for kind, text in _disagreements(lengths, pointers, borders, width, data):
        out.faults.append(Fault(index, kind, text, member="index"))
    return out


def _disagreements(
    lengths: np.ndarray, pointers: np.ndarray, borders: np.ndarray, width: int, data: RunFile | None
) -> Iterator[tuple[str, str]]:
    if data is None:
        yield "corrupt", "the .bin beside the index is missing"
    if not len(lengths):
        yield "empty_fields", "an index of no sequences"
        return
    end = int(pointers[-1]) + int(lengths[-1]) * width
    if data is not None and end != data.size:
        more = "cut off" if end > data.size else "longer than the index says"
        yield "corrupt", f"the .bin has {data.size} bytes, the index ends at {end}: {more}"
    if (lengths < 0).any() or ((pointers[1:] - pointers[:-1]) != lengths[:-1].astype("i8") * width).any():
        yield "corrupt", "pointers and lengths of the index disagree"
    if len(borders) and int(borders[-1]) != len(lengths):
        yield "corrupt", f"the document index ends at {int(borders[-1])}, there are {len(lengths)} sequences"


def flat(file: RunFile, vocabulary: int | None) -> TokenFile:
    """A headless file of ids, or one with the header of llm.c. The width is told by the header, else guessed."""
    with open_regular(file.path) as raw:
        head = raw.read(1024)
    magic = int.from_bytes(head[:4], "little")
    if len(head) == 1024 and magic in _LLMC:
        dtype = _LLMC[magic]
        count = int.from_bytes(head[8:12], "little")
        out = TokenFile(file, dtype, 1024, (file.size - 1024) // int(dtype[-1]))
        if count != out.count:
            out.faults.append(Fault(file, "corrupt", f"the header says {count} ids, there are {out.count}", "header"))
        return out
    wide = bool(vocabulary and vocabulary > 65536) and file.size % 4 == 0 and _looks_wide(head)
    dtype = "<u4" if wide else "<u2"
    out = TokenFile(file, dtype, 0, file.size // int(dtype[-1]), guessed=True)
    if file.size % int(dtype[-1]):
        out.faults.append(Fault(file, "corrupt", f"{file.size} bytes are no whole number of ids", "end"))
    return out


def _looks_wide(head: bytes) -> bool:
    import numpy as np

    halves = np.frombuffer(head[: len(head) // 4 * 4], "<u2")
    return len(halves) >= 8 and bool((halves[1::2] < 16).mean() > 0.9) and bool((halves[0::2] >= 16).mean() > 0.5)


def arrays(file: RunFile) -> Iterator[TokenFile]:
    """Arrays of an npy or npz file that hold whole numbers; others are passed over.

    Raises:
        ParseError: the file cannot be read.
    """
    try:
        if not zipfile.is_zipfile(file.path):
            with open_regular(file.path) as raw:
                yield from _array(file, raw, "", file.size)
            return
        with open_regular(file.path) as raw, zipfile.ZipFile(raw) as opened:
            for info in opened.infolist()[:10_000]:
                with opened.open(info) as member:
                    yield from _array(file, member, info.filename, info.file_size)
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as e:
        raise ParseError(f"{type(e).__name__}: {e}"[:200]) from None


def _array(file: RunFile, stream: Any, member: str, size: int) -> Iterator[TokenFile]:
    import numpy as np
    from numpy.lib import format as npy

    try:
        version = npy.read_magic(stream)
        shape, fortran, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(stream)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, tokenize.TokenError) as e:
        raise ParseError(f"no array: {e}"[:200]) from None
    if dtype.kind not in "iu" or fortran:
        return
    count = int(np.prod(shape, dtype="u8"))
    start = stream.tell()
    out = TokenFile(file, dtype.str, start, min(count, max(0, size - start) // dtype.itemsize), None, member, shape)
    if start + count * dtype.itemsize != size:
        said = f"{size} bytes, but shape {shape} of {dtype} needs {start + count * dtype.itemsize}"
        out.faults.append(Fault(file, "corrupt", said, member or "array"))
    yield out


def chunks(tokens: TokenFile, every: int = 1) -> Iterator[tuple[int, np.ndarray]]:
    """Ids in pieces of `CHUNK`, each with the number of its first; with `every` > 1 only each so-many-th piece.

    Raises:
        ParseError: the bytes cannot be read.
    """
    import numpy as np

    width = np.dtype(tokens.dtype).itemsize
    try:
        with open_regular(tokens.file.path) as raw:
            stream: Any = zipfile.ZipFile(raw).open(tokens.member) if tokens.member else raw  # noqa: SIM115 - a view
            for first in range(0, tokens.count, CHUNK * every):
                deadline.check()
                stream.seek(tokens.start + first * width)
                data = stream.read(min(CHUNK, tokens.count - first) * width)
                if data:
                    yield first, np.frombuffer(data[: len(data) // width * width], tokens.dtype)
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError) as e:
        raise ParseError(f"{type(e).__name__}: {e}"[:200]) from None


# ----------
# What is wrong with a file of token ids: range, width, end marks, empty sequences, long repeats.

READ = 1 << 29  # ids read of one file; beyond that, pieces spread evenly

RUN = 512  # equal ids in a row that are told


@dataclass(slots=True)
class TokenLook:
    """What a pass over the ids gave. `found` holds (key, value, place, words)."""

    tokens: TokenFile
    read: int = 0
    least: int | None = None
    most: int | None = None
    beyond: int = 0
    first_beyond: int = -1
    below: int = 0
    ends: int = 0
    longest_run: int = 0
    run_at: int = 0
    found: list[tuple[str, Any, str, str]] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Every id was read."""
        return self.read == self.tokens.count


def look_at_tokens(tokens: TokenFile, vocabulary: int | None, eos: int | None) -> TokenLook:
    """Read the ids (of a very large file evenly spread pieces) and say what is odd.

    Raises:
        ParseError: the bytes cannot be read.
    """
    out = TokenLook(tokens)
    every = max(1, -(-tokens.count // READ))
    wide = pieces = 0
    for first, ids in chunks(tokens, every):
        _take(out, first, ids, vocabulary, eos)
        pieces += 1
        wide += tokens.dtype == "<u2" and _halves(ids)
    if tokens.count:
        _range(out, vocabulary)
    if tokens.guessed and pieces and wide == pieces and tokens.dtype == "<u2":
        said = "every second 16-bit value is close to zero: the ids were written with 32 bits"
        out.found.append(("token_width", 32, "ids", said))
    _marks(out, eos)
    _sequences(out)
    if not tokens.count and tokens.lengths is None:
        out.found.append(("empty_fields", "tokens", "file", "there is no token id"))
    return out


def _take(out: TokenLook, first: int, ids: np.ndarray, vocabulary: int | None, eos: int | None) -> None:
    import numpy as np

    least, most = int(ids.min()), int(ids.max())
    out.read += len(ids)
    out.least = least if out.least is None else min(out.least, least)
    out.most = most if out.most is None else max(out.most, most)
    if vocabulary and most >= vocabulary:
        over = ids >= vocabulary
        out.beyond += int(over.sum())
        if out.first_beyond < 0:
            out.first_beyond = first + int(over.argmax())
    if least < 0:
        under = (ids < 0) & (ids != -100)
        out.below += int(under.sum())
        if out.first_beyond < 0 and under.any():
            out.first_beyond = first + int(under.argmax())
    if eos is not None:
        out.ends += int((ids == eos).sum())
    borders = np.flatnonzero(ids[1:] != ids[:-1])
    edges = np.concatenate(([-1], borders, [len(ids) - 1]))
    runs = np.diff(edges)
    longest = int(runs.argmax())
    if int(runs[longest]) > out.longest_run:
        out.longest_run, out.run_at = int(runs[longest]), first + int(edges[longest]) + 1


def _halves(ids: np.ndarray) -> bool:
    even, odd = ids[0::2], ids[1::2]
    return len(odd) > 32 and bool((odd < 16).mean() > 0.95) and bool((even >= 16).mean() > 0.5)


def _range(out: TokenLook, vocabulary: int | None) -> None:
    if out.beyond:
        said = f"{out.beyond} of {out.read} ids are {vocabulary} or more; the largest is {out.most}"
        out.found.append(("token_out_of_range", out.most, f"id {out.first_beyond}", said))
    if out.below:
        said = f"{out.below} of {out.read} ids are negative; the smallest is {out.least}"
        out.found.append(("token_out_of_range", out.least, f"id {out.first_beyond}", said))


def _marks(out: TokenLook, eos: int | None) -> None:
    """Long runs of one id, and a file in which no document ever ends."""
    if out.longest_run >= RUN:
        said = f"{out.longest_run} equal ids in a row"
        out.found.append(("token_run", out.longest_run, f"id {out.run_at}", said))
    if eos is not None and not out.ends and out.whole and out.read >= 100_000:
        out.found.append(("bos_missing", "eos", "ids", f"the end token {eos} occurs nowhere among {out.read} ids"))


def _sequences(out: TokenLook) -> None:
    import numpy as np

    lengths = out.tokens.lengths
    if lengths is None or not len(lengths):
        return
    empty = np.flatnonzero(lengths <= 0)
    if len(empty):
        said = f"{len(empty)} of {len(lengths)} sequences are empty"
        out.found.append(("empty_fields", "sequence", f"sequence {int(empty[0])}", said))


def pieces(tokens: TokenFile, size: int, count: int) -> list[tuple[int, list[int]]]:
    """`count` stretches of `size` ids, evenly spread, each with the number of its first id."""
    out: list[tuple[int, list[int]]] = []
    every = max(1, tokens.count // max(1, count * CHUNK))
    for first, ids in chunks(tokens, every):
        if len(out) >= count:
            break
        out.append((first, [int(i) for i in ids[:size]]))
    return out
