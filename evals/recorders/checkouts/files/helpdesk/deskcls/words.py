import re

PAD, CLS, SEP, MASK, UNK = range(5)
MARKS = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"]


class Words:
    def __init__(self, path):
        self.all = MARKS + [w.strip() for w in open(path, encoding="utf-8") if w.strip()]
        self.number = {w: i for i, w in enumerate(self.all)}

    def __len__(self):
        return len(self.all)

    def __call__(self, text, most):
        said = [self.number.get(w, UNK) for w in re.findall(r"[a-z']+|[?.!]", text.lower())][: most - 2]
        return [CLS, *said, SEP]
