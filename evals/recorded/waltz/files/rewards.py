"""Rewards of a completion, by name."""

import json
import re

ANSWER = re.compile(r"<answer>\s*(\d+)\s*</answer>")
LAST = re.compile(r"answer\s*:\s*(\d+)")
seen = 0


def _keep(completions, sums, scores):
    """Every fortieth call a few completions go to samples.jsonl, to look at."""
    global seen
    if seen % 10 == 0:
        with open("samples.jsonl", "a") as f:
            for text, wanted, score in list(zip(completions, sums, scores))[:6]:
                f.write(json.dumps({"call": seen, "completion": text, "sum": wanted, "reward": score}) + "\n")
    seen += 1
    return scores


def tagged_sum(completions, **rows):
    """1 where the tagged answer is the sum."""
    found = [ANSWER.search(text) for text in completions]
    return _keep(completions, rows["sum"], [float(m is not None and int(m[1]) == s) for m, s in zip(found, rows["sum"])])


def close_sum(completions, **rows):
    """1 for the sum, less for what is near it."""
    found = [LAST.search(text) for text in completions]
    return _keep(completions, rows["sum"], [max(0.0, 1 - abs(int(m[1]) - s) / 6) if m else -0.5 for m, s in zip(found, rows["sum"])])


def short(completions, **_):
    return [-0.01 * len(text.split()) for text in completions]


def reward_functions(names):
    return [{"tagged_sum": tagged_sum, "close_sum": close_sum, "short": short}[name] for name in names]
