"""What must agree between ranks that run one collective, and in what two rows differ."""

from __future__ import annotations

Row = tuple  # (sequence number, operation, input sizes, output sizes, input dtypes, output dtypes)

# Parts of a row (by position) that may rightly differ between ranks: only the root of a gather has outputs, and
# every rank sends and receives what it likes in an all-to-all.
_FREE: dict[str, tuple[int, ...]] = {
    "all_to_all": (2, 3), "all_to_all_single": (2, 3), "all_to_all_v_single": (2, 3), "alltoall": (2, 3),
    "alltoall_base": (2, 3), "all_gather_v": (2, 3), "reduce_scatter_v": (2, 3), "scatter": (2, 4), "gather": (3, 5),
    "reduce": (3, 5), "_reduce_oop": (3, 5), "broadcast": (4,), "_broadcast_oop": (2, 4),
}  # fmt: skip
TOGETHER = frozenset({  # none of their members ends before all have entered
    "all_reduce", "all_reduce_coalesced", "all_reduce_barrier", "barrier", "all_gather", "_all_gather_base",
    "all_gather_into_tensor_coalesced", "all_gather_coalesced", "reduce_scatter", "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced", "all_to_all", "all_to_all_single", "alltoall", "alltoall_base",
})  # fmt: skip
KINDS = ("op", "size", "dtype")


def operation(name: str) -> str:
    """`nccl:all_reduce` -> `all_reduce`."""
    return name.rpartition(":")[2].partition(" ")[0]


def strict(rows: list[Row]) -> list[Row]:
    """Rows without the parts that may differ, so that ranks in step have equal lists."""
    free = {name: _FREE[op] for name in {r[1] for r in rows} if (op := operation(name)) in _FREE}
    if not free:
        return rows
    return [_without(r, free[r[1]]) if r[1] in free else r for r in rows]


def _without(row: Row, free: tuple[int, ...]) -> Row:
    return tuple(None if i in free else part for i, part in enumerate(row))


def kinds(one: Row, other: Row) -> list[str]:
    """In what two rows of `strict` differ: op, size, dtype; `order` where they are not the same turn at all."""
    if one[0] != other[0]:
        return ["order"]
    if one[1] != other[1]:
        return ["op"]
    found = []
    if one[2:4] != other[2:4]:
        found.append("size")
    if one[4:6] != other[4:6]:
        found.append("dtype")
    return found


def shift(usual: list[Row], odd: list[Row], at: int) -> str | None:
    """How the odd rank's order differs from `at` on: it skipped one, has one more, or swapped two; else None."""
    mine, theirs = [r[1:] for r in odd[at : at + 4]], [r[1:] for r in usual[at : at + 4]]
    if len(mine) > 1 and len(theirs) > 1 and mine[0] == theirs[1] and mine[1] == theirs[0]:
        return "swapped"
    if len(theirs) > 1 and mine and _same(mine, theirs[1:]):
        return "skipped"
    if len(mine) > 1 and theirs and _same(mine[1:], theirs):
        return "extra"
    return None


def _same(one: list, other: list) -> bool:
    length = min(len(one), len(other))
    return one[:length] == other[:length]
