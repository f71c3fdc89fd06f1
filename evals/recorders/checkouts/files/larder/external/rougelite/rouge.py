"""ROUGE-L of two word lists (external, MIT, not changed)."""


def lcs(a, b):
    row = [0] * (len(b) + 1)
    for x in a:
        last = 0
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], last + 1 if x == y else max(row[j], row[j - 1])
    return row[-1]


def rouge_l(said, meant, beta=1.2):
    n = lcs(said, meant)
    if n == 0:
        return 0.0
    p, r = n / len(said), n / len(meant)
    return (1 + beta**2) * p * r / (r + beta**2 * p)
