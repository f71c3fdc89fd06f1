"""shortwords 1.0: strip the endings of English words. Vendored, unchanged, MIT."""


class Stemmer:
    endings = ("ational", "fulness", "iveness", "ization", "ingly", "edly", "ing", "ed", "ly", "es", "s")

    def __init__(self, cache_size=10_000, strict=False):
        self.cache, self.cache_size, self.strict = {}, cache_size, strict

    def stem(self, word):
        if word in self.cache:
            return self.cache[word]
        out = word
        for ending in self.endings:
            if word.endswith(ending) and len(word) > len(ending) + 2:
                out = word[: -len(ending)]
                break
        if len(self.cache) < self.cache_size:
            self.cache[word] = out
        return out
