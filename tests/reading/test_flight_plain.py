"""Pickles of plain values: whatever the bytes are, nothing is executed and only our own error comes out."""

from __future__ import annotations

import pickle
import pickletools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.errors import ParseError
from traindoctor.agent.reading.run.files import RunFile
from traindoctor.agent.reading.run.plain_pickle import plain
from traindoctor.agent.reading.stacks.flight_dump import parse

HEAD = b"\x80\x02}(X\x07\0\0\0versionX\x04\0\0\x002.10X\x07\0\0\0entries"
CODES = [ord(o.code) for o in pickletools.opcodes]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=20,
)  # fmt: skip


@given(VALUES, st.sampled_from([2, 3, 4, 5]))
@settings(max_examples=200, deadline=None)
def test_plain_values_come_back(value: object, protocol: int) -> None:
    assert plain(pickle.dumps(value, protocol=protocol)) == value


@given(st.lists(st.sampled_from(CODES) | st.integers(0, 255), max_size=60))
@settings(max_examples=600, deadline=None)
def test_any_operations(codes: list[int]) -> None:
    for data in (b"\x80\x02" + bytes(codes) + b".", HEAD + bytes(codes) + b"u."):
        try:
            plain(data)
            parse(RunFile("dump", Path("dump"), "trace", len(data)), data)
        except ParseError as e:
            assert "\n" not in str(e)


@pytest.mark.parametrize("op", [o for o in pickletools.opcodes if o.name in (
    "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "PERSID", "BINPERSID", "EXT1", "EXT2",
    "EXT4", "BYTEARRAY8", "NEXT_BUFFER", "DUP", "POP_MARK", "LONG4", "BINBYTES8", "BINUNICODE8", "UNICODE", "INT", "STRING",
)], ids=lambda o: o.name)  # fmt: skip
def test_operations_that_no_dump_has_are_refused_before_loading(op: pickletools.OpcodeInfo) -> None:
    with pytest.raises(ParseError):
        plain(HEAD + op.code.encode("latin-1") + b"os\nsystem\n" + b"\0" * 16 + b"u.")


@given(VALUES)
@settings(max_examples=200, deadline=None)
def test_any_value_in_the_place_of_a_dump(value: object) -> None:
    whole = {"version": value, "pg_config": value, "pg_status": value, "entries": [{"process_group": value, "state": value}]}
    for content in (value, whole, {"pg_config": {}, "entries": value}):
        data = pickle.dumps(content, protocol=2)
        try:
            parse(RunFile("dump", Path("dump"), "trace", len(data)), data)
        except ParseError as e:
            assert "\n" not in str(e)
