SOURCE = " abcdefghijklmnopqrstuvwxyz"
TARGET = "0123456789"
PAD, BOS, EOS = 0, 1, 2


def source(text):
    return [SOURCE.index(c) + 3 for c in text] + [EOS]


def target(text):
    return [TARGET.index(c) + 3 for c in text] + [EOS]


def digits(ids):
    out = ""
    for i in ids:
        if i == EOS:
            break
        out += TARGET[i - 3] if i >= 3 else "?"
    return out
