"""Sentences as a map-style dataset of token ids."""


class TextRows:
    def __init__(self, words, texts, labels=None):
        self.words, self.texts, self.labels = words, texts, labels

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        row = dict(self.words(self.texts[i], return_token_type_ids=False))
        return row if self.labels is None else {**row, "labels": self.labels[i]}
