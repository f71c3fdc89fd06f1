"""Environment variables of launch scripts: where they are set, how a value is changed, taken out or put in."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...reading.run.program.shell_launches import Launch, ShellReading, Stage, passed_on
from ...reading.run.program.shell_words import Word, unquote
from .document import Document
from .named_values import shell_of, training_commands
from .spelling import Splice, Unplaced, as_inside, as_json, as_word

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


# ----------
# Where a new environment variable goes in a launch script, so that it reaches the processes that train.

_PREPARES = {"source", ".", "module", "ml", "conda", "micromamba", "mamba", "set", "spack", "unset", "eval"}
_LOOKS_LIKE_OPENMPI = re.compile(r"-{1,2}mca\b|--allow-run-as-root|-{1,2}(?:bind-to|map-by)\b|(?:^|\s)-x\s")
_DEEPSPEED_PASSES = ("NCCL", "PYTHON", "MV2", "UCX", "MLFLOW", "LD_LIBRARY", "PATH")
_ANOTHER_HOST = {"ssh", "pdsh", "clush", "su", "runuser", "tmux", "screen"}


class Elsewhere(Unplaced):
    """A variable that belongs to another place than the script: `text` is what to put there."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason)
        self.text = text


def put_variable(doc: Document, name: str, word: str) -> list[Splice]:
    """Set a variable that the script does not set.

    Args:
        word: the value as a shell word, quoted where it has to be.

    Raises:
        Unplaced: nothing is launched, or it would not reach what is launched.
    """
    reading = shell_of(doc.clean)
    commands = training_commands(doc, doc.framework)
    launch = commands[0]
    if len(commands) > 1 and len({frozenset(c.names & _SPECIAL) for c in commands}) > 1:
        raise Unplaced("several commands of the script would take it, each in another way")
    stages = _chain(launch)
    for stage in stages:
        if made := _by_launcher(doc, reading, commands, stage, name, word):
            return made
    if not launch.blocks and launch.names & _ANOTHER_HOST:
        return [splice for each in commands for splice in _before_program(each, name, word)]
    if launch.names & {"sudo"} or any(w.text in ("sudo", "-i") for c in commands for w in _before(c)):
        raise Unplaced("`sudo` or `env -i` gives the command an environment of its own")
    return [_export_line(doc, reading, min(commands, key=lambda c: _outermost(c).words[0].start), name, word)]


_SPECIAL = {"docker", "podman", "ray", "mpirun", "mpiexec", "horovodrun", "deepspeed", "kubectl", *_ANOTHER_HOST}


def _chain(launch: Launch) -> list[Stage]:
    outer = _chain(launch.outer) if launch.outer else []
    return [*outer, *launch.stages]


def _before(launch: Launch) -> list:
    """Words before the first program of a command: `sudo`, `env -i`."""
    first = launch.stages[0].word if launch.stages else None
    return [w for w in launch.words if first is not None and w.start < first.start]


def _outermost(launch: Launch) -> Launch:
    return _outermost(launch.outer) if launch.outer else launch


def _by_launcher(
    doc: Document, reading: ShellReading, commands: list[Launch], stage: Stage, name: str, word: str
) -> list[Splice]:
    """A launcher's own way to pass a variable on; empty where it passes its whole environment."""
    flags = [w.text for w in stage.flags]
    said = f"`{stage.name}` does not pass the environment on"
    if stage.name in ("docker", "podman"):
        if "$" in word:  # the shell outside would fill it in with its own
            raise Elsewhere(
                "the container has a search path of its own", f"-e {name}={word.strip(chr(34)).partition('$')[0]}"
            )
        run = next((w for w in stage.flags[:3] if w.text in ("run", "exec")), None)
        return _flag(commands, run.end if run else 0, f"-e {name}={word}", said)
    if stage.name in ("kubectl", "enroot"):
        raise Unplaced(said)
    if stage.name in ("singularity", "apptainer") and {"--cleanenv", "-e", "--containall", "-C", "-c"} & set(flags):
        raise Elsewhere(f"{said} here", f"--env {name}={word}")
    if stage.name in ("mpirun", "mpiexec", "horovodrun"):
        if not _LOOKS_LIKE_OPENMPI.search(" ".join(flags)):
            raise Elsewhere(f"{said} to other hosts; which flag does depends on the MPI", f"-x {name}={word}")
        return _flag(commands, stage.word.end, f"-x {name}={word}", said)
    if stage.name in ("srun", "sbatch", "salloc"):
        return _slurm(doc, commands, stage, name, word)
    if stage.name == "ray":
        return _runtime_env(doc, commands, stage, name, word)
    if stage.name in ("deepspeed", "accelerate") and _several_hosts(flags) and not name.startswith(_DEEPSPEED_PASSES):
        reason = "DeepSpeed passes only some variables on to other hosts: put the line into `.deepspeed_env`"
        raise Elsewhere(f"{reason} in your home folder", f"{name}={word}")
    return []


def _several_hosts(flags: list[str]) -> bool:
    text = " ".join(flags)
    more = re.search(r"--num_nodes[= ](\d+)", text)
    return bool(re.search(r"--(?:deepspeed_)?hostfile\b|(?:^|\s)-H\s", text) or (more and int(more[1]) > 1))


def _flag(commands: list[Launch], at: int, text: str, said: str) -> list[Splice]:
    if len(commands) > 1:
        raise Unplaced("several commands of the script would take it")
    launch = commands[0]
    if launch.blocks:
        raise Unplaced(f"its command (line {launch.words[0].line}) stands in a branch, a loop or a function")
    if not at or (_outermost(launch).quote is not None and re.search(r"['\"\\$`]", text)):
        raise Elsewhere(said, text)
    return [Splice(at, at, f" {text}")]


def _slurm(doc: Document, commands: list[Launch], stage: Stage, name: str, word: str) -> list[Splice]:
    """`--export` without ALL keeps the environment out."""
    for i, flag in enumerate(stage.flags):
        if not flag.text.startswith("--export") or flag.text.startswith("--export-file"):
            continue
        value = flag.text.partition("=")[2] or (stage.flags[i + 1].text if i + 1 < len(stage.flags) else "")
        holder = flag if "=" in flag.text else stage.flags[min(i + 1, len(stage.flags) - 1)]
        if "ALL" in value.split(","):
            return []
        if value == "NONE" or len(commands) > 1 or commands[0].blocks or holder.raw != holder.text:
            raise Elsewhere(f"`{stage.name} --export` keeps the environment out", f"--export=ALL,{name}={word}")
        if re.search(r"[,'\"\\$`\s]", word):
            raise Elsewhere("`--export` takes no such value", f"export {name}={word}")
        return [Splice(holder.end, holder.end, f",{name}={word}")]
    header = re.search(r"(?m)^#SBATCH\s+--export[= ](\S+)", doc.clean)
    if stage.name == "srun" and header and "ALL" not in header[1].split(","):
        raise Elsewhere("#SBATCH --export keeps the environment out of the job steps", f"--export=ALL,{name}={word}")
    return []


def _runtime_env(doc: Document, commands: list[Launch], stage: Stage, name: str, word: str) -> list[Splice]:
    """Into the JSON that Ray gives to its workers."""
    value = word.strip("'\"")
    fragment = f'{{"env_vars": {{"{name}": {as_json(value)}}}}}'
    told = Elsewhere("Ray gives its workers their environment from a runtime_env that is not read", fragment)
    if "$" in word:
        raise told
    notes = ("json", "escaped")
    given = [leaf for leaf in doc.sheet.leaves if leaf.style == "environment" and leaf.note in notes and leaf.width]
    flags = [w.text for w in stage.flags]
    if not given and not any(f.startswith("--runtime-env") for f in flags) and "submit" in flags:
        submit = next(w for w in stage.flags if w.text == "submit")
        return _flag(commands, submit.end, f"--runtime-env-json={as_word(fragment)}", str(told))
    if not given:
        raise told
    start, end = doc.span(given[-1])
    head = doc.text[doc.text.rfind("\n", 0, start) + 1 : start]
    alone = re.fullmatch(r"([ \t]*)\\?\"[\w.]+\\?\"\s*:\s*", head)
    text = f'"{name}": {as_json(value)}'
    text = text.replace('"', '\\"') if given[-1].note == "escaped" else text
    return [Splice(end, end, f",{doc.newline}{alone[1]}{text}" if alone else f", {text}")]


def _before_program(launch: Launch, name: str, word: str) -> list[Splice]:
    """An assignment right before the command that another host or user runs."""
    first = launch.words[0]
    if not first.end or re.search(r"['\"\\$`]", word):
        raise Elsewhere(
            "another host or user runs the command, within quotes that hold quotes", f"export {name}={word}"
        )
    return [Splice(first.start, first.start, f"{name}={word} ")]


def _export_line(doc: Document, reading: ShellReading, launch: Launch, name: str, word: str) -> Splice:
    """An `export` below the others, or right above the statement that trains or that starts Ray's workers."""
    outer = _outermost(launch)
    starts = [
        e for e in reading.launched
        if not e.quote and any(s.name == "ray" for s in e.stages) and "start" in [w.text for w in e.words]
        and e.words[0].start < outer.words[0].start
    ]  # fmt: skip
    first = min([outer, *starts], key=lambda e: e.words[0].start)
    at = _statement(doc, reading, first)
    indent = re.match(r"[ \t]*", doc.text[at:])
    line = f"{indent[0] if indent else ''}export {name}={word}{doc.newline}"
    if (below := _below_exports(doc, reading, at, indent[0] if indent else "")) is not None:
        at = below
    return Splice(at, at, line)


def _below_exports(doc: Document, reading: ShellReading, at: int, indent: str) -> int | None:
    """Behind the last line of exports above a statement, unless what stands between sets up another environment."""
    above = [e for e in reading.launched if e.quote is None and e.words and e.words[-1].end <= at and not e.blocks]
    exports = [e for e in above if e.declares == "export" and e.assigned and e.group.isdigit()]
    if not exports:
        return None
    last = exports[-1]
    line = doc.text.rfind("\n", 0, last.words[0].start) + 1
    end = doc.text.find("\n", last.words[-1].end)
    head = doc.text[line : last.words[0].start]
    alone = head == f"{indent}export " and not doc.text[last.words[-1].end : end].strip()
    alone = alone or (head == indent and not re.sub(r"#.*", "", doc.text[last.words[-1].end : end]).strip())
    between = [e for e in above if e.words[0].start > last.words[-1].end and e.words[0].text in _PREPARES]
    return end + 1 if alone and end >= 0 and not between else None


def _statement(doc: Document, reading: ShellReading, launch: Launch) -> int:
    """Start of the line on which a statement begins, with the whole block or chain of commands it is part of."""
    position = launch.words[0].start
    if launch.blocks and not launch.blocks[0].startswith("and"):
        position = reading.script.blocks.top(position)
    position = min([position, *(w.start for w in launch.assigned)])
    spans = [(w.start, w.end) for e in reading.launched if e.quote is None for w in e.words]
    spans += [(w.start, w.end) for words in reading.script.arrays.values() for w in words]
    at = doc.text.rfind("\n", 0, position) + 1
    for _ in range(2000):
        before = doc.clean[doc.clean.rfind("\n", 0, max(at - 1, 0)) + 1 : max(at - 1, 0)].rstrip()
        inside = next((s for s, e in spans if s < at < e), None)
        if inside is None and not re.search(r"(?:\\|&&|\|\|?)\Z", before):
            return at
        at = doc.text.rfind("\n", 0, inside if inside is not None else max(at - 1, 0)) + 1
        if at == 0:
            return 0
    raise Unplaced("the statement that trains has no clear beginning")
