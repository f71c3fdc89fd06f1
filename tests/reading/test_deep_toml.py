"""TOML that is nested beyond all use: refused in little time, by readers and by those who check a text after a change."""

from __future__ import annotations

import contextlib
import time

import pytest
from traindoctor.agent.reading.settings.forms.settings_files import read_text, toml
from traindoctor.agent.repair.patching.document import Document
from traindoctor.agent.repair.patching.spelling import Unplaced

DEEP = {
    "dots": "a" + ".a" * 300_000 + " = 1\n",
    "dots with blanks": "a" + " . a" * 300_000 + " = 1\n",
    "quoted dots": '"a"' + '."a"' * 300_000 + " = 1\n",
    "quoted dots that hold marks": '"a, b"' + '."#=,. [b"' * 100_000 + " = 1\n",
    "behind a long string": 'x = """\n' + "a\\" * 9 + '"""\n' + "a" + ".a" * 300_000 + " = 1\n",
    "a table": "[" + "a." * 300_000 + "a]\nx = 1\n",
    "inline tables": "x = " + "{a=" * 30_000 + "1" + "}" * 30_000 + "\n",
    "dots in an inline table": "x = {a" + ".a" * 300_000 + " = 1}\n",
    "dots in a list of lines": "x = [\n{a" + ".a" * 300_000 + " = 1}]\n",
    "tables of dots": "x = " + ("{" + "a." * 60 + "a=") * 40 + "1" + "}" * 40 + "\n",
    "lists": "x = " + "[" * 300_000 + "]" * 300_000 + "\n",
}


@pytest.mark.parametrize("name", DEEP)
def test_it_costs_little_and_is_refused(name: str) -> None:
    began = time.monotonic()
    with pytest.raises(ValueError):
        toml(DEEP[name])
    assert read_text("a.toml", DEEP[name]) is not None
    with contextlib.suppress(Unplaced):
        assert not Document.read(DEEP[name], "a.toml").parses()
    assert time.monotonic() - began < 10  # minutes, and gigabytes, without the bound


def test_what_people_write_is_read() -> None:
    prompt, numbers, dots = "One. Two three. " * 90, "0.1 0.2 " * 99, "." * 300
    text = f'x = "{prompt}"\ny = "{numbers}" # {"x." * 200}\n# {dots}\n[a.b]\nurl = \'{"x." * 200}\'\n'
    text += 'c.d = {e = [1, 2], "f.g" = 3}\n'
    assert toml(text)["a"]["b"]["c"]["d"] == {"e": [1, 2], "f.g": 3}
