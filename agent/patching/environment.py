"""Environment variables of a run's own files: launch scripts, `.env` files and Python code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .document import Document
from .environment_place import Elsewhere, put_variable
from .environment_python import cut_python, put_python, python_places
from .environment_shell import Assigned, assigned, effective, rewritten, taken_out
from .insert_lines import put_env
from .literals import as_python, as_word
from .merged_variables import ALLOCATORS, PATHS, alone, merged
from .model import REMOVE, Changed, Edit, Snippet, Splice, Unplaced, spliced
from .removal import json_variable

BOM = "\ufeff"
_NAME = re.compile(r"[A-Za-z_]\w{0,80}\Z")
_ENV_ROW = re.compile(r"(?m)^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=([^\r\n]*)")
_NO_SCRIPT = re.compile(r"(?:^|/)(?:dockerfile[^/]*|[^/]*\.dockerfile|containerfile)\Z", re.IGNORECASE)


def change_variables(text: str, name: str, values: Mapping[str, Any]) -> Changed:
    """Change environment variables in a text.

    A variable that is set is changed where it stands; one that holds a list keeps what is in it. A new one is put where
    it reaches the processes that train.

    Args:
        text: the file, as decoded without translation of line ends.
        name: the file's name, which tells its format.
        values: variable -> its value as a string, or `REMOVE`.

    Returns:
        The text with its edits; what cannot be written safely is a snippet with the reason.
    """
    bom, body = (BOM, text[1:]) if text.startswith(BOM) else ("", text)
    edits: list[Edit] = []
    left: list[Snippet] = []
    for variable, value in values.items():
        shown = "" if value is REMOVE else _shown(name, variable, str(value))
        try:
            body, made = _one(body, name, variable, value)
            edits += made
        except Elsewhere as e:
            left.append(Snippet(variable, e.text if value is not REMOVE else "", str(e)))
        except Unplaced as e:
            left.append(Snippet(variable, shown, str(e)))
    return Changed(bom + body, tuple(edits), tuple(left))


def _shown(name: str, variable: str, value: str) -> str:
    """What to put in by hand, in the form that the file takes."""
    low = name.lower()
    if _NO_SCRIPT.search(low):
        return f"ENV {variable}={as_word(value)}"
    if low.endswith((".yaml", ".yml")):
        quoted = as_python(value).replace("'", '"') if '"' not in value else as_python(value)
        return f"{variable}: {quoted}" if "compose" in low else f"- name: {variable}\n  value: {quoted}"
    if low.endswith(".py"):
        return f'os.environ["{variable}"] = {as_python(value)}'
    return f"export {variable}={alone(variable, value) or as_word(value)}"


def _one(text: str, name: str, variable: str, value: Any) -> tuple[str, list[Edit]]:
    if not _NAME.match(variable) or (value is not REMOVE and re.search(r"[\x00-\x1f\x7f]", str(value))):
        raise Unplaced(f"{variable[:80]} cannot be set to this value")
    form = _form(text, name)
    if form == "env":
        splices = _env_file(text, variable, value)
        after = spliced(text, splices)
        now = [m[2] for m in _ENV_ROW.finditer(after) if m[1] == variable]
        if (value is REMOVE) != (not now):
            raise Unplaced("the file cannot be read back after the change")
        return after, _told(text, after, variable, splices)
    doc = Document.read(text, name if form == "shell" else "a.py")
    splices = _python(doc, variable, value) if form == "python" else _shell(doc, variable, value)
    if not splices:
        return text, []
    after = doc.again(spliced(text, splices))
    if form == "python" and doc.parses() and not after.parses():
        raise Unplaced("the code would not parse after the change")
    _same_otherwise(doc, after, variable)
    again = _python(after, variable, value) if form == "python" else _shell(after, variable, value)
    if again:
        raise Unplaced("the variable cannot be read back after the change")
    return after.text, _told(text, after.text, variable, splices)


def _form(text: str, name: str) -> str:
    """`shell`, `env` or `python`.

    Raises:
        Unplaced: a file of another kind.
    """
    low = name.lower().rsplit("/", 1)[-1]
    suffix = "." + low.rpartition(".")[2] if "." in low else ""
    first = text[:200].split("\n", 1)[0]
    if _NO_SCRIPT.search(low):
        raise Unplaced("an image file, not a script: put the line in where the training's stage begins")
    if suffix == ".py" or (suffix == "" and re.match(r"#!.*\bpython", first)):
        return "python"
    if suffix == ".env" or low in (".env", "env") or low.startswith(".env."):
        return "env"
    script = re.match(r"#!.*\b(?:ba|z|da|k)?sh\b", first) or "\n#SBATCH" in text[:4000] or first.startswith("#SBATCH")
    if suffix in (".sh", ".bash", ".sbatch", ".slurm", ".job") or (suffix in ("", ".txt") and script):
        return "shell"
    raise Unplaced("no launch script: put the variable where the job's environment is written")


def _told(before: str, after: str, variable: str, splices: list[Splice]) -> list[Edit]:
    out: list[Edit] = []
    for s in splices:
        shift = sum(len(o.text) - (o.end - o.start) for o in splices if o.start < s.start)
        line = after.count("\n", 0, min(s.start + shift, len(after))) + 1
        out.append(Edit(variable, variable, line, before[s.start : s.end].strip("\r\n"), s.text.strip("\r\n")))
    return out


def _same_otherwise(before: Document, after: Document, variable: str) -> None:
    """Nothing but the variable may differ once the text is read again."""
    names = {variable, *(ALLOCATORS if variable in ALLOCATORS else ())}

    def rest(doc: Document) -> list[tuple[str, str]]:
        leaves = [leaf for leaf in doc.sheet.leaves if leaf.key not in names]
        return sorted(
            (leaf.key, repr(leaf.value)) for leaf in leaves if variable not in repr(leaf.value) and leaf.key != "export"
        )

    if rest(before) != rest(after):
        raise Unplaced("the change would touch other settings of the file")


def _shell(doc: Document, variable: str, value: Any) -> list[Splice]:
    variable, found = _alias(doc, variable, lambda v: assigned(doc, v))
    if value is REMOVE:
        return [json_variable(doc, variable, p.start, p.end) if p.kind == "json" else taken_out(doc, p) for p in found]
    if not found:
        return put_variable(doc, variable, alone(variable, value) or as_word(value))
    out: list[Splice] = []
    for place in effective(doc, found, variable):
        new = merged(variable, place.value(doc), value)
        if new != place.value(doc) or place.kind == "plain":
            out += rewritten(doc, place, new)
    return out


def _alias(doc: Document, variable: str, look: Any) -> tuple[str, list[Assigned]]:
    """The allocator's variable has three names: the one that stands there is kept."""
    found = look(variable)
    for other in ALLOCATORS if variable in ALLOCATORS and not found else ():
        if there := look(other):
            return other, there
    return variable, found


def _python(doc: Document, variable: str, value: Any) -> list[Splice]:
    variable, found = _alias(doc, variable, lambda v: python_places(doc, v))
    if value is REMOVE:
        return [cut_python(doc, place) for place in found]
    if not found:
        return put_python(doc, variable, value)
    out: list[Splice] = []
    for place in found:
        new = merged(variable, place.value(doc), value)
        if new != place.value(doc):
            out.append(Splice(place.start, place.end, as_python(new, place.source(doc)), variable))
    return out


def _env_file(text: str, variable: str, value: Any) -> list[Splice]:
    newline = "\r\n" if "\r\n" in text else "\n"
    rows = {m[1]: m for m in _ENV_ROW.finditer(text)}
    if sum(m[1] == variable for m in _ENV_ROW.finditer(text)) > 1:
        raise Unplaced(f"{variable} stands twice")
    if variable in ALLOCATORS and variable not in rows:
        variable = next((a for a in ALLOCATORS if a in rows), variable)
    m = rows.get(variable)
    if value is REMOVE:
        return [_row_out(text, m, newline)] if m else []
    if m is None and variable in PATHS:
        raise Unplaced(f"{variable} would replace the whole search path: set it in the launch script")
    if m is None:
        return put_env(text, variable, as_word(value), newline)
    quoted = re.match(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'", m[2].strip())
    source = quoted[0] if quoted else re.split(r"[ \t]+#", m[2])[0].strip()
    old = source.strip("'\"") if quoted else source
    new = merged(variable, old, value)
    start = m.start(2) + (m[2].find(source) if source else 0)
    return [] if new == old else [Splice(start, start + len(source), as_word(new, source), variable)]


def _row_out(text: str, m: re.Match[str], newline: str) -> Splice:
    start, end = m.start(), m.end()
    stop = text.find("\n", end)
    if stop >= 0:
        return Splice(start, stop + 1, "")
    return Splice(max(start - len(newline), 0) if start else 0, len(text), "")
