"""Putting a setting where its framework looks for it, in a text that does not hold it yet."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...reading.run.program.shell_words import read_script
from ...reading.settings.forms.settings_files import toml_masked
from ...reading.settings.forms.settings_shell import SWITCHES
from ...reading.settings.settings_map import Spelling, settings_map
from .document import Document, untimely
from .insert_code import (
    Group,
    arguments,
    call_line,
    put_argument,
    put_environ,
    put_export,
    put_header,
    put_item,
    put_keyword,
    put_launcher,
)
from .insert_data import put_env, put_json, put_toml, put_yaml
from .named_values import timedelta
from .spelling import (
    DROP,
    Splice,
    Unplaced,
    among,
    as_inside,
    as_json,
    as_python,
    as_toml,
    as_word,
    as_yaml,
    candidates,
    listed,
    raw_value,
    same,
    table,
    whole_key,
)

# ----------
# What has to hold in a file before a setting is written into it: a trainer that has it, a switch it depends on.


def admit(doc: Document, name: str, value: Any, act: str = "put", spelling: Spelling | None = None) -> None:
    """Let a setting be written, or say why not.

    Args:
        act: `put` where it is put in, `change` where it stands, `remove` where it is taken out.

    Raises:
        Unplaced: the file does not meet a condition of `knowledge/spelling.yaml`.
    """
    if why := unmet(doc, name, spelling, act, value):
        raise Unplaced(why)


def unmet(doc: Document, name: str, spelling: Spelling | None, act: str = "put", value: Any = None) -> str:
    """The reason of the first condition that the file does not meet; empty where it meets all."""
    asked = (c for c in _about(doc.framework, name, spelling, act) if value in c.get("only_to", (value,)))
    return next((c["why"] for c in asked if not _met(doc, c)), "")


def _about(framework: str, name: str, spelling: Spelling | None, act: str) -> Iterator[dict[str, Any]]:
    key = ".".join(p.lstrip("=") for p in spelling.segments) if spelling else ""
    for condition in table()["conditions"]:
        if "of" in condition and framework not in condition["of"]:
            continue
        if act not in condition.get("only", ("put", *condition.get("also", ()))):
            continue
        by_name = spelling is None and name in condition.get("settings", ())
        if by_name or (key and any(re.search(p, key) for p in condition.get("spellings", ()))):
            yield condition


def _met(doc: Document, condition: dict[str, Any]) -> bool:
    text = _words(doc)
    if "when" in condition and not _there(condition["when"], text):
        return True
    if "has" in condition and not _there(condition["has"], text):
        return False
    if "lacks" in condition and _there(condition["lacks"], text):
        return False
    standing = {f.name for f in doc.found}
    on = {f.name for f in doc.found if f.value not in (False, None, 0)}
    return set(condition.get("held", ())) <= on and not set(condition.get("unheld", ())) & standing


def _there(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.MULTILINE) is not None


def _words(doc: Document) -> str:
    """The text as conditions read it: lower case, `_` for `-`, without whole lines of comment."""
    rows = (row for row in doc.clean.lower().splitlines() if not row.lstrip().startswith(("#!", "//")))
    return "\n".join(rows).replace("-", "_")


# ----------

_OWN = ("env", "slurm", "launcher")  # scopes that hold in the files of every framework


def spelled(doc: Document, name: str, value: Any) -> tuple[str, Spelling, Any]:
    """Scope, spelling and plain value that a setting is put in by.

    Raises:
        Unplaced: the framework has no word for it.
    """
    reason = f"{doc.framework or 'the file'} has no spelling of {name} that is known"
    silent: list[tuple[str, Spelling, Any]] = []
    for scope, spelling in candidates(doc.framework, name):
        try:
            raw = raw_value(spelling, scope, value)
        except Unplaced as e:
            reason = str(e)
            continue
        if why := untimely(doc, scope, spelling) or unmet(doc, name, spelling):
            reason = why
            continue
        if raw is DROP or (raw is False and doc.form == "shell" and bare(scope, spelling)):
            silent.append((scope, spelling, DROP))  # by not being there
            if same(settings_map().default(name, doc.framework), value):
                break
            continue
        if isinstance(raw, float) and raw.is_integer() and name in table()["whole"]:
            raw = int(raw)
        return scope, spelling, raw
    if silent:
        return silent[0]
    raise Unplaced(reason)


def bare(scope: str, spelling: Spelling) -> bool:
    """Whether a bool is said by a flag being there or not."""
    return among(scope, table()["switches"]) or f"--{spelling.segments[-1]}" in SWITCHES


def insertion(doc: Document, name: str, value: Any) -> tuple[list[Splice], Spelling]:
    """Splices that put a setting in, and the spelling it got; none where its absence already says the value.

    Raises:
        Unplaced: it cannot be put in here.
    """
    scope, spelling, raw = spelled(doc, name, value)
    if raw is DROP:
        return [], spelling
    admit(doc, name, value)
    if scope in _OWN:
        return _anywhere(doc, name, value)
    if name in table()["only_there"].get(scope, ()):
        raise Unplaced(f"which key of {doc.framework} it goes to depends on the script")
    forms = listed("forms", doc.framework) or []
    if doc.form == "shell" and doc.form not in forms and (inner := _heredoc(doc, forms, spelling, raw)):
        return inner, spelling
    if doc.form not in forms:
        where = " or ".join(forms) or "no file of a known kind"
        raise Unplaced(f"{doc.framework} takes it from {where}, and this is {doc.form}")
    if doc.form == "shell" and scope == "accelerate":
        return put_launcher(doc, table()["launchers"], name, as_word(raw)), spelling
    if doc.form == "shell":
        return _argument(doc, spelling, raw), spelling
    if doc.form == "python" and doc.framework == "nanogpt":
        return _assignment(doc, spelling, raw), spelling
    if doc.form == "python":
        return _code(doc, name, spelling, raw), spelling
    return _tree(doc, spelling, raw), spelling


def _tree(doc: Document, spelling: Spelling, raw: Any) -> list[Splice]:
    """Into nested mappings: JSON, YAML, TOML."""
    _is_meant(doc)
    path = home(doc, spelling)
    _has_parent(doc, ".".join(path))
    if off := [p for p in (".".join(path[:i]) for i in range(1, len(path))) if p in doc.disabled]:
        raise Unplaced(f"`{off[0]}` is switched off, so nothing in it is read")
    if doc.form == "json":
        return put_json(doc.text, path, as_json(raw), doc.newline)
    if doc.form == "toml":
        return put_toml(toml_masked(doc.text), path, as_toml(raw), doc.newline)
    if doc.form == "yaml":
        return put_yaml(doc.text, doc.clean, path, as_yaml(raw), doc.newline)
    raise Unplaced(f"nothing is put into a file of this kind ({doc.form})")


def _has_parent(doc: Document, dotted: str) -> None:
    """A key goes into a mapping that may not be made for it alone.

    Raises:
        Unplaced: the mapping is not there.
    """
    for parent in listed("parents", doc.framework) or ():
        if dotted.startswith(parent + ".") and not any(leaf.key.startswith(parent + ".") for leaf in doc.sheet.leaves):
            raise Unplaced(f"the file has no `{parent}`, which needs more than this one key")


def _is_meant(doc: Document) -> None:
    """A key goes into a file that the framework is known to read: by its other keys.

    Raises:
        Unplaced: none of them says so.
    """
    tree = [leaf.key for leaf in doc.sheet.leaves if leaf.style in ("yaml", "json", "toml")]
    own = any(f.own and f.leaf.style in ("yaml", "json", "toml") for f in doc.found)
    if not own and not settings_map().owns(doc.framework, [settings_map().detect(tree, "")]):
        raise Unplaced(f"nothing in the file says that {doc.framework} reads it")
    listed_first = re.search(r"(?m)^defaults:[ \t]*\r?\n((?:[ \t]*-.*\n?)+)", doc.text) if doc.form == "yaml" else None
    rows = listed_first[1].split("\n") if listed_first else []
    files = [row.strip(" \t\r-") for row in rows if row.strip()]
    if "_self_" in files[:-1]:
        raise Unplaced("the files of its `defaults` list come after `_self_` and may set it again")


def home(doc: Document, spelling: Spelling) -> tuple[str, ...]:
    """The whole path of a new key: as its neighbours in this file have it, or as the framework has it."""
    whole = whole_key(doc.framework, spelling)
    keys = [
        tuple(leaf.key.split(".")) for leaf in doc.sheet.leaves if leaf.style in ("yaml", "json", "toml", "override")
    ]
    if any(k[0] == whole[0] for k in keys) and len(whole) > 1:
        return whole
    parent = spelling.segments[:-1]
    if not parent:
        beside = Counter(
            tuple(f.leaf.key.split(".")[:-1]) for f in doc.found if f.own and len(f.spelling.segments) == 1
        )
        common = beside.most_common(1)[0][0] if beside else ()
        return (*common, *whole) if len(whole) == 1 else whole
    above = Counter(k[:i] for k in keys for i in range(1, len(k) - len(parent)) if k[i : i + len(parent)] == parent)
    return (*above.most_common(1)[0][0], *spelling.segments) if above else whole


def _argument(doc: Document, spelling: Spelling, raw: Any) -> list[Splice]:
    """A flag or an override on the command line."""
    group = arguments(doc, spelling.name, doc.framework)
    return put_argument(doc, group, argument(doc, group, spelling, raw))


def argument(doc: Document, group: Group, spelling: Spelling, raw: Any) -> str:
    """A flag or an override as the framework writes it, in the style of its group."""
    write = as_inside if group.kind == "quoted" else as_word
    if among(doc.framework, table()["overrides"]):
        key = ".".join(home(doc, spelling))
        _has_parent(doc, key)
        added = "++" if set(spelling.segments) & set(listed("added", doc.framework) or ()) else ""
        return f"{added}{key}={write(raw)}"
    if spelling.segments[1:] and not among(doc.framework, table()["dotted"]):
        raise Unplaced(f"`{'.'.join(spelling.segments)}` has no flag of its own")
    flag = "--" + ".".join(spelling.segments)
    if among(doc.framework, table()["dashes"]) or group.dashed:
        flag = flag.replace("_", "-")
    if raw is True and bare(doc.framework, spelling):
        return flag
    several = isinstance(raw, list) and doc.framework != "llamafactory"
    mark = "=" if group.equals and not several else " "
    return f"{flag}{mark}{write(raw, '', several)}"


def _code(doc: Document, name: str, spelling: Spelling, raw: Any) -> list[Splice]:
    """A keyword or a key of a dictionary in Python code."""
    if among(doc.framework, ["deepspeed"]):
        anchors = {f.leaf.key.split(".")[0] for f in doc.found if f.leaf.style == "dict" and f.own}
        path = whole_key(doc.framework, spelling)
        for parent in listed("parents", doc.framework) or ():
            if path[0] == parent and parent not in anchors:
                raise Unplaced(f"the dictionary has no `{parent}`, which needs more than this one key")
        return put_item(doc, path, as_python(raw), anchors)
    calls = listed("calls", doc.framework)
    if not calls or name in (listed("not_keyword", doc.framework) or ()):
        raise Unplaced(f"it is no keyword of a call that {doc.framework} has")
    if doc.framework == "pytorch":
        calls = ["init_process_group"] if name == "nccl_timeout" else ["DataLoader"]
    head, *inner = spelling.segments if doc.framework != "lightning" else spelling.segments[-1:]
    text = as_python(raw)
    if spelling.name == "nccl_timeout" and doc.framework == "pytorch":
        word, imported = timedelta(doc, call_line(doc, calls))
        return [*imported, *put_keyword(doc, calls, head, f"{word}(seconds={raw})")]
    nested = "".join(f'{{"{part}": ' for part in inner) + text + "}" * len(inner)
    return put_keyword(doc, calls, head, nested)


def _assignment(doc: Document, spelling: Spelling, raw: Any) -> list[Splice]:
    """A line below the last of the module's assignments that set anything."""
    lines = [f.leaf.line for f in doc.found if f.leaf.style == "assignment" and f.leaf.width and f.own]
    if not lines or doc.row(max(lines))[:1].isspace():
        raise Unplaced("the code has no settings at its top level")
    row = doc.row(max(lines))
    at = doc.lines.start(max(lines)) + len(row)
    text = f"{spelling.segments[-1]} = {as_python(raw)}"
    return [Splice(at, at, text + doc.newline if row.endswith("\n") else doc.newline + text)]


def _anywhere(doc: Document, name: str, value: Any) -> tuple[list[Splice], Spelling]:
    """Into the first place that there is: behind the launcher, in the scheduler's header, in the environment."""
    reason = Unplaced(f"no spelling of {name} is known")
    for scope, spelling in candidates(doc.framework, name):
        try:
            raw = raw_value(spelling, scope, value)
            return _shared(doc, scope, spelling, raw), spelling
        except Unplaced as e:
            reason = e
    raise reason


def _shared(doc: Document, scope: str, spelling: Spelling, raw: Any) -> list[Splice]:
    """An environment variable, a scheduler header, or a flag of the launcher."""
    key = spelling.segments[-1]
    if scope == "env":
        raw = ("1" if raw else "0") if isinstance(raw, bool) else raw
        if doc.form == "shell" and not doc.name.lower().rsplit("/", 1)[-1].startswith("dockerfile"):
            return put_export(doc, key.upper(), as_word(raw))
        if doc.form == "env":
            return put_env(doc.text, key.upper(), as_word(raw), doc.newline)
        if doc.form == "python":
            return put_environ(doc, key.upper(), as_python(as_word(raw).strip("'")))
        raise Unplaced("an environment variable belongs into the launch script")
    if doc.form != "shell":
        raise Unplaced("it belongs into the launch script")
    value = "" if raw is True else as_word(raw)
    if scope == "slurm":
        return put_header(doc, key.replace("_", "-"), value)
    return put_launcher(doc, table()["launchers"], spelling.name, value)


def _heredoc(doc: Document, forms: list[str], spelling: Spelling, raw: Any) -> list[Splice]:
    """Into a file that the script writes with a here-document."""
    for target, body, line in read_script(doc.clean).heredocs:
        start = doc.lines.start(line)
        text = doc.text[start : start + len(body)]
        form = "json" if body.lstrip().startswith("{") else "yaml" if re.search(r"\.ya?ml\b", target) else ""
        if form in forms:
            inner = Document.read(text, f"inner.{form}", doc.framework)
            return [replace(s, start=s.start + start, end=s.end + start) for s in _tree(inner, spelling, raw)]
    return []


# ----------
# What to put in by hand where nothing could be written: a flag, a line, or a fragment of a file.


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
