from postbox import data


def test_words():
    assert data.words("Résumé the order, PLEASE!") == ["resume", "the", "order", "please", "!"]


def test_unknown_words_are_one():
    v = data.Vocabulary(["a b c"], 1)
    assert v.encode("a z", 3) == [2, 1, 0]
