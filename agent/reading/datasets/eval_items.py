"""Results of an evaluation, item by item: lm-evaluation-harness, OpenCompass, and JSON with predictions and answers."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..run.files import Line, RunFile
from ..run.records import tokens
from .dataset_files import Row, Source, matches
from .record_questions import ratio
from .sampling import look

if TYPE_CHECKING:
    from ..run.workspace import Workspace

ITEMS = 20_000  # of one file
SECONDS = 10.0  # of reading, all files together
WHOLE = 32 << 20  # bytes of a JSON file that is read in one piece
HEAD = 64 << 10
_NUMBERED = re.compile(rb'\s*"(\d+)":')

_OUTPUT = ("resps", "prediction", "completion", "response", "generated_text", "generation", "generated", "model_output",
           "output", "output_text", "decoded", "raw_output", "origin_prediction", "model_response", "raw_prediction",
           "answer_text")  # fmt: skip
_EXTRACTED = ("filtered_resps", "extracted", "extracted_answer", "pred", "parsed", "parsed_answer", "predictions",
              "filtered", "predicted", "prediction", "model_answer")  # fmt: skip
_GOLD = ("target", "gold", "reference", "references", "ground_truth", "expected", "correct_answer", "gold_answer",
         "label", "answer", "solution")  # fmt: skip
_CORRECT = ("exact_match", "acc", "correct", "is_correct", "score", "em", "pass", "passed", "acc_norm", "pass@1")
_PROMPT = ("arguments", "prompt", "origin_prompt", "question", "input", "query", "problem", "instruction")
_SIGN = re.compile(
    rb'"(?:filtered_resps|prediction|predictions|pred|extracted(?:_answer)?|generat(?:ed(?:_text)?|ion)|completion|response|model_output'
    rb'|origin_prediction|model_answer|parsed)"\s*:'
)
_GOLDEN = re.compile(
    rb'"(?:target|gold|references?|ground_truth|expected|correct|is_correct|exact_match|correct_answer|answer|score)"\s*:'
)


@dataclass(frozen=True, slots=True)
class Item:
    """One question of an evaluation.

    Attributes:
        row: where it stands.
        output: what the model wrote; empty for multiple choice by likelihood.
        extracted: what was taken from it as the answer; None where nothing is said about it.
        gold: the right answer as text.
        right: whether it was counted as right; None where that is not said.
        scores: log-likelihoods of the choices.
        finish: why the generation ended, where that is said.
        group: task and filter.
    """

    row: Row
    prompt: str
    output: str
    extracted: str | None
    gold: str
    right: bool | None
    scores: tuple[float, ...] = ()
    finish: str = ""
    group: str = ""
    limit: int | None = None
    stops: tuple[str, ...] = ()
    invalid: bool = False


@dataclass(slots=True)
class Results:
    """The items of one file; `unread` says why some are missing."""

    file: RunFile
    items: list[Item] = field(default_factory=list)
    unread: str = ""


def results(ws: Workspace, path: str = "") -> list[Results]:
    """Every file of results in the run, or those named."""
    out = []
    ends = time.monotonic() + SECONDS
    for file in ws.files:
        base = file.name.lower().removesuffix(".gz")
        if file.good or not matches(file.name, path) or not base.endswith((".jsonl", ".json", ".ndjson")):
            continue
        head = ws.read(file, HEAD)
        if not (_SIGN.search(head) and _GOLDEN.search(head)):
            continue
        left = ends - time.monotonic()
        if left <= 0:
            out.append(Results(file, [], "not read: out of time"))
            continue
        rows, unread = _rows(ws, file, base, left)
        items = [item for r in rows if (item := item_of(r))]
        if items and (len(items) >= 0.5 * len(rows)):
            out.append(Results(file, items, unread))
    return out


def _rows(ws: Workspace, file: RunFile, base: str, seconds: float) -> tuple[list[Row], str]:
    if base.endswith(".json"):
        found = _nested(ws, file)
        if found:
            return found, ""
    kind = "json" if base.endswith(".json") else "jsonl"
    looked = look(ws, Source(file, kind), ITEMS, 60 << 20, seconds)
    torn = looked.counts["torn_records"]
    why = f"{len(looked.rows)} of {looked.seen} records were read" if looked.every > 1 or looked.stopped else ""
    return looked.rows, why or (f"{torn} records do not parse" if torn else "")


def _nested(ws: Workspace, file: RunFile) -> list[Row]:
    """Items of an object of objects ("0": {...}), at the top or under `details`."""
    if file.size > WHOLE:
        return []
    try:
        tree = json.loads(ws.text(file, WHOLE))
    except (ValueError, RecursionError):
        return []
    if isinstance(tree, dict) and isinstance(tree.get("details"), dict):
        tree = tree["details"]
    numbered = [(k, v) for k, v in tree.items() if isinstance(v, dict)] if isinstance(tree, dict) else []
    if len(numbered) < 2 or not all(k.isdigit() for k, _ in numbered):
        return []
    places: dict[bytes, Line] = {}
    for line in ws.lines(file):
        if (m := _NUMBERED.match(line.data)) is not None:
            places.setdefault(m[1], line)
    at, out = next(ws.lines(file), Line(1, 0, b"")), []
    for n, (key, fields) in enumerate(numbered[:ITEMS]):
        at = places.get(key.encode(), at)
        out.append(Row(at, fields, file, n))
    return out


def item_of(row: Row) -> Item | None:
    """A record as an item; None where it has neither output nor answer."""
    fields = row.fields
    output, scores = _output(fields)
    extracted, invalid = _extracted(fields)
    gold = _first(fields, _GOLD)
    right = _right(fields)
    if not (output is not None or scores or extracted is not None):
        return None
    if gold is None and extracted is None:
        return None  # a score alone is a reward or a rating
    if right is None and (gold is None or not any(n in fields for n in _EXTRACTED)):
        return None  # a sample to train on may have a response and an answer too
    choices = fields.get("doc", {}).get("choices") if isinstance(fields.get("doc"), dict) else None
    names = [f for f in ("task", "task_name", "subject", "filter") if isinstance(fields.get(f), str)]
    limit, stops = _generation(fields)
    said = _text(gold)
    if scores and isinstance(choices, list) and isinstance(gold, int) and gold < len(choices):
        said = str(gold)
    return Item(
        row,
        _text(_first(fields, _PROMPT))[-4000:],
        output or "",
        extracted,
        said,
        right,
        scores,
        str(fields.get("finish_reason") or fields.get("stop_reason") or ""),
        "/".join(str(fields[n]) for n in names),
        limit,
        stops,
        invalid,
    )


def _output(fields: dict[str, Any]) -> tuple[str | None, tuple[float, ...]]:
    value = _first(fields, _OUTPUT)
    flat = list(_flat(value))
    if fields.get("resps") is not None and flat and all(_pair(v) for v in value or []):
        return None, tuple(s for v in value if (s := _number(v)) is not None)
    return (_text(value) if value is not None else None), ()


def _pair(value: Any) -> bool:
    """One choice with its log-likelihood, as the harness writes it: [["-3.2", "False"]]."""
    flat = list(_flat(value))
    return len(flat) == 2 and str(flat[1]) in ("True", "False") and _number(value) is not None


def _number(value: Any) -> float | None:
    flat = list(_flat(value))
    try:
        return float(flat[0]) if flat else None
    except (TypeError, ValueError):
        return None


def _extracted(fields: dict[str, Any]) -> tuple[str | None, bool]:
    """What was taken as the answer, and whether it is a mark for "nothing found"."""
    output = next((n for n in _OUTPUT if n in fields), "")
    for name in _EXTRACTED:
        if name in fields and name != output:
            value = fields[name]
            if isinstance(value, list) and value and isinstance(value[0], list):
                return None, False
            text = _text(value).strip()
            return text, value is None or text.lower() in ("", "[invalid]", "invalid", "none", "null", "n/a", "[]")
    return None, False


def _right(fields: dict[str, Any]) -> bool | None:
    for name in _CORRECT:
        value = fields.get(name)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            return value >= 0.5 if value <= 1 else None
    return None


def _generation(fields: dict[str, Any]) -> tuple[int | None, tuple[str, ...]]:
    """Limit and stop strings that the record itself names."""
    found = [v for v in _dicts(fields.get("arguments"), 0) if "until" in v or "max_gen_toks" in v]
    given = found[0] if found else fields
    limit = next(
        (v for n in ("max_gen_toks", "max_new_tokens", "max_tokens") if isinstance(v := given.get(n), int)), None
    )
    until = given.get("until") or given.get("stop") or []
    listed = [until] if isinstance(until, str) else until if isinstance(until, list) else []
    return limit, tuple(str(s) for s in listed[:20])


def _dicts(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    if depth > 5:
        return
    if isinstance(value, dict):
        yield value
    for part in list(value.values() if isinstance(value, dict) else value if isinstance(value, list) else [])[:50]:
        yield from _dicts(part, depth + 1)


def _first(fields: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((fields[n] for n in names if fields.get(n) is not None), None)


def _flat(value: Any, depth: int = 0) -> Iterator[Any]:
    if isinstance(value, list) and depth < 5:
        for part in value[:200]:
            yield from _flat(part, depth + 1)
    elif value is not None:
        yield value


def _text(value: Any) -> str:
    """The first text inside; of messages the last one."""
    if isinstance(value, dict):
        inner = [v for v in value.values() if isinstance(v, str)]
        return max(inner, key=len) if inner else next((_text(v) for v in value.values() if v), "")
    if isinstance(value, list):
        if value and all(isinstance(v, dict) for v in value):
            return "\n".join(str(v.get("content", v.get("prompt", ""))) for v in value)
        return _text(value[0]) if value else ""
    return "" if value is None else str(value)


# ----------
# Why items of an evaluation were counted as wrong: one rule each, from what stands in the record itself.

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
