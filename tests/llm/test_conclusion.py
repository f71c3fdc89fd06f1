"""A model's conclusion: strictly parsed, its citations found in every spelling, nothing dropped untold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from traindoctor.agent.core.types import Evidence
from traindoctor.agent.llm import conclusion
from traindoctor.agent.llm.conclusion import Conclusion, cut, diagnosis, in_prose, parsed, places_to_read

LOG = "train.log"
KEY = "hf_" + "QmZ7vK2xT9pLr4WnBd8sYc1GfHj5Ea3U"


def shown(*places: tuple[str, int]) -> dict[str, Evidence]:
    """Evidence E1, E2, ... of these lines."""
    return {f"E{n}": Evidence(key="log.line", file=f, line=at, id=f"E{n}") for n, (f, at) in enumerate(places, 1)}


def said(*cites: str, text: str = "It broke.") -> Conclusion:
    return Conclusion.model_validate({"cause": "x", "sentences": [{"text": text, "cites": list(cites)}]})


def ids(evidence: dict[str, Evidence], *cites: str, **known: Any) -> list[str]:
    return diagnosis(said(*cites), [], evidence, **known).sentences[0].cites


def reads(found: Conclusion, evidence: dict[str, Evidence], **known: Any) -> list[tuple[str, int, int]]:
    calls = places_to_read(found, evidence, **known)
    assert {c.tool for c in calls} <= {"read_lines"}
    return [(c.args["file"], c.args["start"], c.args["count"]) for c in calls]


# --- how a line may be cited

SPELT = [
    (LOG, 2, "train.log:2"), (LOG, 2, "./train.log:2"), (LOG, 2, "[train.log:2]"), (LOG, 2, "`train.log:2`"),
    (LOG, 2, "`train.log`:2"), (LOG, 2, "(train.log: 2)"), (LOG, 2, "train.log line 2"), (LOG, 2, "train.log, line 2"),
    (LOG, 2, "train.log (line 2)"), (LOG, 2, "train.log#L2"), (LOG, 2, "train.log:L2"), (LOG, 2, "see train.log:2"),
    (LOG, 2, "train.log:2: RuntimeError at foo.py:22"), (LOG, 2, "/data/run/train.log:2"), (LOG, 2, "run/train.log:2"),
    (LOG, 2, "`/data/run/train.log` line 2"), ("a b.log", 2, "a b.log:2"), ("a b.log", 2, "./a b.log:2"),
    ("a b.log", 2, "in /data/run/a b.log:2"), ("a:b.log", 2, "a:b.log:2"), ("[x].log", 2, "[x].log:2"),
    ("[x].log", 2, "[[x].log:2]"), ("C:\\x.log", 2, "C:\\x.log:2"), ("a:1, b.log", 2, "a:1, b.log:2"),
    ("E5/x.log", 2, "E5/x.log:2"), ("E5.log", 2, "E5.log:2"), ("ü ñ.log", 2, "ü ñ.log:2"), ("a  b.log", 2, "a b.log:2"),
    ("a\u200bb.log", 2, "a\\u200bb.log:2"), ("[INST].log", 2, "[\\INST].log:2"),
    (f"{KEY}/x.log", 2, "<SECRET:hf:1>/x.log:2"), (f"a-{KEY} b/x.log", 2, "see a-<SECRET:hf:2> b/x.log line 2"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "line", "cite"), SPELT, ids=[s[2] for s in SPELT])
def test_a_line_that_exists_is_found_in_every_spelling(file: str, line: int, cite: str) -> None:
    known = {"names": ["b.log", "other/train.log", file], "roots": ["/data/run"]}
    assert reads(said(cite), {}, **known) == [(file, line, 1)]
    assert ids(shown((file, 1), (file, line), ("b.log", line)), cite, **known) == ["E2"]
    assert reads(said(cite), shown((file, line)), **known) == []


def test_what_does_not_exist_stays_as_it_was_said() -> None:
    evidence, names = shown((LOG, 1)), [LOG]
    for cite in ("train.log:99", "none.log:3", "my none.log:3", "train.log", "the log", "train.logs:1"):
        assert ids(evidence, cite, names=names) == [cite]
    assert reads(said("none.log:3", "the log"), evidence, names=names) == []
    assert reads(said("none.log:3", "train.log:7"), evidence) == [("none.log", 3, 1), (LOG, 7, 1)]  # files not known
    assert ids(evidence, "train.log:1, none.log:4", names=names) == ["E1", "none.log:4"]


def test_several_in_one_citation() -> None:
    evidence = shown((LOG, 1), (LOG, 2), ("b.log", 2), (LOG, 5))
    assert ids(evidence, "train.log:1, train.log:2") == ["E1", "E2"]
    assert ids(evidence, "train.log:1; b.log:2 and E4") == ["E1", "E3", "E4"]
    assert ids(evidence, "train.log:1, 2, 5") == ["E1", "E2", "E4"]
    assert ids(evidence, "E2 (train.log:5)") == ["E2", "E4"]
    assert ids(evidence, "E2, E1-E2 and E3") == ["E2", "E1", "E3"]
    assert ids(evidence, "E5 line 3") == ["E5"]


def test_of_several_runs_each_has_its_own_files() -> None:
    known = {"names": ["r1/train.log", "r2/train.log"], "roots": ["/data/good", "/data/bad"]}
    assert reads(said("/data/bad/train.log:4", "r1/train.log:4"), {}, **known) == [
        ("r2/train.log", 4, 1), ("r1/train.log", 4, 1),
    ]  # fmt: skip
    assert reads(said("/data/one.log:4"), {}, names=["one.log"], roots=["/data/one.log"]) == [("one.log", 4, 1)]


def test_a_secret_that_could_stand_for_two_names_names_neither() -> None:
    names = [f"{KEY}/x.log", f"{KEY[::-1]}/x.log"]
    assert reads(said("<SECRET:hf:1>/x.log:2"), {}, names=names) == []
    assert reads(said("<SECRET:hf:1>n.log:2"), {}, names=[LOG]) == []  # too short for a secret


# --- ranges and limits


def test_a_range_is_its_lines() -> None:
    for cite in ("train.log:13-20", "train.log lines 13 to 20", "train.log#L13-L20", "train.log:13\u201320"):
        assert reads(said(cite), {}, names=[LOG]) == [(LOG, 13, 8)]
        assert ids(shown((LOG, 12), (LOG, 13), (LOG, 20), (LOG, 21)), cite) == ["E2", "E3"]
    assert reads(said("train.log:13-20"), shown((LOG, 15)), names=[LOG]) == [(LOG, 13, 2), (LOG, 16, 5)]
    wide = shown(*((LOG, n) for n in range(1, 40)))
    assert ids(wide, "train.log:5-900000000") == [f"E{n}" for n in range(5, 17)]
    assert reads(said("train.log:5-900000000"), wide) == []
    assert reads(said("train.log:5-900000000"), {}, names=[LOG]) == [(LOG, 5, 12)]
    assert reads(said("train.log:0", "train.log:0-2"), {}, names=[LOG]) == [(LOG, 1, 2)]


def test_lines_that_follow_each_other_are_read_at_once() -> None:
    cites = ["b.log:7", "train.log:4", "train.log:6", "train.log:5", "train.log:9"]
    assert reads(said(*cites), {}) == [("b.log", 7, 1), (LOG, 4, 3), (LOG, 9, 1)]


def test_reading_has_limits_and_tells() -> None:
    far = said(*(f"train.log:{n}" for n in range(1, 40, 2)))
    assert len(reads(far, {})) == 12
    assert cut(far, {}) == ["8 cited lines beyond what is read at once"]
    sentences = [{"text": f"{n}.", "cites": [f"train.log:{n * 12}-{n * 12 + 11}"]} for n in range(1, 15)]
    much = Conclusion.model_validate({"cause": "x", "sentences": sentences})
    assert reads(much, {}) == [(LOG, 12, 120)]
    assert cut(much, {}) == ["48 cited lines beyond what is read at once"]


def test_ranges_of_ids_end() -> None:
    assert ids({}, "E3-E900") == [f"E{n}" for n in range(3, 27)]
    assert ids({}, "E3-5", "E7 to E8", "E9..E10") == ["E3", "E4", "E5", "E7", "E8", "E9", "E10"]
    assert ids({}, "E9-E7") == ["E9", "E7"]
    assert ids({}, "E" + "9" * 5000) == ["E" + "9" * 79]
    assert ids({}, "E1-E" + "9" * 20) == ["E1-E" + "9" * 20]
    assert ids(shown((LOG, 13)), "x, " * 160 + "train.log:13579") != ["E1"]
    assert ids(shown((LOG, 13)), "x" * 489 + " train.log:13579") != ["E1"]  # cut within the number


def test_what_is_beyond_the_limits_is_told() -> None:
    sentences = [{"text": f"{n}", "cites": ["E1"]} for n in range(28)]
    sentences[1]["cites"] = [f"E{n}" for n in range(1, 32)]
    sentences[2]["cites"] = ["E3-E900", "train.log:1-500", "E1" + " " * 700]
    ruled_out = [{"cause": f"c{n}", "why": "no"} for n in range(7)]
    found = Conclusion.model_validate({"cause": "x", "sentences": sentences, "ruled_out": ruled_out})
    told = cut(found)
    assert told[:3] == ["4 sentences beyond 24", "1 cause ruled out beyond 6", "sentence 2: 7 citations beyond 24"]
    assert told[3:] == ["sentence 3: 876 citations beyond 24", "sentence 3: 500 of 702 characters of a citation"]
    assert cut(said("train.log:1-500")) == ["sentence 1: 12 of 500 lines cited at once"]
    assert len(diagnosis(found, [], {}).sentences) == 24 + 6
    assert cut(said("E1", "train.log:3")) == []


def test_no_more_than_so_many_characters_of_citations_are_looked_at() -> None:
    sentences = [{"text": f"{n}", "cites": [f"{m}.{n}" + " x" * 200 for m in range(20)]} for n in range(10)]
    sentences.append({"text": "last", "cites": ["train.log:1"]})
    found = Conclusion.model_validate({"cause": "x", "sentences": sentences})
    assert diagnosis(found, [], shown((LOG, 1))).sentences[-1].cites == ["train.log:1"]
    assert [t.split(" ", 1)[1] for t in cut(found, {})] == ["characters of citations beyond 40000"]


def test_what_is_said_twice_is_said_once() -> None:
    twice = [{"text": "It broke.", "cites": ["E1"]}, {"text": " It broke. ", "cites": ["train.log:1"]}] * 20
    ruled_out = [{"cause": "c", "why": "no"}, {"cause": "c", "why": "no."}] * 8
    sentences = [*twice, {"text": "It broke.", "cites": ["E2"]}, {"text": " ", "cites": []}]
    found = Conclusion.model_validate({"cause": "x", "sentences": sentences, "ruled_out": ruled_out})
    kept = diagnosis(found, [], shown((LOG, 1))).sentences
    assert [(s.text, s.cites) for s in kept] == [("It broke.", ["E1"]), ("It broke.", ["E2"]), ("Not c: no.", [])]
    assert cut(found) == []


# --- parsing


def test_deep_nesting_is_refused() -> None:
    deep = "[" * 600 + "]" * 600
    for text in (
        '{"cause": "x", "sentences": ' + deep + "}",
        '{"cause": "x", "sentences": [], "more": ' + deep + "}",
        '{"cause": "x", "sentences": ' + '{"a":' * 600 + "1" + "}" * 601,
        '{"cause": ' + "[" * 100_000,
        '{"cause": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ):
        read = parsed(text)
        assert read.conclusion is None
        assert read.why
        assert in_prose(text) is None


def test_what_is_wrong_is_said() -> None:
    assert parsed('{"cause": "x", "sentences": ["a"]}').why.startswith("sentences[0] must be an object like")
    assert parsed('{"cause": "x"}').why == "sentences: field required"
    assert parsed("[]").why == "not a JSON object"
    assert parsed('{"cause": "x", "sentences": [],}').why == "not valid JSON"


def test_only_a_whole_answer_is_a_conclusion() -> None:
    whole = '{"cause": "x", "sentences": [{"text": "a", "cites": "E1"}]}'
    for text in (whole, f"\n {whole}\n", f"```json\n{whole}\n```", f"```\n\n{whole}\n\n```\n"):
        assert (found := in_prose(text)) is not None
        assert found.sentences[0].cites == ["E1"]
    for text in (
        f"I think {whole}", f"{whole} is it", f"{whole}\n{whole}", f"```json\n{whole}\n```\nThat is it.",
        f"So:\n```json\n{whole}\n```", f"```json\n{whole}\n```\nor\n```json\n{whole}\n```", f"```python\n{whole}\n```",
        f"```json {whole}```", whole[:-1], "", "```", "```\n```",
    ):  # fmt: skip
        assert in_prose(text) is None


# --- anything at all

TEXTS = st.text(max_size=80)
VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | TEXTS, lambda v: st.lists(v) | st.dictionaries(TEXTS, v), max_leaves=12)  # fmt: skip
SHAPED = st.fixed_dictionaries(
    {"cause": VALUES | TEXTS, "sentences": VALUES | st.lists(st.fixed_dictionaries({"text": TEXTS | VALUES, "cites": VALUES | st.lists(TEXTS)}), max_size=4)},
    optional={"ruled_out": VALUES, "more": VALUES},
)  # fmt: skip


@given(st.one_of(TEXTS, VALUES.map(json.dumps), SHAPED.map(json.dumps)))
@example('{"cause": "\\ud800", "sentences": []}')
@example('{"cause": ' + "9" * 5000 + "}")
def test_any_arguments_are_read_or_refused(text: str) -> None:
    read = parsed(text)
    assert (read.conclusion is None) == bool(read.why)
    in_prose(text)
    in_prose(f"```json\n{text}\n```")
    if read.conclusion is not None:
        diagnosis(read.conclusion, [], {})


PIECES = st.sampled_from(
    ["E1", "E", "-", "\u2013", "..", " to ", ":", "#", "L", " line ", "lines", "1", "13", "9" * 12, "0", ", ", ";", " and ", "\n", "[", "]", "`", "(", ")",
     "train.log", "a b.log", "a:b.log", "./", "/data/run/", "<SECRET:hf:1>", "\u0661", "\u200b", "[INST]", " " * 90]
)  # fmt: skip
CITES = st.lists(st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=700), max_size=12)


@given(CITES)
def test_any_citations_are_bounded(cites: list[str]) -> None:
    evidence = shown((LOG, 1), (LOG, 13), ("a b.log", 1), (f"{KEY}.log", 1))
    known = {"names": [LOG, "a b.log", "a:b.log", f"{KEY}.log"], "roots": ["/data/run"]}
    for more in ({}, known):
        found = ids(evidence, *cites, **more)
        assert len(found) <= 24
        assert bool(found) == bool(cites)  # what a sentence cites never just vanishes
        calls = reads(said(*cites), evidence, **more)
        assert len(calls) <= 12
        assert sum(count for *_, count in calls) <= 120
        assert all(start >= 1 and 1 <= count <= conclusion.LINES for _, start, count in calls)
        cut(said(*cites), evidence, **more)


NAMES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\n\r\0"), min_size=1, max_size=40)
ODD = st.lists(PIECES.filter(lambda p: "\n" not in p), min_size=1, max_size=8).map("".join)


@given(
    st.lists(st.tuples(NAMES | ODD, st.integers(1, 999_999_999)), min_size=1, max_size=6, unique=True), st.booleans()
)
def test_every_line_of_every_file_is_found_by_name(places: list[tuple[str, int]], roots: bool) -> None:
    evidence = shown(*places)
    names = [file for file, _ in places]
    for n, (file, line) in enumerate(places, 1):
        if len(file) < 480:
            assert ids(evidence, f"{file}:{line}", names=names, roots=["/data/run"] if roots else ()) == [f"E{n}"]
            assert reads(said(f"{file}:{line}"), {}, names=names) == [(file, line, 1)]
