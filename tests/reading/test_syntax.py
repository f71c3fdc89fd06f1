"""Python source that does not parse as a whole."""

from __future__ import annotations

import ast

from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.run.program.syntax import Syntax, dotted, notebook, parse


def _called(source: str) -> dict[str, int]:
    return {dotted(c.func): c.lineno for c in Syntax(source).calls}


def test_whole_file() -> None:
    assert _called("import a\n\n\ndef f():\n    a.b()\n") == {"a.b": 5}


def test_an_excerpt_that_starts_inside_a_method() -> None:
    source = "        loss = self.criterion(x)\n        loss.backward()\n    def other(self):\n        self.step()\n"
    assert _called(source) == {"self.criterion": 1, "loss.backward": 2, "self.step": 4}


def test_broken_lines_cost_only_themselves() -> None:
    source = "a()\nb(]\nc()\nthis is prose and no code\nd()\n"
    trees, unparsed = parse(source)
    assert set(_called(source)) >= {"a", "c", "d"}
    assert unparsed == 2
    assert trees


def test_python_two_and_magics() -> None:
    assert {"c": 3}.items() <= _called("print 'old'\n%matplotlib inline\nc()\n").items()


def test_hopeless_text_ends() -> None:
    for source in ("(" * 100_000, "[" * 5000, "\0", "x = (\n" * 3000, "def f(:\n" * 3000, "", "\n\n"):
        Syntax(source)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="abc()[]:=\n \t#'\"def ifor", max_size=200))
def test_any_text(source: str) -> None:
    trees, unparsed = parse(source)
    assert 0 <= unparsed <= source.count("\n") + 1
    assert all(isinstance(t, ast.Module) for t in trees)


def test_notebook_lines_stay_where_they_are() -> None:
    source = (
        '{\n "cells": [\n  {\n   "cell_type": "markdown",\n   "source": [\n    "words()\\n"\n   ]\n  },\n'
        '  {\n   "cell_type": "code",\n   "source": [\n    "%pip install x\\n",\n    "loss.backward()\\n"\n   ]\n  }\n ]\n}'
    )
    lines = source.split("\n")
    assert _called(notebook(source)) == {"loss.backward": 1 + next(i for i, x in enumerate(lines) if "backward" in x)}
