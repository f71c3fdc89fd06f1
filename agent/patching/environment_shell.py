"""Environment variables of launch scripts: where they are set, how a value is changed, taken out or put in."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..reading.settings_shell import ShellReading
from ..reading.shell_environment import passed_on
from ..reading.shell_launches import Launch
from ..reading.shell_words import Word, unquote
from .document import Document
from .literals import as_inside, as_json, as_word
from .model import Splice, Unplaced
from .training_command import shell_of, training_commands

DEFAULT = re.compile(r"(['\"]?)\$\{\w+:?[-=]([^${}]*)\}\1\Z")


@dataclass(frozen=True, slots=True)
class Assigned:
    """One place that sets a variable.

    `kind`: `export`, `plain` (a shell variable that is not exported), `prefix` (before a command), `passed` (by a flag
    of a launcher), `json` (in Ray's runtime environment).
    """

    name: str
    kind: str
    start: int
    end: int
    line: int
    blocks: tuple[str, ...] = ()
    word: Word | None = None
    quoted: bool = False

    def source(self, doc: Document) -> str:
        return doc.text[self.start : self.end]

    def value(self, doc: Document) -> str:
        """What is set, without quotes; of `${NAME:-default}` the default."""
        source = self.source(doc)
        m = DEFAULT.match(source)
        if self.kind == "json":
            return source.replace('\\"', '"').strip('"')
        return m[2] if m else unquote(source)


def assigned(doc: Document, name: str) -> list[Assigned]:
    """The places that set a variable for the training command, or for the whole script.

    Raises:
        Unplaced: it is set in a way that cannot be read, or is set and unset.
    """
    reading = shell_of(doc.clean)
    training = _training(doc)
    found: list[Assigned] = []
    for launch in reading.launched:
        for word in launch.assigned:
            if re.match(rf"{name}\+?=", word.text) and (kind := _kind(launch, training, reading, name)):
                start, end, _ = word.place(word.text.index("=") + 1)
                quoted = launch.quote is not None or word.raw[:1] in "'\""
                found.append(Assigned(name, kind, start, end, word.line, launch.blocks, word, quoted))
        for stage in launch.stages if launch in training or any(t.outer is launch for t in training) else ():
            for each in passed_on(stage)[0]:
                if each.name == name:
                    inside = launch.quote is not None or each.word.raw[:1] in "'\""
                    place = (each.start, each.end, each.word.line, launch.blocks, each.word, inside)
                    found.append(Assigned(name, "passed", *place))
    found += [
        Assigned(name, "json", *doc.span(leaf), leaf.line)
        for leaf in doc.sheet.leaves
        if leaf.key == name and leaf.style == "environment" and leaf.note in ("json", "escaped") and leaf.width
    ]
    _all_read(doc, name, reading, found)
    return found


def _training(doc: Document) -> list[Launch]:
    try:
        return training_commands(doc, doc.framework)
    except Unplaced:
        return []


def _kind(launch: Launch, training: list[Launch], reading: ShellReading, name: str) -> str:
    if launch.declares == "export" or (launch.declares in ("declare", "typeset") and "-x" in _texts(launch)):
        return "export"
    if launch.stages or launch.arguments:
        concerned = launch in training or any(t.outer is launch for t in training) or not training
        return "prefix" if concerned else ""
    exported = any(e.declares == "export" and name in _texts(e) for e in reading.launched)
    exported = exported or any(_texts(e)[:2] in (["set", "-a"], ["set", "-o"]) for e in reading.launched)
    return "export" if exported else "plain"


def _texts(launch: Launch) -> list[str]:
    return [w.text for w in launch.words]


def _all_read(doc: Document, name: str, reading: ShellReading, found: list[Assigned]) -> None:
    """Every mention that could set the variable is one that was read, or belongs to another command."""
    if any(_texts(e)[:1] == ["unset"] and name in _texts(e) for e in reading.launched):
        raise Unplaced(f"{name} is unset in the script")
    bare = re.sub(r"(?m)(?:^|(?<=\s))#[^\n]*", lambda m: " " * len(m[0]), doc.clean)
    starts = {a.start for a in found}
    others = {
        word.place(word.text.index("=") + 1)[0]
        for launch in reading.launched
        for word in launch.assigned
        if word.text.startswith(f"{name}=")
    }
    for m in re.finditer(rf"\b{name}\+?=|\\?\"{name}\\?\"\s*:\s*", bare):
        if not {m.end(), m.end() + 1} & (starts | others):
            raise Unplaced(f"{name} is set in a way that is not read (line {doc.lines.at(m.start())})")
    if any(not a.end for a in found):
        raise Unplaced(f"{name} is set within quotes that hold quotes")


def effective(doc: Document, found: list[Assigned], name: str) -> list[Assigned]:
    """Of the places that set a variable, those that a change has to reach.

    Raises:
        Unplaced: they differ, or run only in a branch.
    """
    nearer = [a for a in found if a.kind in ("prefix", "passed", "json")]
    kept = nearer or [a for a in found if a.kind != "plain"] or found
    if len({a.value(doc) for a in kept}) > 1:
        lines = ", ".join(str(a.line) for a in kept[:4])
        raise Unplaced(f"{name} is set {len(kept)} times with different values (lines {lines})")
    training = {t.blocks for t in _training(doc)}
    if kept and all(a.blocks and a.blocks not in training for a in kept):
        raise Unplaced(f"{name} is set only in a branch, a loop or a function (line {kept[0].line})")
    return kept


def rewritten(doc: Document, place: Assigned, value: str) -> list[Splice]:
    """Splices that give a variable another value where it is set; a plain shell variable is exported."""
    source = place.source(doc)
    start, end, old = place.start, place.end, source
    if m := DEFAULT.match(source):
        start, end, old = start + m.start(2), start + m.end(2), m[2]
        text = as_inside(value, old)
    elif place.kind == "json":
        text = as_json(value)
        text = text.replace('"', '\\"') if source.startswith("\\") else text
    elif re.search(r"\$|`", value):  # a search path that stands on what is there
        text = f'"{value}"' if source[:1] in ('"', "") or not place.quoted else value
        if place.quoted and source[:1] != '"':
            raise Unplaced(f"{place.name} stands within quotes that hold more")
    else:
        text = as_inside(value, old) if place.quoted else as_word(value, old)
    made = [Splice(start, end, text, place.name)] if text != doc.text[start:end] else []
    if place.kind == "plain" and place.word is not None:
        made.append(Splice(place.word.start, place.word.start, "export ", place.name))
    return made


def taken_out(doc: Document, place: Assigned) -> Splice:
    """The stretch to take out: an export line, an assignment before a command, a launcher's flag.

    Raises:
        Unplaced: other commands stand on its line, or what is around it would break.
    """
    text = doc.text
    word = place.word
    if word is None or place.kind == "json":
        raise Unplaced("it stands in a JSON text")
    if place.kind == "passed":
        return _flag_out(doc, place, word)
    launch = next(e for e in shell_of(doc.clean).launched if word in e.assigned)
    if place.kind == "prefix" or len(launch.assigned) > 1:
        space = re.compile(r"(?:[ \t]+|\\\r?\n)*").match(text, word.end)
        last = word is launch.words[-1]
        if last:  # of `export A=1 B=2`, with the space before it
            before = re.search(r"[ \t]*\Z", text[: word.start])
            return Splice(before.start() if before else word.start, word.end, "", place.name)
        return Splice(word.start, space.end() if space else word.end, "", place.name)
    line = text.rfind("\n", 0, launch.words[0].start) + 1
    stop = text.find("\n", word.end)
    rest = text[word.end : stop if stop >= 0 else len(text)]
    if text[line : launch.words[0].start].strip() or not re.fullmatch(r"\s*(?:#.*)?", rest):
        raise Unplaced("other commands stand on its line")
    if stop < 0:
        return Splice(max(line - len(doc.newline), 0) if line else 0, len(text), "", place.name)
    return Splice(line, stop + 1, "", place.name)


def _flag_out(doc: Document, place: Assigned, word: Word) -> Splice:
    text = doc.text
    if word.text.startswith("--export") or re.search(r"--export[ =]\Z", text[: word.start]):
        if text[place.start - len(place.name) - 2] == ",":
            return Splice(place.start - len(place.name) - 2, place.end, "", place.name)
        raise Unplaced("it is the first of a list of variables: take it out by hand")
    begin = word.start
    if not word.text.startswith("-"):
        m = re.search(r"(?:-x|-e|--env)[ \t]+\Z", text[:begin])
        if not m:
            raise Unplaced("its flag does not stand right before it")
        begin = m.start()
    space = re.compile(r"[ \t]*").match(text, word.end)
    return Splice(begin, space.end() if space else word.end, "", place.name)
