"""The repairs of a report as lines: what is wrong, what changes, what to do by hand, how to see whether it helped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..repairs_rows import Drawn

if TYPE_CHECKING:
    from ...agent.chat.offered_repairs import Applied, Offer, Standing
    from ...agent.core.report import ByHand, Patch

MOST_ROWS = 120  # of one patch in the list; the question shows all of it
TEXT, INNER = 4, 6  # columns before the words of a repair, and before what belongs to them


@dataclass(frozen=True, slots=True)
class Block:
    """What the cursor stands on at once.

    Attributes:
        ids: patches that it applies.
        undo: the apply that it takes back.
        commands: what can be copied; else `diff` is, else the text to put in by hand.
    """

    rows: tuple[Drawn, ...]
    ids: tuple[str, ...] = ()
    undo: str = ""
    file: str = ""
    line: int = 1
    commands: tuple[str, ...] = ()
    diff: str = ""
    by_hand: str = ""


def blocks(offers: Sequence[Offer], standing: Standing) -> list[Block]:
    """Repairs in the order of the report, starting again, and what else was applied to this run."""
    found, used = [], set[str]()
    for number, offer in enumerate(offers, 1):
        done = next((a for a in standing.applied if a.holds(offer)), None)
        used |= {done.ident} if done else set()
        rows = tuple(_repair(number, offer, done, standing.known))
        found.append(
            Block(rows, tuple(offer.ids), done.ident if done else "", offer.patches[0].file if offer.patches else "",
                  offer.line, offer.commands, offer.diff, "\n".join(h.text for h in offer.by_hand if h.text))
        )  # fmt: skip
    if standing.again:
        found.append(_again(standing))
    return found + [_apart(a) for a in standing.applied if a.ident not in used]


def _repair(number: int, offer: Offer, done: Applied | None, known: bool) -> Iterator[Drawn]:
    yield Drawn("title", f"{number}. {offer.title}", 2)
    if done:
        yield Drawn("mark", _stands(done), TEXT)
    elif offer.patches:
        count = len(offer.patches)
        stands = ", not applied" if known else ""
        yield Drawn("note", f"{count} patch{'es' * (count > 1)}{stands}: enter shows what would be written", TEXT)
    else:
        yield Drawn("note", "no patch: what to do stands below", TEXT)
    if offer.why:
        yield Drawn("words", offer.why, TEXT)
    if offer.risk:
        yield Drawn("words", f"risk: {offer.risk}", TEXT)
    for patch in offer.patches:
        yield from _patch(offer, patch)
    if offer.commands:
        yield Drawn("note", "command:" if len(offer.commands) == 1 else "commands:", TEXT)
    for command in offer.commands:
        yield Drawn("command", command, INNER)
    for hand in offer.by_hand:
        yield from _by_hand(hand)
    if offer.verify:
        yield Drawn("words", f"then check: {offer.verify}", TEXT)


def _patch(offer: Offer, patch: Patch) -> Iterator[Drawn]:
    yield Drawn("note", "", TEXT)
    yield Drawn("title", f"{patch.id}  {patch.file}  ({offer.counts(patch)})", TEXT)
    if patch.by == "model":
        yield Drawn("mark", f"! {offer.proposed_by}", INNER)
    own = ((name, text) for name, text in (("", patch.title), ("why: ", patch.why), ("risk: ", patch.risk)) if text)
    known = {offer.title, offer.why, offer.risk}
    for name, text in own:
        if text not in known:
            yield Drawn("words", f"{name}{text}", INNER)
    for edit in patch.edits:
        yield Drawn("words", edit, INNER)
    for row in offer.rows(patch, MOST_ROWS):
        yield Drawn(row.kind, row.text, INNER)
    more = patch.diff.count("\n") - 2 - MOST_ROWS  # two lines name the file
    if more > 0:
        yield Drawn("note", f"{more:,} more lines: enter shows all of it", INNER)


def _by_hand(hand: ByHand) -> Iterator[Drawn]:
    if hand.text:
        yield Drawn("note", f"by hand, in {hand.where}:" if hand.where else "by hand:", TEXT)
        for line in hand.text.split("\n"):
            yield Drawn("hand", line, INNER)
        if hand.why:
            yield Drawn("words", f"no patch: {hand.why}", INNER)
    else:
        yield Drawn("words", f"no patch{f' for {hand.where}' if hand.where else ''}: {hand.why}", TEXT)


def _stands(done: Applied) -> str:
    if not done.whole:
        return "! interrupted: some files are changed and others not; u puts them back"
    return f"+ applied {done.when} ({done.ident}); u takes it back"


def _again(standing: Standing) -> Block:
    rows = [Drawn("title", "Starting again", 2)]
    commands: list[str] = []
    for item in standing.again:
        rows.append(Drawn("words", f"{item.mark}{' ' * bool(item.mark)}{item.text}", TEXT))
        if item.remark:
            rows.append(Drawn("note", item.remark, INNER))
        rows += [Drawn("command", command, INNER) for command in item.commands]
        commands += item.commands
    return Block(tuple(rows), commands=tuple(commands))


def _apart(done: Applied) -> Block:
    """An apply of another report on this run, or of a part of a repair."""
    rows = [Drawn("title", f"Applied before: {', '.join(done.patches)} of {done.report}", 2)]
    rows.append(Drawn("mark", _stands(done), TEXT))
    rows += [Drawn("note", file, INNER) for file in done.files]
    return Block(tuple(rows), undo=done.ident)
