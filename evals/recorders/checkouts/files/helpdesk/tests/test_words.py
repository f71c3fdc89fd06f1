from deskcls.words import CLS, SEP, Words


def test_marks():
    said = Words("data/words.txt")("My bin was not emptied.", 24)
    assert said[0] == CLS and said[-1] == SEP


def test_cut():
    assert len(Words("data/words.txt")("bin " * 100, 24)) == 24
