"""Every spelling of the settings map, in a small file of each format its framework has: read, changed, read back."""

from __future__ import annotations

import json

import pytest
from traindoctor.agent.core.errors import ChangeRefused
from traindoctor.agent.reading.settings.forms.settings_shell import SWITCHES
from traindoctor.agent.reading.settings.settings_map import UNSET, Spelling, settings_map
from traindoctor.agent.repair.patching.change import change
from traindoctor.agent.repair.patching.document import Document
from traindoctor.agent.repair.patching.sites import standing
from traindoctor.agent.repair.patching.spelling import (
    Unplaced,
    among,
    as_python,
    as_toml,
    as_word,
    as_yaml,
    listed,
    raw_value,
    same,
    table,
)

MAP = settings_map()
# Frameworks whose spellings hold in files of other kinds too: their native form first.
FORMS = {"also": ["yaml"], "tokenizer": ["json"], "model": ["json"], "llava": ["shell"], **table()["forms"]}
NATIVE = {"yaml": "c.yaml", "json": "c.json", "toml": "c.toml", "shell": "run.sh", "python": "train.py", "env": ".env"}


def spellings():
    """(framework, canonical, spelling, form) of everything the map lists."""
    for name, canonical in MAP.canonical.items():
        for framework, spelled in canonical.spelled.items():
            for s in spelled:
                clean = Spelling(name, (s.segments[0].lstrip("="), *s.segments[1:]), s.scale, s.fixed, s.invert, s.when)
                for form in FORMS.get(framework, ["yaml"]):
                    yield framework, name, clean, form


CASES = list(spellings())


def two_values(spelling, scope):
    """Two canonical values that a spelling can say."""
    c = MAP.canonical[spelling.name]
    if spelling.fixed is not UNSET:
        yield from (spelling.fixed, False)
        return
    if spelling.scale != 1.0:
        yield from (int(60 * spelling.scale), int(30 * spelling.scale))
        return
    pool = {
        "int": [4, 2], "float": [0.5, 0.25], "seconds": [3600, 900], "bool": [True, False],
        "list": [["a", "b"], ["c", "d"]], "str": ["first", "second"],
    }[c.type]  # fmt: skip
    words = list(dict.fromkeys(v for v in c.values.values() if not isinstance(v, bool)))
    offs = [v for v in (True, False) if v in c.values.values()]
    for value in [*words, *offs, *pool]:
        try:
            raw_value(spelling, scope, value)
        except Unplaced:
            continue
        yield value


def written(form, framework, spelling, raw):
    """A file with one setting of interest between two others."""
    path = spelling.segments
    key = path[-1]
    if form == "yaml":
        rows = ["# kept", "other_a: 'x'  # kept"]
        rows += [f"{'  ' * i}{part}:" for i, part in enumerate(path)]
        rows[-1] += f" {as_yaml(raw)}  # why"
        return "\n".join([*rows, "other_b: 1.50", ""])
    if form == "json":
        inner = raw
        for part in reversed(path):
            inner = {part: inner}
        return json.dumps({"other_a": "x", **inner, "other_b": [1, 2]}, indent=2) + "\n"
    if form == "toml":
        head = f"[{'.'.join(path[:-1])}]\n" if path[1:] else ""
        return f'other_a = "x"\n{head}{key} = {as_toml(raw)} # why\n[zz]\nother_b = 1.50\n'
    if form == "env":
        return f"OTHER_A=x\n{key.upper()}={as_word(raw)}\nOTHER_B='1 2'\n"
    if form == "python":
        if among(framework, ["deepspeed"]):
            inner = as_python(raw)
            for part in reversed(path):
                inner = f'{{"{part}": {inner}}}'
            return f'import x\nconfig = {inner[:-1]}, "other_b": 1.50}}\n'
        if framework == "env":
            return f'import os\nos.environ["{key.upper()}"] = {as_python(as_word(raw))}\n'
        if framework == "nanogpt":
            return f"other_a = 'x'  # kept\n{key} = {as_python(raw)}\nother_b = 1.50\n"
        call = {"nccl_timeout": "init_process_group"}.get(spelling.name, listed("calls", framework)[0])
        in_config = MAP.resolve("sft", key)
        if framework == "unsloth" and not (in_config and in_config[0].name == spelling.name):
            call = "FastLanguageModel.get_peft_model"
        if path[1:] and framework != "lightning":
            return f"args = {call}(\n    other_a='x',  # kept\n    {path[0]}={{\"{key}\": {as_python(raw)}}},\n    other_b=1.50)\n"
        return f"args = {call}(\n    other_a='x',  # kept\n    {key}={as_python(raw)},\n    other_b=1.50)\n"
    return shell(framework, spelling, raw)


def shell(framework, spelling, raw):
    key = spelling.segments[-1]
    if framework == "env":
        return f"#!/bin/bash\nexport {key.upper()}={as_word(raw)}  # why\nexport OTHER=x\ntorchrun train.py --other_b 1.50\n"
    if framework == "slurm":
        return (
            f"#!/bin/bash\n#SBATCH --job-name=x\n#SBATCH --{key.replace('_', '-')}={as_word(raw)}\nsrun python a.py\n"
        )
    bare = raw is True and (among(framework, table()["switches"]) or f"--{key}" in SWITCHES)
    flag = "--" + ".".join(spelling.segments)
    flag = flag.replace("_", "-") if among(framework, table()["dashes"]) else flag
    value = "" if bare else " " + as_word(raw, "", True)
    if framework == "launcher":
        return f"#!/bin/bash\ntorchrun {flag}{value} \\\n    train.py --other_b 1.50\n"
    if among(framework, table()["overrides"]):
        return (
            f"python -m a \\\n    other.a=x \\\n    {'.'.join(spelling.segments)}={as_word(raw)} \\\n    other.b=1.50\n"
        )
    return f"python train.py \\\n    --other_a x \\\n    {flag}{value} \\\n    --other_b 1.50\n"


CONDITIONS = {c["why"] for c in table()["conditions"] if "also" in c}


def leaves(doc, name):
    """All leaves but those of one setting."""
    ours = {f.leaf.key for f in doc.found if f.name == name}
    return [(leaf.key, repr(leaf.value), leaf.style) for leaf in doc.sheet.leaves if leaf.key not in ours]


def scope_of(framework):
    return "" if framework in ("also", "env", "slurm", "launcher") else framework


@pytest.mark.parametrize("form", sorted(NATIVE))
def test_every_spelling_is_changed_and_nothing_else(form):
    """One test for each format: a test for each of some three thousand cases would cost more than the cases."""
    told: dict[str, list[str]] = {}
    for framework, name, spelling, kind in CASES:
        if kind == form:
            problem = round_trip(framework, name, spelling, form)
            told.setdefault(problem, []).append(f"{framework} {name} {'.'.join(spelling.segments)}")
    done = told.pop("", [])
    passed_over = told.pop("one word", []) + told.pop("two names", []) + told.pop("conditional", [])
    assert not told, "\n".join(f"{where}: {problem}" for problem, cases in told.items() for where in cases)
    assert len(done) > 9 * len(passed_over), passed_over


def round_trip(framework, name, spelling, form):
    """What went wrong with one spelling; `one word`, `two names`, `conditional` where nothing is to be changed."""
    values = list(two_values(spelling, framework))
    if len(values) < 2 or spelling.when:  # a spelling that only some values mean
        return "one word"
    first, second = values[:2]
    if form == "shell" and f"--{spelling.segments[-1]}" in SWITCHES:
        first, second = True, False
    raw = raw_value(spelling, framework, first)
    if raw is False and form == "shell" and among(framework, table()["switches"]):
        first, second = second, first
        raw = raw_value(spelling, framework, first)
    text = written(form, framework, spelling, raw)
    before = Document.read(text, NATIVE[form], scope_of(framework))
    if name not in {f.name for f in before.found}:
        other = MAP.resolve(framework, ".".join(spelling.segments))
        return "two names" if other and other[0].name != name else f"not read: {text!r}"
    if [f.value for f in standing(before, name)] != [MAP.convert(spelling, raw)]:
        return f"read as {standing(before, name)}"
    try:
        got = change(text, NATIVE[form], {name: second}, scope_of(framework))
    except ChangeRefused as e:
        return f"{e} in {text!r}"
    shared_out = framework == "nanogpt" and name == "gradient_accumulation_steps"
    if got.snippets and (shared_out or got.snippets[0].reason in CONDITIONS):
        return "conditional"
    if got.snippets:
        return f"{got.snippets} in {text!r}"
    after = Document.read(got.text, NATIVE[form], scope_of(framework))
    now = [f.value for f in standing(after, name)]
    said = (
        MAP.convert(spelling, raw_value(spelling, framework, second, standing(before, name)[0].leaf)) if now else None
    )
    if (now and not all(same(v, second) or same(v, said) for v in now)) or (not now and not isinstance(second, bool)):
        return f"became {now}, not {second}"
    if leaves(before, name) != leaves(after, name):
        return f"others changed: {leaves(before, name)} {leaves(after, name)}"
    rows, others = text.split("\n"), got.text.split("\n")
    if abs(len(rows) - len(others)) > 1 or (len(set(rows) - set(others)) > 1 and not isinstance(first, list)):
        return f"more than one line changed: {got.text!r}"
    back = change(got.text, NATIVE[form], {name: second}, scope_of(framework))
    return "" if back.text == got.text and not back.edits else "not idempotent"
