"""What is wrong with a file of token ids: range, width, end marks, empty sequences, long repeats."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .tokens import CHUNK, TokenFile, chunks

if TYPE_CHECKING:
    import numpy as np

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
