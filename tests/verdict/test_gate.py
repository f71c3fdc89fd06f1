"""The claim gate: what a sentence may say."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.report import Sentence
from traindoctor.agent.core.types import Evidence
from traindoctor.agent.verdict.gate import faults
from traindoctor.agent.verdict.salience import sentence

NAN = Evidence(
    key="loss.first_nan_step",
    value=4012,
    file="logs/rank3.log",
    line=812,
    id="E1",
    rank=3,
    text="{'loss': nan, 'grad_norm': 31.2571, 'epoch': 0.4}",
)
ASKED = Evidence(key="question.text", value="my loss went NaN at step 4k", kind="asked", id="E2")
ALL = {"E1": NAN, "E2": ASKED}


@pytest.mark.parametrize(
    "text",
    ["The loss is nan from step 4012 on.", "logs/rank3.log:812 shows it.", "grad_norm reached 31.3 before.",
     "The line reads \u201c'grad_norm': 31.2571\u201d.", "rank 3 saw it first."],
)  # fmt: skip
def test_what_the_evidence_shows_may_be_said(text):
    assert faults(Sentence(text=text, cites=["E1"]), ALL) == []


@pytest.mark.parametrize(
    "text",
    ["The loss is nan from step 4013 on.", "logs/rank4.log shows it.", "learning_rate was too high.",
     "It says \u201cout of memory\u201d.", "The grad norm was 31.9.", "See `torch.nan_to_num`."],
)  # fmt: skip
def test_what_it_does_not_show_may_not(text):
    assert faults(Sentence(text=text, cites=["E1"]), ALL)


def test_citations_must_exist_and_the_question_cannot_be_cited():
    assert faults(Sentence(text="It broke.", cites=["E9"]), ALL)
    assert faults(Sentence(text="It broke.", cites=["E2"]), ALL)


def test_vocabulary_needs_no_evidence():
    said = Sentence(text="loss.fp16_overflow: FP16 range exceeded", cites=["E1"])
    assert faults(said, ALL)
    assert faults(said, ALL, ["loss.fp16_overflow", "FP16 range exceeded"]) == []


@given(text=st.text(max_size=300), value=st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans(), st.text()))
@settings(max_examples=500)
@example(text="", value=1.00001)
@example(text="", value=1234.5)
@example(text="", value=999.96)
def test_our_own_sentences_pass_by_construction(text, value):
    e = Evidence(key="loss.spike_step", value=value, file="a.log", line=3, id="E1", text=text)
    reasons = faults(sentence(e), {"E1": e})
    assert not [r for r in reasons if r.startswith("says")] or any(c in text for c in '\u201c\u201d"`')


SEEN = Evidence(
    key="log.line", file="train.log", line=7, id="E1",
    text="Tried to allocate 25GB of 80GB on gpu12, host n12, loss 0.5, total 1271 MB, 1,271,000 tokens at 10:11:12 on"
    " 2024-05-01 using /data/abc/x.bin, ranks 0-7 said \"ok\" and don't answer, torch 2.0.1, took 2.5s",
)  # fmt: skip


def refused(text: str, evidence: Evidence = SEEN) -> list[str]:
    return faults(Sentence(text=text, cites=["E1"]), {"E1": evidence})


@pytest.mark.parametrize(
    "text",
    ["used 25GB on gpu12", "host n12 of ranks 0-7", "ranks 0\u20137 said \"ok\"", "ended at 10:11:12 on 2024-05-01", "at 10:11",
     "50% of it", "1,271 MB", "1271000 tokens", "1,271,000 tokens", "x.bin in /data/abc", "rank 7's loss isn't 'total 1271'",
     "\u2018total 1271\u2019 and \u00abhost n12\u00bb", "``total 1271``", "'said \"ok\" and don't answer'", "the ranks' words", "one of two",
     "torch 2.0.1", "(gpu12, n12)", "gpu12,n12", "loss 5e-1", "loss .5", "E1 shows 25GB", "\u4e00\u4e2a"],
)  # fmt: skip
def test_true_words_in_many_forms_pass(text: str) -> None:
    assert refused(text) == []


@pytest.mark.parametrize(
    "text",
    ["used 5GB", "of 0GB", "took 5s", "on gpu1", "host n1", "wrote /data/ab", "see ata/abc", "\"25GB of 80GB on gpu1\"",
     "\"5GB of 80GB\"", "\"total 127\"", "\"torch 2\"", "ranks 5-9 died", "ranks 0\u20139", "at 03:15:59", "at 11:12", "on 2031-12-24",
     "99:1", ".99", "loss .05", "99%", "9%", "\u2464 ranks", "10\u00b2 ranks", "\u0661\u0662 ranks", "\uff19", "1e400", "1e4000",
     "9" * 400, "9\u200b9", "'all is well'", "\u2018all is well\u2019", "\u00aball is well\u00bb", "\u201ball is well\u201d", "\u201call is well\"",
     "\u201eall is well\u201c", "\u00bball is well\u00ab", "\"all is well", "\u201call is well", "all is well\u201d", "``all is well``",
     "''all is well''", "\"\"all is well\"\"", "\"ok\" and \"all is well\"", "\"o \"all is well\" o\"", "\" \"all is well\" \"",
     "As E77777 shows", "exit code E500", "E1 and E2", "torch 2.0.2", "8 ranks", "\"rank None step None attempt None\"",
     "\"took 2.5s True\"", "1,272 MB", "12,71 MB", "loss 0.5,0.6", "loss 1e-400"],
)  # fmt: skip
def test_false_words_in_many_forms_do_not(text: str) -> None:
    assert refused(text)


def test_large_and_small_numbers_are_told_apart() -> None:
    seen = Evidence(
        key="log.line", id="E1", file="a.csv", line=2, text="15000,271.3,0.194 lr 6e-06 seed 4000000001 " + "9" * 400
    )
    assert refused("15000, 271.3 and 0.194; lr 6e-6; seed 4,000,000,001; " + "9" * 400, seen) == []
    for said in ("lr 1e-5", "lr 5e-06", "seed 4000000003", "9" * 399 + "8", "1e401", "0e300"):
        assert refused(said, seen), said


def test_a_quoted_line_may_hold_marks_of_its_own() -> None:
    for text in (
        "he said \u201cx\u201d and \u201d once",
        'a "b c',
        "it's 'so",
        "`x",
        "\u201c\u201d\u201d",
        "x\u201d",
        "\u00ab a \u201c",
    ):
        e = Evidence(key="log.line", file='odd"name.log', line=3, id="E1", text=text)
        assert faults(sentence(e), {"E1": e}) == [], text
    told = Evidence(key="stack.group", value='3 ranks stand in "x, 5 in y', id="E1", tool="read_stacks")
    assert faults(sentence(told), {"E1": told}) == []


def test_vocabulary_is_no_quotation_of_the_run() -> None:
    known = ["loss.fp16_overflow", "CUDA out of memory", "look"]
    assert faults(Sentence(text='It says "CUDA out of memory".', cites=["E1"]), ALL, known)
    assert faults(Sentence(text="Not `loss.fp16_overflow`: CUDA out of memory.", cites=["E1"]), ALL, known) == []
    assert faults(Sentence(text="See over_look_99.", cites=["E1"]), ALL, ["look_99"]), "names are taken whole"


WORDS = st.text("abcdefgh", min_size=2, max_size=6)
DIGITS = st.text("123456789", min_size=2, max_size=5)
THINGS = st.one_of(
    DIGITS,
    st.builds("{}.{}".format, DIGITS, DIGITS),
    st.builds("{}{}".format, WORDS, DIGITS),
    st.builds("{}{}".format, DIGITS, WORDS),
    st.builds("/{}/{}.log".format, WORDS, WORDS),
    st.builds("{}_{}".format, WORDS, WORDS),
    st.builds("{}-{}".format, DIGITS, DIGITS),
    st.builds("10:{0}:{0}".format, st.integers(10, 59)),
    st.builds("{}%".format, DIGITS),
    st.builds("'{} {}'".format, WORDS, WORDS),
    st.builds('"{} {}"'.format, WORDS, WORDS),
)


@given(tokens=st.lists(st.one_of(THINGS, WORDS), min_size=1, max_size=12), data=st.data())
@settings(max_examples=300)
def test_a_sentence_of_the_evidence_s_own_tokens_passes(tokens: list[str], data: st.DataObject) -> None:
    seen = Evidence(key="log.line", id="E1", file="a.log", line=3, text=" ".join(tokens))
    assert refused("It was " + " and ".join(data.draw(st.permutations(tokens))) + ".", seen) == []


@given(text=st.text(max_size=80), data=st.data())
@settings(max_examples=300)
def test_words_of_any_text_pass_where_they_hold_no_marks(text: str, data: st.DataObject) -> None:
    words = [
        w for w in text.split() if not re.search("[\"`'\u2018-\u201f\u00ab\u00bb\u2039\u203a\u300c\u300e\uff02]", w)
    ]
    seen = Evidence(key="log.line", id="E1", file="a.log", line=3, text=text)
    assert refused(" ".join(data.draw(st.permutations(words))), seen) == []


@given(tokens=st.lists(THINGS, min_size=1, max_size=8), data=st.data())
@settings(max_examples=300)
def test_a_token_changed_so_that_it_stands_nowhere_does_not_pass(tokens: list[str], data: st.DataObject) -> None:
    chosen = data.draw(st.sampled_from(tokens))
    # letters and digits in every place become ones that no token is made of
    at = data.draw(st.sampled_from([i for i, c in enumerate(chosen) if c.isalnum()]))
    kind = "z" if chosen[at].isalpha() else "0" if ":" not in chosen else "7"
    changed = chosen[:at] + kind + chosen[at + 1 :]
    text = " ".join(tokens)
    numbers = {float(n) for n in re.findall(r"\d+(?:\.\d+)?", text)}
    parts = [float(n) for n in re.findall(r"\d+(?:\.\d+)?", changed)]
    if changed.strip("'\"") in text or (parts and all(any(abs(n - p) < 0.06 for n in numbers) for p in parts)):
        return
    assert refused(f"It was {changed} there.", Evidence(key="log.line", id="E1", text=text)), changed


@given(st.text("\u201c\u201d\"'`\u00ab\u00bbab 19.,%", max_size=60), st.text("\u201c\u201d\"'`ab 19.,", max_size=60))
def test_no_text_makes_the_gate_fail(text: str, shown: str) -> None:
    refused(text, Evidence(key="log.line", id="E1", text=shown))


def test_a_flood_of_marks_is_judged_soon() -> None:
    seen = Evidence(key="log.line", id="E1", text="x" * 4000)
    for text in ('"x ' * 20_000, "\u201cx" * 20_000, "x, " * 20_000, "1," * 20_000):
        refused(text, seen)
