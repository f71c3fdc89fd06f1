"""A renamed argument: the key alone changes, in whatever a file is written, and its value stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from traindoctor.agent.repair.patching.change import rename

from tests.repair.treatment.runs import repairs, run_of, seen

OLD, NEW = "evaluation_strategy", "eval_strategy"
SIGNATURE = "sig.env.api_change_signature"


@pytest.mark.parametrize(
    ("name", "text", "becomes"),
    [
        ("a.yaml", f"# {OLD}\nt:\n  {OLD}: steps  # or epoch\n", f"# {OLD}\nt:\n  {NEW}: steps  # or epoch\n"),
        ("a.yaml", f"t: {{lr: 1, {OLD}: 'no'}}\r\n", f"t: {{lr: 1, {NEW}: 'no'}}\r\n"),
        ("a.json", f'{{"t": {{"{OLD}": "steps", "lr": 1}}}}', f'{{"t": {{"{NEW}": "steps", "lr": 1}}}}'),
        ("a.toml", f'[t]\n{OLD} = "steps"\n', f'[t]\n{NEW} = "steps"\n'),
        ("t.sh", f"python t.py --{OLD} steps \\\n  --lr 1\n", f"python t.py --{NEW} steps \\\n  --lr 1\n"),
        ("t.sh", "python t.py --evaluation-strategy=epoch\n", "python t.py --eval-strategy=epoch\n"),
        (
            "t.py", f"a = TrainingArguments(output_dir='o', {OLD}='steps')\n",
            f"a = TrainingArguments(output_dir='o', {NEW}='steps')\n",
        ),
    ],
)  # fmt: skip
def test_the_key_alone_changes(name: str, text: str, becomes: str) -> None:
    changed = rename(text, name, OLD, NEW)
    assert changed.text == becomes and len(changed.edits) == 1 and not changed.snippets
    assert rename(changed.text, name, OLD, NEW).text == becomes


@pytest.mark.parametrize(("name", "text"), [
    ("a.yaml", f"{OLD}: steps\n{NEW}: steps\n"),
    ("a.yaml", f"my_{OLD}: steps\n{OLD}_2: epoch\n"),
    ("a.yaml", f"note: {OLD}\n"),
    ("trainer_state.json", f'{{"{OLD}": "steps"}}'),
    ("a.json", f'{{"{OLD}": '),
])  # fmt: skip
def test_what_is_no_such_key_or_cannot_be_written_stays(name: str, text: str) -> None:
    assert rename(text, name, OLD, NEW).text == text


WORDS = st.from_regex(r"[a-z]{1,8}", fullmatch=True)


@given(st.dictionaries(WORDS, st.one_of(st.integers(0, 99), WORDS), max_size=4), st.booleans())
def test_other_settings_are_as_they_were(others: dict[str, object], as_json: bool) -> None:
    data = {"t": {**others, OLD: "steps"}}
    text = json.dumps(data) if as_json else yaml.safe_dump(data, sort_keys=False)
    changed = rename(text, "a.json" if as_json else "a.yaml", OLD, NEW)
    read = json.loads(changed.text) if as_json else yaml.safe_load(changed.text)
    assert read == {"t": {**others, NEW: "steps"}}


@pytest.mark.parametrize(("refused", "patched"), [(OLD, True), ("logging_dir", False), ("", False)])
def test_only_a_refused_name_is_renamed(tmp_path: Path, refused: str, patched: bool) -> None:
    ws = run_of(tmp_path, {"train.yaml": f"{OLD}: steps\nper_device_train_batch_size: 8\n"})
    evidence = [seen(SIGNATURE, {"name": refused})] if refused else []
    report = repairs(ws, "env/api_change_transformers5", evidence=evidence)
    assert bool(report.patches) is patched
    if patched:
        assert f"+{NEW}: steps" in report.patches[0].diff and f"-{OLD}: steps" in report.patches[0].diff
