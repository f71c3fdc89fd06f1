"""Edits of generated files of every kind: made, read back, the rest of the file as it was, and taken back byte for byte."""

from __future__ import annotations

import difflib
from collections import Counter

import pytest
from traindoctor.agent.core.unified import applied, reversed_, unified
from traindoctor.agent.repair.patching.change import change
from traindoctor.agent.repair.patching.document import Document
from traindoctor.agent.repair.patching.sites import standing
from traindoctor.agent.repair.patching.spelling import REMOVE, same

from tests.repair.patching.generated import COMMENTS, KINDS, TAIL, document


def problem(seed):
    """What went wrong with the edits of one generated file; empty where all of it held."""
    made = document(seed)
    got = change(made.text, made.name, made.edits, made.framework)
    if got.snippets:
        return f"left to the user's hand: {got.snippets[0].name}: {got.snippets[0].reason}"
    if wrong := read_back(made, got.text):
        return wrong
    if wrong := untouched(made, got.text):
        return wrong
    again = change(got.text, made.name, made.edits, made.framework)
    if again.text != got.text or again.edits:
        return "made again, it changes the file again"
    diff = unified(made.text, got.text, made.name)
    if (applied(diff, made.text, made.name) if diff else made.text) != got.text:
        return "the diff does not give the new text"
    if diff and applied(reversed_(diff, made.name), got.text, made.name) != made.text:
        return "taken back, it is not the old text"
    return ""


def read_back(made, text):
    after = Document.read(text, made.name, made.framework)
    before = Document.read(made.text, made.name, made.framework)
    for setting, value in made.edits.items():
        now = [f.value for f in standing(after, setting)]
        if (value is REMOVE and now) or (value is not REMOVE and not (now and all(same(v, value) for v in now))):
            return f"{setting} reads {now}, not {value}"
    others = [
        Counter((leaf.key, repr(leaf.value)) for leaf in d.sheet.leaves if named(d, leaf) not in made.edits)
        for d in (before, after)
    ]
    return "" if others[0] == others[1] else f"others moved: {(others[0] - others[1]) + (others[1] - others[0])}"


def named(doc, leaf):
    return next((f.name for f in doc.found if f.leaf is leaf), "")


def untouched(made, text):
    """Lines without an edited value are there as they were, in their order, but for the sign that joins a new one."""
    before = Document.read(made.text, made.name, made.framework)
    edited = {f.leaf.line for f in before.found if f.name in made.edits}
    old, new = made.text.split("\n"), text.split("\n")
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag in ("replace", "delete"):
            for number in range(a, b):
                row = old[number].rstrip("\r")
                joined = any(joins(row, line.rstrip("\r")) for line in new[c:d])
                if number + 1 not in edited and row.strip() and not joined:
                    return f"line {number + 1} is gone: {row!r}"
    kept = [c for c in COMMENTS if made.text.count(c) > text.count(c) and REMOVE not in made.edits.values()]
    return f"a comment is gone: {kept}" if kept else ""


def joins(row, line):
    """Whether a line is another one with a comma, a continuation or a member more; what follows a command moves on."""
    row = row.removesuffix(TAIL)
    steps = difflib.SequenceMatcher(None, row, line, autojunk=False).get_opcodes()
    lost = [row[a:b] for tag, a, b, _, _ in steps if tag in ("delete", "replace")]
    return all(piece.strip() in ("", ",", "\\") for piece in lost)


def tell(seeds):
    found = {seed: wrong for seed in seeds if (wrong := problem(seed))}
    names = tuple(KINDS)
    return [f"{seed} ({names[seed % len(names)]}): {wrong}" for seed, wrong in found.items()]


def test_edits_of_every_kind_of_file():
    assert tell(range(5 * len(KINDS))) == []


@pytest.mark.soak
def test_five_hundred_edits():
    wrong = tell(range(1000, 1500))
    assert not wrong, f"{500 - len(wrong)} of 500 were made, read back and taken back: {wrong}"
