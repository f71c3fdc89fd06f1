"""Why items of an evaluation were counted as wrong: one rule each, from what stands in the record itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ..records import tokens
from .questions import ratio
from .results import Item

REPEATED = 0.12  # bytes of a packed text, as a share of its own, below which it repeats itself
SHORT = 400  # characters from which that is judged

_ENDED = re.compile(r"""[.!?:;)\]}"'`*>|\u3002\uff01\uff1f$]\s*$|\d%?\s*$|^\s*$|^\s*\(?[A-J]\)?\s*$""")
_MARKUP = re.compile(
    r"<\|(?:im_start|im_end|eot_id|start_header_id|end_header_id|endoftext|user|assistant)\|>|\[/?INST\]|<(?:start|end)_of_turn>"
    r"|</s>|<<SYS>>"
)
_REFUSAL = re.compile(
    r"(?i)^\W*(?:i(?:'| a)m (?:sorry|unable)|sorry,|i can(?:no|')t (?:help|assist|answer|provide)|as an ai\b)"
)
_NEXT = re.compile(
    r"(?m)\n\s*(?:Question|Q|Problem|Example|Exercise|Instruction|### Instruction|Human|User)\s*\d*\s*[:.]\s"
)
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def reasons(item: Item) -> Iterator[str]:
    """Everything that may explain why a wrong item is wrong; nothing where the answer seems just wrong."""
    text = item.output
    if not item.scores and not text.strip():
        yield "empty_output"
        return
    if _cut(item):
        yield "truncated"
    elif _mid_sentence(item):
        yield "stopped_early"
    if "<think>" in text and "</think>" not in text:
        yield "reasoning_unclosed"
    if len(text) >= SHORT and ratio(text) < REPEATED:
        yield "repetition"
    if _REFUSAL.search(text[:200]):
        yield "refusal"
    if _MARKUP.search(text):
        yield "markup_leaked"
    if (m := _NEXT.search(text)) and m.start() > 0:
        yield "stop_missing"
    yield from _answers(item)


def is_right(item: Item) -> bool | None:
    """Whether an item was counted as right; where nobody says, whether what was extracted is the answer."""
    if item.right is not None or item.extracted is None or not (gold := answer_of(item.gold)):
        return item.right
    return not item.invalid and same(item.extracted, gold)


def _cut(item: Item) -> bool:
    """Ended by the limit of tokens: said so, or as long as the limit."""
    if item.finish:
        return item.finish in ("length", "max_tokens", "max_new_tokens")
    return bool(item.limit and tokens(item.output) >= 0.95 * item.limit and not _ENDED.search(item.output[-40:]))


def _mid_sentence(item: Item) -> bool:
    """Ended by a stop string in the middle of a sentence."""
    if item.finish and item.finish not in ("stop", "stop_sequence", "eos", "eos_token", "end_turn"):
        return False
    known = bool(item.finish or item.stops)
    return known and len(item.output.split()) >= 4 and not _ENDED.search(item.output[-40:])


def _answers(item: Item) -> Iterator[str]:
    """The right answer is there, and was not taken, or taken in another form."""
    gold = answer_of(item.gold)
    if not gold:
        return
    if item.extracted is not None and not item.invalid and same(item.extracted, gold):
        yield "format_differs"
        return
    if not _holds(item.output, gold):
        return
    if item.invalid or item.extracted is None:
        yield "not_extracted"
    elif _final(item.output, gold):
        yield "extracted_wrong"


def answer_of(gold: str) -> str:
    """The answer itself: what follows the last `####` or `answer is`, without markup."""
    text = gold.rsplit("####", 1)[-1]
    if m := re.search(r"\\boxed\{([^{}]*)\}", text):
        text = m[1]
    return text.strip()[:200]


def normal(text: str) -> str:
    """Without what does not change an answer: case, signs of money, commas in numbers, brackets, a final full stop."""
    text = text.strip().lower()
    if m := re.search(r"\\boxed\{([^{}]*)\}", text):
        text = m[1]
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    text = re.sub(r"^(?:the )?(?:final )?answer(?: is)?:?\s*", "", text)
    text = re.sub(r"\\text\{([^{}]*)\}|[$%*`\"']|\\[()\[\]!]", lambda m: m[1] or "", text).strip(" .()[]:\n")
    return re.sub(r"\.0+$", "", re.sub(r"\s+", " ", text))


def same(given: str, gold: str) -> bool:
    """Equal but for their form."""
    left, right = normal(given), normal(gold)
    if not left or not right:
        return False
    if left == right:
        return True
    if re.fullmatch(r"[a-j]", right):
        return bool(re.match(rf"{right}[).:,\s]", left + " "))
    if _NUMBER.fullmatch(right):
        found = _NUMBER.findall(left)
        return len(found) == 1 and found[0].replace(",", "") == right
    return False


def _holds(text: str, gold: str) -> bool:
    gold = normal(gold)
    if not gold or (len(gold) == 1 and gold.isalpha()):
        return bool(gold) and bool(re.search(rf"(?i)answer(?: is)?:?\s*\**\(?{re.escape(gold)}\b", text))
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", text).lower()
    return bool(re.search(rf"(?<![\w.]){re.escape(gold)}(?!\w|\.\d)", plain))


def _final(text: str, gold: str) -> bool:
    """The right answer is what the text comes to: it stands in its last sentence or behind `answer`."""
    tail = text.strip()[-160:]
    return _holds(tail, gold) and bool(re.search(r"(?i)answer|####|boxed|therefore|thus|so\b|=", tail))


def together(items: Sequence[Item]) -> Iterator[tuple[str, Any, Item]]:
    """What shows only over all items: a score at chance, the same answer always."""
    judged = [i for i in items if i.right is not None]
    wide = [len(i.scores) for i in items if len(i.scores) > 1]
    if judged and wide and len(set(wide)) == 1 and len(judged) >= 40:
        chance, share = 1 / wide[0], sum(bool(i.right) for i in judged) / len(judged)
        if abs(share - chance) <= 2 * (chance * (1 - chance) / len(judged)) ** 0.5:
            yield "at_chance", round(share, 4), judged[0]
    given = [(g, i) for i in items if (g := _given(i))]
    if len(given) >= 20:
        most, count = Counter(g for g, _ in given).most_common(1)[0]
        golds = Counter(normal(i.gold) for _, i in given)
        if count >= 0.8 * len(given) and golds.most_common(1)[0][1] < 0.6 * len(given):
            yield "one_answer", f"{most[:60]!r} in {count} of {len(given)}", next(i for g, i in given if g == most)


def _given(item: Item) -> str:
    if item.scores:
        return str(max(range(len(item.scores)), key=lambda n: item.scores[n]))
    return "" if item.invalid or item.extracted is None else normal(item.extracted)[:80]
