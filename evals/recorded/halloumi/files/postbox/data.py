"""Messages from a .jsonl file as rows of word numbers."""

import json
import logging
import re
import unicodedata

import torch
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger(__name__)
WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|\d+|[?!]")


def clean(text):
    """Lower case, no accents, no control characters."""
    text = unicodedata.normalize("NFKD", text)
    return "".join(c for c in text if not unicodedata.combining(c) and (c == " " or c.isprintable())).lower()


def words(text):
    return WORD.findall(clean(text))


def read(path):
    """All records of a file, as dictionaries."""
    with open(path, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f if line.strip()]
    for row in rows:
        row["length"] = len(words(row["body"]))
    return [r for r in rows if r["length"] > 2]


class Vocabulary:
    """Words to numbers; 0 is padding, 1 is unknown."""

    def __init__(self, texts, min_count):
        counts = {}
        for text in texts:
            for w in words(text):
                counts[w] = counts.get(w, 0) + 1
        self.index = {w: n + 2 for n, w in enumerate(sorted(w for w, c in counts.items() if c >= min_count))}

    def __len__(self):
        return len(self.index) + 2

    def encode(self, text, length):
        ids = [self.index.get(w, 1) for w in words(text)][:length]
        return ids + [0] * (length - len(ids))


class MailSet(Dataset):
    """One message an item. Without a cache a message is read from the file when it is asked for."""

    def __init__(self, path, cfg, vocabulary=None):
        self.path, self.cfg = path, cfg
        rows = read(path)
        self.count = len(rows)
        self.vocabulary = vocabulary or Vocabulary([r[cfg.text] for r in rows], cfg.min_count)
        self.topics = {name: n for n, name in enumerate(sorted({r[cfg.label] for r in rows}))}
        self.cache = [self._item(r) for r in rows] if cfg.loader.cache else None
        log.info("%s: %d messages, %d words, topics %s, cache=%s", path, self.count, len(self.vocabulary),
                 " ".join(self.topics), cfg.loader.cache)

    def _item(self, row):
        ids = self.vocabulary.encode(row[self.cfg.text], self.cfg.max_words)
        return torch.tensor(ids), torch.tensor(self.topics[row[self.cfg.label]])

    def __len__(self):
        return self.count

    def __getitem__(self, n):
        if self.cache is not None:
            return self.cache[n]
        return self._item(read(self.path)[n])


def loaders(cfg):
    """Loaders of the training and the validation messages, and the vocabulary."""
    train = MailSet(cfg.train, cfg)
    val = MailSet(cfg.val, cfg, train.vocabulary)
    c = cfg.loader
    return (DataLoader(train, c.batch_size, shuffle=c.shuffle, num_workers=c.workers),
            DataLoader(val, 4 * c.batch_size, num_workers=c.workers), train)
