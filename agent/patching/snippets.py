"""What to put in by hand where nothing could be written: a flag, a line, or a fragment of a file."""

from __future__ import annotations

from typing import Any

from .document import Document
from .insertion import spelled
from .literals import as_json, as_python, as_toml, as_word, as_yaml
from .model import Unplaced
from .spelling import DROP, among, listed, table, whole_key


def snippet(doc: Document, name: str, value: Any) -> str:
    """What to put in by hand, in the form its framework takes; empty where no word for it is known."""
    try:
        scope, spelling, raw = spelled(doc, name, value)
    except Unplaced:
        return ""
    if raw is DROP:
        return ""
    key = spelling.segments[-1]
    if scope == "env":
        return f"export {key.upper()}={as_word(('1' if raw else '0') if isinstance(raw, bool) else raw)}"
    if scope == "slurm":
        return f"#SBATCH --{key.replace('_', '-')}={as_word(raw)}"
    forms = listed("forms", doc.framework) or ["shell"]
    form = doc.form if doc.form in forms else forms[0]
    no_flag = spelling.segments[1:] and not among(doc.framework, [*table()["dotted"], *table()["overrides"]])
    if form == "shell" and no_flag:
        form = next((f for f in forms if f != "shell"), "yaml")
    path = whole_key(doc.framework, spelling)
    if scope == "launcher" or (form == "shell" and not among(doc.framework, table()["overrides"])):
        flag = "--" + ".".join(spelling.segments)
        flag = flag.replace("_", "-") if among(doc.framework, table()["dashes"]) else flag
        bare = raw is True and among(scope, table()["switches"])
        return flag if bare else f"{flag} {as_word(raw, '', True)}"
    return _fragment(form, path, raw)


def _fragment(form: str, path: tuple[str, ...], raw: Any) -> str:
    if form == "shell":
        return f"{'.'.join(path)}={as_word(raw)}"
    if form == "python":
        return f"{path[-1]}={as_python(raw)}"
    if form == "toml":
        return (f"[{'.'.join(path[:-1])}]\n" if path[1:] else "") + f"{path[-1]} = {as_toml(raw)}"
    if form == "yaml":
        return "\n".join(f"{'  ' * i}{part}:" for i, part in enumerate(path)) + f" {as_yaml(raw)}"
    return "".join(f'{{"{part}": ' for part in path) + as_json(raw) + "}" * len(path)
