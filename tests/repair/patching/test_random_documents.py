"""Any document: one value of it is changed, and every byte outside that value stays as it was."""

from __future__ import annotations

import difflib
import json
import tomllib

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.errors import ChangeRefused
from traindoctor.agent.reading.run.program.shell_words import read_script
from traindoctor.agent.repair.patching.change import change
from traindoctor.agent.repair.patching.spelling import REMOVE

KEYS = st.from_regex(r"[a-z][a-z_]{1,8}", fullmatch=True).map(lambda k: f"x_{k}")
NAMES = st.sampled_from(
    ["größe", "x y", "it's", "a: b", "# no", "on", "1e3", "ä\u2028b", 'q"q', "back\\slash", "${HOME}", ""]
)
SCALARS = st.one_of(st.integers(-999, 10**9), st.booleans(), st.floats(-1e6, 1e6).map(lambda f: round(f, 4)), NAMES)
TREES = st.dictionaries(
    KEYS, st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(KEYS, SCALARS, min_size=1, max_size=3)),
    max_size=5,
)  # fmt: skip
RATES = st.sampled_from([1e-5, 3e-4, 0.5, 2.0, 6.25e-7])
COMMENTS = st.sampled_from(["", "  # why", " # 'ü' {x}: [1, 2]  "])
ENDS = st.sampled_from(["\n", "\r\n"])
LAST = st.booleans()
EDITS = st.fixed_dictionaries(
    {"learning_rate": RATES}, optional={"gradient_clip_norm": RATES, "micro_batch_size": st.integers(1, 64)}
)


def checked(text, name, edits, framework, load):
    """Change a text, compare what the format's own parser says before and after; answers the new text."""
    got = change(text, name, edits, framework)
    assert not got.snippets, got.snippets
    assert change(got.text, name, edits, framework) == type(got)(got.text)
    assert got.text.count("\r\n") in (0, got.text.count("\n"))
    return load(got.text)


def paths(tree, prefix=()):
    """Dotted path -> value of every leaf."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from paths(value, (*prefix, key))
        else:
            yield ".".join((*prefix, key)), value


def expected(tree, edits, keys):
    return dict(paths(tree)) | {keys[name]: value for name, value in edits.items()}


DEEPSPEED = {
    "learning_rate": "optimizer.params.lr", "gradient_clip_norm": "gradient_clipping",
    "micro_batch_size": "train_micro_batch_size_per_gpu",
}  # fmt: skip
HF = {
    "learning_rate": "learning_rate",
    "gradient_clip_norm": "max_grad_norm",
    "micro_batch_size": "per_device_train_batch_size",
}


@settings(max_examples=120, deadline=None)
@given(TREES, TREES, EDITS, st.sampled_from([None, 1, 4, "\t"]), ENDS, LAST)
def test_json(before, behind, edits, indent, end, last):
    tree = {**before, "optimizer": {"type": "Adam", "params": {"lr": 0.1, **behind}}, **{
        f"z{k}": v for k, v in behind.items()
    }}  # fmt: skip
    text = json.dumps(tree, indent=indent, ensure_ascii=False).replace("\n", end) + (end if last else "")
    got = checked(text, "a.json", edits, "deepspeed", json.loads)
    assert dict(paths(got)) == expected(tree, edits, DEEPSPEED)


@settings(max_examples=120, deadline=None)
@given(TREES, TREES, EDITS, COMMENTS, ENDS, LAST, st.sampled_from([None, True]))
def test_yaml(before, behind, edits, comment, end, last, flow):
    head = yaml.safe_dump({"first": before}, allow_unicode=True, width=9999)
    rest = yaml.safe_dump({"rest": behind}, allow_unicode=True, default_flow_style=flow, width=9999)
    rest = f"nested: {rest}" if flow else yaml.safe_dump({"nested": {"rest": behind}}, allow_unicode=True, width=9999)
    text = f"{head}# kept\nlearning_rate: 0.1{comment}\n{rest}"
    text = text.replace("\n", end) if last else text.replace("\n", end).removesuffix(end)
    tree = yaml.safe_load(text)
    got = checked(text, "a.yaml", edits, "hf", yaml.safe_load)
    assert dict(paths(got)) == expected(tree, edits, HF) and list(got)[: len(tree)] == list(tree)


def toml_value(value):
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\u2028", "\\u2028")


@settings(max_examples=120, deadline=None)
@given(TREES, TREES, EDITS, COMMENTS, ENDS, LAST)
def test_toml(before, behind, edits, comment, end, last):
    rows = [f"{k} = {toml_value(v)}{comment}" for k, v in before.items() if not isinstance(v, dict)]
    rows += ["", "[optimizer]  # table", f"lr = 0.1{comment}"]
    rows += [f"{k} = {toml_value(v)}" for k, v in behind.items() if not isinstance(v, dict)]
    for name, inner in behind.items():
        if isinstance(inner, dict):
            rows += [f"[t_{name}]", *(f"{k} = {toml_value(v)}" for k, v in inner.items())]
    text = end.join(rows) + (end if last else "")
    keys = {
        "learning_rate": "optimizer.lr",
        "gradient_clip_norm": "training.max_norm",
        "micro_batch_size": "training.local_batch_size",
    }
    got = checked(text, "a.toml", edits, "torchtitan", tomllib.loads)
    assert dict(paths(got)) == expected(tomllib.loads(text), edits, keys)


WORDS = st.sampled_from(["1", "a.b", "'x y'", '"ü"', "$HOME", "${A[@]}", "x=1", "--", "$(date)", "'#'", "/data/x"])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(KEYS, WORDS), max_size=5), st.lists(st.tuples(KEYS, WORDS), max_size=5), EDITS, st.data())
def test_shell(before, behind, edits, data):
    joint = data.draw(st.sampled_from([" \\\n    ", " ", " \\\r\n\t"]))
    mark = data.draw(st.sampled_from([" ", "="]))
    rate = data.draw(st.sampled_from(["0.1", '"0.1"', "$RATE", "${RATE}", "${RATE:-0.1}"]))
    variable = "RATE=0.1\n" if rate in ("$RATE", "${RATE}") else ""
    flags = (
        [f"--{k} {w}" for k, w in before if w != "--"]
        + [f"--learning_rate{mark}{rate}"]
        + [f"--{k} {w}" for k, w in behind if w != "--"]
    )
    tail = data.draw(st.sampled_from(["", "\n", " &\n", " 2>&1 | tee x.log\n", "  # end\n", "\nwait\n"]))
    text = f"#!/bin/bash\n{variable}export X=1\npython train.py{joint}{joint.join(flags)}{tail}"
    got = change(text, "a.sh", edits, "hf")
    assert not got.snippets, got.snippets
    assert change(got.text, "a.sh", edits, "hf") == type(got)(got.text)
    old, new = ([w.raw for c in read_script(s).commands for w in c] for s in (text, got.text))
    steps = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    changed = [(tag, old[a:b], new[c:d]) for tag, a, b, c, d in steps if tag != "equal"]
    replaced = [step for step in changed if step[0] == "replace"]
    assert len(replaced) == 1 and len(replaced[0][1]) == 1 and "0.1" in replaced[0][1][0], changed
    added = [word for tag, _, words in changed for word in words[tag == "replace" :]]
    names = {"gradient_clip_norm": "--max_grad_norm", "micro_batch_size": "--per_device_train_batch_size"}
    assert sorted(w.partition("=")[0] for w in added if w.startswith("--")) == sorted(
        names[e] for e in edits if e in names
    )


ASSIGNED = st.lists(st.tuples(KEYS, st.sampled_from(["1", "'ü'", "[1, 2]", "f(3)", '"""a\nb"""', "None"])), max_size=4)


@settings(max_examples=120, deadline=None)
@given(ASSIGNED, ASSIGNED, EDITS, st.booleans(), st.sampled_from(["0.1", "RATE", "1 / 10"]), ENDS)
def test_python(before, behind, edits, spread, rate, end):
    sep = ",\n        " if spread else ", "
    names = dict(before) | {"learning_rate": rate} | dict(behind)
    inner = sep.join(f"{k}={v}" for k, v in names.items())
    text = f'é = "ü"\nRATE = 0.1  # set\nargs = TrainingArguments({sep[1:] if spread else ""}{inner}{"," if spread else ""})\n'.replace(
        "\n", end
    )
    got = change(text, "a.py", edits, "hf")
    assert not got.snippets
    compile(got.text, "a.py", "exec")
    space = {"TrainingArguments": lambda **k: k, "f": lambda x: x}
    old, new = dict(space), dict(space)
    exec(text, old)
    exec(got.text, new)
    assert new["args"] == old["args"] | {HF[k]: v for k, v in edits.items()}
    assert change(got.text, "a.py", edits, "hf") == type(got)(got.text)


SCRAPS = [
    "{", "}", '"', "'", "\\\n", "&a ", "*a", "$X", "${", ": ", "- ", "\n", "| ", "#", ",", "=", "[", "]", "(", "\t",
    "\r\n", "--", "<<EOF\n",
]  # fmt: skip
BASES = {
    "a.json": '{\n  "optimizer": {"params": {"lr": 1e-4}},\n  "gradient_clipping": 1.0\n}\n',
    "a.yaml": "a: &x {lr: 1}\nlearning_rate: 1e-4  # c\nmax_grad_norm: 1.0\nb: [1, 2]\n",
    "a.toml": "[optimizer]\nlr = 1e-4\n[training]\nmax_norm = 1.0\n",
    "a.sh": "export A=1\nARGS=(\n  --lr 1e-4\n)\ntorchrun a.py \\\n  --max_grad_norm 1.0 ${ARGS[@]}\n",
    "a.py": "lr = 1e-4\na = TrainingArguments(learning_rate=lr, max_grad_norm=1.0)\n",
    ".env": "NCCL_DEBUG=INFO\nexport LR='1e-4'\n",
    "a.ini": "[a]\nlr = 1e-4\nmax_grad_norm: 1\n",
}


@pytest.mark.parametrize("name", BASES)
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 90), st.sampled_from(SCRAPS), st.integers(0, 6)), max_size=4),
       st.sampled_from([1e-5, REMOVE]), st.sampled_from(["", "hf", "deepspeed", "torchtitan", "megatron"]))  # fmt: skip
def test_a_damaged_text_is_changed_rightly_or_not_at_all(name, scraps, value, framework):
    """Whatever the text: an answer, or the one typed error; and what is answered is stable."""
    text = BASES[name]
    for at, scrap, cut in scraps:
        text = text[:at] + scrap + text[at + cut :]
    edits = {"learning_rate": value, "gradient_clip_norm": value, "nccl_debug": "WARN"}
    try:
        got = change(text, name, edits, framework)
    except ChangeRefused as e:
        assert "\n" not in str(e)
        return
    if not got.edits:
        assert got.text == text
    assert all(s.reason for s in got.snippets)
