"""The tables that probing's command prints: a box of columns as wide as a terminal, long values over several lines."""

from __future__ import annotations


def table(text: str, limit: int = 2000) -> list[dict[str, str]]:
    """Rows of the first box table in a text, at most `limit`; values are text, pieces of wrapped ones joined.

    A row that continues is told by the frame: a new row starts where the first cell is filled again. A first column
    that wraps itself cannot be told from a new row, so queries put a short one first.
    """
    names: list[str] = []
    rows: list[list[str]] = []
    heading = False
    for line in text.splitlines():
        if line.startswith("┌"):
            if names:
                break  # another table
            heading = True
        elif line.startswith("├"):
            heading = False
        elif line.startswith("└"):
            break
        elif line.startswith("│"):
            cells = [c[1:-1] if c[:1] == " " else c for c in line.strip("│").split("│")]
            if heading:
                names = (
                    [a + b.strip() for a, b in zip(names, cells, strict=False)] if names else [c.strip() for c in cells]
                )
            elif len(cells) == len(names):
                _add(rows, cells)
            if len(rows) > limit:
                break
    return [{n: c.strip() for n, c in zip(names, row, strict=True)} for row in rows[:limit]]


def _add(rows: list[list[str]], cells: list[str]) -> None:
    if rows and not cells[0].strip() and any(c.strip() for c in cells):
        rows[-1] = [a.rstrip() + b if b.strip() else a for a, b in zip(rows[-1], cells, strict=True)]
    else:
        rows.append(cells)


def number(text: str) -> float | None:
    """A cell as a number, where it is one."""
    try:
        return float(text)
    except ValueError:
        return None
