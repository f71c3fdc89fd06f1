"""Pickles followed symbolically: what Python pickles comes back, and nothing is imported for it."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import pickle
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.checkpoints.formats.pickled import Pickle
from traindoctor.agent.reading.checkpoints.formats.placed import Placing
from traindoctor.agent.reading.checkpoints.formats.symbols import verdict
from traindoctor.agent.reading.checkpoints.parts import Damaged, Opaque, Window
from traindoctor.agent.reading.checkpoints.weights import state_of
from traindoctor.agent.reading.run.workspace import Workspace

keys = (
    st.text() | st.integers(-(1 << 63), 1 << 63) | st.none() | st.booleans() | st.tuples(st.integers(0, 9), st.text())
)
leaves = (
    st.none() | st.booleans() | st.integers() | st.integers(-(1 << 500), 1 << 500) | st.floats(allow_nan=False)
    | st.text() | st.binary(max_size=300)
)  # fmt: skip
values = st.recursive(
    leaves, lambda v: st.lists(v) | st.dictionaries(keys, v) | st.tuples(v, v) | st.tuples(v, v, v, v), max_leaves=30
)


def followed(data: bytes) -> tuple[Any, Pickle]:
    """What our reader makes of a pickle."""
    from traindoctor.agent.reading.checkpoints.parts import State
    from traindoctor.agent.reading.run.files import RunFile

    with tempfile.TemporaryFile() as f:
        f.write(data)
        f.flush()
        reader = Pickle(Window(f.fileno(), 0, len(data)))
        state = State(RunFile("x", Path("x"), "checkpoint", len(data)), "pickle")
        made = Placing(state, lambda _: None).tree(reader.read())
        assert os.fstat(f.fileno()).st_size == len(data)
        return made, reader


@settings(max_examples=200, deadline=None)
@given(values, st.sampled_from([2, 3, 4, 5]), st.booleans())
def test_plain_values_come_back(value: Any, protocol: int, slow: bool) -> None:
    data = (pickle._dumps if slow else pickle.dumps)(value, protocol)  # type: ignore[attr-defined]
    made, reader = followed(data)
    assert made == value
    assert reader.end == len(data)


@settings(max_examples=100, deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v) | st.tuples(v, v), max_leaves=12),
       st.sampled_from([0, 1]))  # fmt: skip
def test_the_oldest_protocols(value: Any, protocol: int) -> None:
    assert followed(pickle.dumps(value, protocol))[0] == value


@settings(max_examples=150, deadline=None)
@given(values, st.integers(0, 1 << 30), st.data())
def test_any_damage_is_a_problem_or_harmless(value: Any, seed: int, data: Any) -> None:
    raw = bytearray(pickle.dumps(value, seed % 6))
    chance = random.Random(seed)
    for _ in range(1 + seed % 3):
        raw[chance.randrange(len(raw))] = chance.randrange(256)
    try:
        followed(bytes(raw))
    except Damaged as e:
        assert e.problem.kind in ("pickle_invalid", "truncated", "too_large")


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(raw: bytes) -> None:
    with contextlib.suppress(Damaged):
        followed(b"\x80\x04" + raw)


def test_shared_values_and_sets() -> None:
    shared = [1, 2]
    made, _ = followed(pickle.dumps({"a": shared, "b": shared, "s": {3}, "f": frozenset((4,))}))
    assert made == {"a": [1, 2], "b": [1, 2], "s": [3], "f": [4]}
    assert made["a"] is made["b"]


class Settings:
    """A class that no reader should have to know."""

    def __init__(self) -> None:
        self.width, self.inner = 3, {"lr": 0.1}


class Words(dict):
    """A dict with a name."""


def test_objects_keep_their_name_and_plain_state() -> None:
    made, reader = followed(pickle.dumps([Settings(), argparse.Namespace(tp=2), Words(a=1), datetime.date(2026, 1, 2)]))
    assert made[0].name.endswith("Settings") and made[0].state == {"width": 3, "inner": {"lr": 0.1}}
    assert made[1] == Opaque("argparse.Namespace", {"tp": 2})
    assert made[2].name.endswith("Words") and made[2].state == {"a": 1}
    assert "argparse.Namespace" in reader.globals and made[3].name == "datetime.date"


def test_big_bytes_stay_in_the_file(tmp_path: Path) -> None:
    data = os.urandom(5_000_000)
    (tmp_path / "a.pkl").write_bytes(pickle.dumps([data, "after"], 4))
    ws = Workspace([tmp_path])
    state = state_of(ws, ws.files[0])
    assert state.tree == [Opaque("bytes", len(data)), "after"] and state.readable


def test_recursion_is_cut_where_it_closes() -> None:
    inner: list[Any] = [1]
    inner.append(inner)
    assert followed(pickle.dumps(inner))[0] == [1, Opaque("cycle")]


def test_a_pickle_larger_than_a_block_is_read_on() -> None:
    value = {f"key {i}": [i, float(i), "x" * (i % 50)] for i in range(30_000)}
    for protocol in (0, 2, 4):
        assert followed(pickle.dumps(value, protocol))[0] == value


@pytest.mark.parametrize("cut", range(1, 60, 3))
def test_a_cut_pickle_says_so(cut: int) -> None:
    data = pickle.dumps({"step": 5, "loss": [0.5] * 30, "name": "x" * 40})
    with pytest.raises(Damaged, match=r"ends at its byte|more than was put down"):
        followed(data[:-cut])


def test_members_of_known_enumerations_are_no_reason_for_alarm(tmp_path: Path) -> None:
    known = b"\x80\x02cbuiltins\ngetattr\nctransformers.trainer_utils\nIntervalStrategy\nX\x05\x00\x00\x00STEPS\x86R."
    made, reader = followed(known)
    assert made == Opaque("transformers.trainer_utils.IntervalStrategy.STEPS")
    assert verdict(reader.globals) == "safe-to-parse"
    for bad in (
        known.replace(b"STEPS", b"__new"),
        known.replace(b"ctransformers.trainer_utils\nIntervalStrategy", b"cos\npath"),
    ):
        assert verdict(followed(bad)[1].globals) == "dangerous"
