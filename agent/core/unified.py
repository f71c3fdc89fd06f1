"""Unified diffs of one text file: made, applied strictly, reversed. What is more than a plain change is refused.

Lines end at "\\n" alone: a carriage return, a form feed or U+2028 is an ordinary character of its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from .errors import DiffRefused

MOST_BYTES, MOST_HUNKS = 4 << 20, 20_000
_MOST_MOVED = 200  # hunks of a diff that may be looked for elsewhere: each costs a pass over the text
_MOST_EDITS = 1_000  # lines that differ, until a stretch is told as replaced whole
_CONTEXT = 3
_NO_END = "\\ No newline at end of file"
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(?: .*)?", re.DOTALL | re.ASCII)
_KINDS = {
    "GIT binary patch": "it is a binary patch", "Binary files": "it is about a binary file",
    "rename ": "it renames a file", "copy ": "it copies a file", "similarity index": "it renames a file",
    "old mode": "it changes a file's mode", "new mode": "it changes a file's mode",
    "new file mode": "it creates a file", "deleted file mode": "it deletes a file",
    "Subproject commit": "it changes a submodule", "diff ": "it has more than one plain file header",
    "index ": "it has more than one plain file header", "@@@": "it is a combined diff",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Hunk:
    """Neighbouring lines of a change. `start` counts the old lines before it; rows are (" ", "-" or "+", line)."""

    start: int
    rows: tuple[tuple[str, str], ...]

    @property
    def old(self) -> list[str]:
        """Its lines before the change, with their ends."""
        return [line for sign, line in self.rows if sign != "+"]


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Old lines from `start` up to `end` give way to new ones."""

    start: int
    end: int
    lines: tuple[str, ...]


def lines_of(text: str) -> list[str]:
    """Lines with their ends; the last may have none."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + [rest] * bool(rest)


def unified(old: str, new: str, file: str) -> str:
    """The unified diff that turns one text into the other; empty where they are the same.

    Args:
        file: name of the file, relative to the run. Quoted as git quotes it where it holds odd characters.
    """
    before, after = lines_of(old), lines_of(new)
    out = [f"--- {_header('a/' + file)}\n", f"+++ {_header('b/' + file)}\n"]
    moved = 0  # how many lines more there are than before
    for group in _groups(_edits(before, after)):
        start = max(group[0].start - _CONTEXT, 0)
        end = min(group[-1].end + _CONTEXT, len(before))
        rows: list[tuple[str, str]] = []
        at = start
        for edit in group:
            rows += [(" ", line) for line in before[at : edit.start]]
            rows += [("-", line) for line in before[edit.start : edit.end]]
            rows += [("+", line) for line in edit.lines]
            at = edit.end
        rows += [(" ", line) for line in before[at:end]]
        out += _told(Hunk(start, tuple(rows)), moved)
        moved += sum(len(e.lines) - (e.end - e.start) for e in group)
    return "".join(out) if len(out) > 2 else ""


def applied(diff: str, old: str, file: str, *, drift: bool = False) -> str:
    """The text after a diff.

    Args:
        file: the one file that the diff may be about.
        drift: a hunk may stand elsewhere, if all of its old lines stand together in exactly one place.

    Raises:
        DiffRefused: not one plain change of this file, or the text is not the one it was made for.
    """
    return together([diff], old, file, drift=drift)


def together(diffs: Sequence[str], old: str, file: str, *, drift: bool = False) -> str:
    """The text after several diffs that were each made for it. A change that two of them make is made once.

    Raises:
        DiffRefused: as `applied`; or two diffs change the same lines in different ways.
    """
    text = lines_of(old)
    found: set[Edit] = set()
    for diff in diffs:
        hunks = parsed(diff, file)
        for hunk, at in zip(hunks, _places(hunks, text, old, drift), strict=True):
            found.update(_changes(hunk, at))
    edits = sorted(found)
    out: list[str] = []
    at = 0
    for last, edit in zip([None, *edits], edits, strict=False):
        if edit.start < at or (last and (last.start, last.end) == (edit.start, edit.end)):
            raise DiffRefused(f"two changes of {file} meet at line {edit.start + 1}", "apply them one after the other")
        out += [*text[at : edit.start], *edit.lines]
        at = edit.end
    out += text[at:]
    if any(not line.endswith("\n") for line in out[:-1]):
        raise DiffRefused(f"the diff of {file} puts something after an end without a newline")
    return "".join(out)


def reversed_(diff: str, file: str) -> str:
    """The diff that takes a change back.

    Raises:
        DiffRefused: not one plain change of this file.
    """
    out = [f"--- {_header('a/' + file)}\n", f"+++ {_header('b/' + file)}\n"]
    moved = 0  # of the new text against the old one
    for hunk in parsed(diff, file):
        rows: list[tuple[str, str]] = []
        added: list[tuple[str, str]] = []
        for sign, line in [*hunk.rows, (" ", "")]:
            if sign == "-":
                added.append(("+", line))
            elif sign == "+":
                rows.append(("-", line))
            else:
                rows += added
                added = []
                rows.append((sign, line))
        rows.pop()
        grown = sum((s == "+") - (s == "-") for s, _ in hunk.rows)
        out += _told(Hunk(hunk.start + moved, tuple(rows)), -moved)
        moved += grown
    return "".join(out)


def parsed(diff: str, file: str) -> list[Hunk]:
    """The hunks of a diff, in order.

    Raises:
        DiffRefused: anything but a plain change of this one file, or damaged.
    """
    if len(diff) > MOST_BYTES or diff.count("\n@@") > MOST_HUNKS:
        raise DiffRefused(f"the diff of {file} is larger than {MOST_BYTES >> 20} MiB or {MOST_HUNKS} hunks")
    if _NO_TEXT.search(diff):
        raise DiffRefused(f"the diff of {file} holds characters that no text file has")
    if not diff.endswith("\n"):
        raise DiffRefused(f"the diff of {file} is cut off", "its last line has no end")
    rows = diff[:-1].split("\n")
    for row, sign, side in zip(rows[:2], ("---", "+++"), ("a/", "b/"), strict=False):
        if row.removesuffix("\t") != f"{sign} {_quoted(side + file)}":
            raise DiffRefused(f"the diff is not a plain change of {file}", _kind(row) or f"found {row[:80]!r}")
    hunks: list[Hunk] = []
    at, moved, end = 2, 0, 0
    while at < len(rows):
        hunk, at = _hunk(rows, at, moved, file)
        if hunk.start < end:
            raise DiffRefused(f"the diff of {file} is damaged", f"hunk {len(hunks) + 1} is out of order")
        end = hunk.start + len(hunk.old)
        moved += sum((s == "+") - (s == "-") for s, _ in hunk.rows)
        hunks.append(hunk)
    if not hunks:
        raise DiffRefused(f"the diff of {file} is damaged", "it has no hunk")
    return hunks


def _hunk(rows: list[str], at: int, moved: int, file: str) -> tuple[Hunk, int]:
    """A hunk whose head stands at `at`, and where the next one does."""
    head = _HUNK.fullmatch(rows[at])
    if not head:
        raise DiffRefused(f"the diff of {file} is no plain change of one file", _kind(rows[at]) or f"line {at + 1}")
    first, count, to, becomes = (int(n) if n else 1 for n in head.groups())
    start = first - 1 if count else first
    if start < 0 or start + moved != (to - 1 if becomes else to) or not count + becomes:
        raise DiffRefused(f"the diff of {file} is damaged", f"the numbers of line {at + 1} do not fit")
    body: list[tuple[str, str]] = []
    at += 1
    while count or becomes or (at < len(rows) and rows[at] == _NO_END):
        row = rows[at] if at < len(rows) else ""
        if row == _NO_END and body and body[-1][1].endswith("\n"):
            body[-1] = (body[-1][0], body[-1][1][:-1])
        elif row[:1] in (" ", "-", "+") and count >= (row[0] != "+") and becomes >= (row[0] != "-"):
            body.append((row[0], row[1:] + "\n"))
            count -= row[0] != "+"
            becomes -= row[0] != "-"
        else:
            raise DiffRefused(f"the diff of {file} is damaged", _kind(row) or f"line {at + 1} does not belong there")
        at += 1
    if all(sign == " " for sign, _ in body):
        raise DiffRefused(f"the diff of {file} is damaged", f"the hunk before line {at + 1} changes nothing")
    return Hunk(start, tuple(body)), at


def _kind(row: str) -> str:
    """What a line says that has no place in a plain change; empty where it says nothing known."""
    if row.startswith(("--- ", "+++ ")):
        return "it creates or deletes a file" if row[4:].strip() == "/dev/null" else "it is about another file"
    return next((words for prefix, words in _KINDS.items() if row.startswith(prefix)), "")


def _places(hunks: list[Hunk], text: list[str], whole: str, drift: bool) -> list[int]:
    """How many lines stand before each hunk. Where one does not fit, no number of the diff is believed any more."""
    wrong = next((h for h in hunks if text[h.start : h.start + len(h.old)] != h.old or (not h.old and text)), None)
    if wrong is None:
        return [h.start for h in hunks]
    places = [_only_place(h.old, whole) for h in hunks] if drift and len(hunks) <= _MOST_MOVED else []
    found, end = [], 0
    for hunk, at in zip(hunks, places, strict=False):
        if at is None or at < end:
            break
        found.append(at)
        end = at + len(hunk.old)
    if len(found) < len(hunks):
        why = "its lines do not stand there" if wrong.old else "it has no line that tells where it belongs"
        raise DiffRefused(f"the diff does not fit at line {wrong.start + 1}", why)
    return found


def _only_place(old: list[str], whole: str) -> int | None:
    """The line before which these lines stand, if they stand together exactly once."""
    block = "".join(old)
    found = []
    at = whole.find(block) if block else -1
    while at >= 0 and len(found) < 2:
        ends = block.endswith("\n") or at + len(block) == len(whole)
        if ends and (at == 0 or whole[at - 1] == "\n"):
            found.append(at)
        at = whole.find(block, at + 1)
    return whole.count("\n", 0, found[0]) if len(found) == 1 else None


def _changes(hunk: Hunk, at: int) -> Iterator[Edit]:
    """The lines of a hunk that differ, without their context."""
    start, new, changed = at, [], False
    for sign, line in [*hunk.rows, (" ", "")]:
        if sign == " ":
            if changed:
                yield Edit(start, at, tuple(new))
            start, new, changed = at + 1, [], False
        elif sign == "+":
            new.append(line)
        changed = sign != " "
        at += sign != "+"


def _told(hunk: Hunk, moved: int) -> Iterator[str]:
    old = len(hunk.old)
    new = sum(sign != "-" for sign, _ in hunk.rows)
    yield f"@@ -{_range(hunk.start, old)} +{_range(hunk.start + moved, new)} @@\n"
    for sign, line in hunk.rows:
        yield sign + line + ("" if line.endswith("\n") else f"\n{_NO_END}\n")


def _range(start: int, count: int) -> str:
    return f"{start + 1}" if count == 1 else f"{start + 1 if count else start},{count}"


def _header(name: str) -> str:
    """A name as git puts it in a header: with a tab behind it where GNU patch would cut it at a space."""
    quoted = _quoted(name)
    return f"{quoted}\t" if " " in name and quoted == name else quoted


def _quoted(name: str) -> str:
    """A name as git writes it: in quotes where it holds what a line of text cannot show."""
    if all(c.isprintable() and c not in '"\\' for c in name):
        return name
    return '"' + "".join(_escaped(c) for c in name) + '"'


def _escaped(c: str) -> str:
    if c in '"\\':
        return f"\\{c}"
    return c if c.isprintable() else "".join(f"\\{b:03o}" for b in c.encode("utf-8", "surrogateescape"))


def _groups(edits: list[Edit]) -> Iterator[list[Edit]]:
    """Edits whose contexts touch, together."""
    group: list[Edit] = []
    for edit in edits:
        if group and edit.start - group[-1].end > 2 * _CONTEXT:
            yield group
            group = []
        group.append(edit)
    if group:
        yield group


def _edits(before: list[str], after: list[str]) -> list[Edit]:
    """The fewest lines to take out and put in (Myers 1986); one stretch where very many differ."""
    head = _alike(before, after)
    tail = _alike(before[head:][::-1], after[head:][::-1])
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    pairs = _kept(old, new)
    edits, x, y = [], 0, 0
    for to_x, to_y in [*pairs, (len(old), len(new))]:
        if to_x > x or to_y > y:
            edits.append(Edit(head + x, head + to_x, tuple(new[y:to_y])))
        x, y = to_x + 1, to_y + 1
    return edits


def _alike(one: list[str], other: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _kept(old: list[str], new: list[str]) -> list[tuple[int, int]]:
    """Pairs of line numbers that are the same line in both, in order; none where too much differs."""
    reach = {1: 0}  # on each diagonal (x - y) how far x came
    trace: list[list[int]] = []  # the same before each further line, of every other diagonal
    for d in range(min(len(old) + len(new), _MOST_EDITS) + 1):
        trace.append([reach[k] for k in range(1 - d, d, 2)])
        for k in range(-d, d + 1, 2):
            down = k == -d or (k != d and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if down else reach[k - 1] + 1
            while x < len(old) and x - k < len(new) and old[x] == new[x - k]:
                x += 1
            reach[k] = x
            if x >= len(old) and x - k >= len(new):
                return _walked_back(trace, len(old), len(new))
    return []


def _walked_back(trace: list[list[int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for d in range(len(trace) - 1, 0, -1):
        reach, k = dict(zip(range(1 - d, d, 2), trace[d], strict=True)), x - y
        down = k == -d or (k != d and reach[k - 1] < reach[k + 1])
        from_x = reach[k + 1] if down else reach[k - 1]
        from_y = from_x - (k + 1 if down else k - 1)
        while x > from_x and y > from_y:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = from_x, from_y
    return pairs[::-1]
