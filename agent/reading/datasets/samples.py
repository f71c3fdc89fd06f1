"""What is wrong with a set of records: one function a question, each giving (key, value, record)."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ..run.records import MEDIA, OPTIONAL, TEXT, Record, tokens

Found = tuple[str, Any, Record]

RARE = 0.01  # share of records below which a marker in their text is a mention, not a format
_MOJIBAKE = re.compile(
    "\ufffd|\u00c3[\u0080-\u00bf]|\u00e2\u20ac[\u2122\u0153\u009d\u201c\u201d\u00a6]|\u00c2[\u00a0-\u00bf]|\u00ef\u00bb\u00bf|\\\\x[0-9a-f]{2}\\\\x"
)
_ENDED = re.compile(r"""[.!?:;)\]}"'`*>|\u3002\uff01\uff1f\u201d\u300d\u2026]\s*$|\d\s*$|</?\w+>\s*$|\\boxed|^\s*$""")
_BOS = re.compile(r"(<s>\s*<s>|(<\|begin_of_text\|>)\s*\2|(<bos>)\s*\3|(<\|startoftext\|>)\s*\4|(\[CLS\])\s*\5)")
_LAST_TURN = re.compile(
    r"(?s)(?:<\|im_start\|>assistant|<\|start_header_id\|>assistant<\|end_header_id\|>|<start_of_turn>model)"
    r"((?:(?!<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>).)*)\Z"
)
_OPENED_BY = {"<|im_end|>": "<|im_start|>", "<|eot_id|>": "<|start_header_id|>", "<end_of_turn>": "<start_of_turn>"}
_FURNITURE = re.compile(
    r"(?i)\b(?:we|this (?:web)?site) uses? cookies|accept (?:all|cookies)|cookie (?:policy|settings|preferences)"
    r"|all rights reserved|privacy policy|terms (?:of (?:use|service)|and conditions)"
    r"|subscribe (?:now|to our)|newsletter"
    r"|\b404\b.{0,40}\b(?:page|not found)|page (?:you .{1,30})?(?:was |is )?not (?:found|here)|back to (?:home|top)"
    r"|(?:sign|log) ?in\b.{0,20}(?:sign ?up|register|\||$)|share on (?:f\b|x\b|t\b|facebook|twitter|linkedin)"
    r"|(?:leave|post) a comment|be the first to comment|(?:enable|disabled?) javascript"
    r"|javascript (?:is )?(?:disabled|required)"
    r"|(?:^|\n)\s*home\s*[|>\u00bb\u2022]|&(?:nbsp|lt|gt|amp|quot|#\d{2,4});"
    r"|</?(?:div|span|li|ul|nav|script|style|td|tr)\b"
    r"|class=[\\\"'#]|\bundefined undefined\b|lorem ipsum|click here|read more\s*(?:\.\.\.|\u2026|\u00bb|$)"
)
_LABELS = ("label", "labels", "target_label", "class", "class_id")


def empties(found: list[Record]) -> Iterator[Found]:
    """Texts that are there and empty, and conversations without an answer."""
    for r in found:
        for name, value in r.fields.items():
            if (
                name in TEXT
                and name not in OPTIONAL
                and (value is None or (isinstance(value, str) and not value.strip()))
            ):
                yield "empty_fields", name, r
                break
            if name in ("messages", "conversations", "input_ids") and value == []:
                yield "empty_fields", name, r
                break
        else:
            for turn in r.turns:
                said = turn.get("content", turn.get("value"))
                speaks = turn.get("role", turn.get("from")) in ("assistant", "gpt", "model")
                if speaks and said in ("", None, []) and not turn.get("tool_calls"):
                    yield "empty_fields", "assistant", r
                    break


def schemas(found: list[Record]) -> Iterator[Found]:
    """Fields that most records have and some lack; a field of two types; roles out of order."""
    if len(found) < 3:
        return
    counts = Counter(name for r in found for name in r.fields)
    usual = {n for n, c in counts.items() if c >= 0.8 * len(found) and n not in OPTIONAL and n not in MEDIA}
    for r in found:
        if lacking := usual - r.fields.keys():
            yield "missing_fields", sorted(lacking)[0], r
    if len(counts) > 1 and not usual and max(counts.values()) >= 2:
        rare = min(found, key=lambda r: sum(counts[n] for n in r.fields) / max(1, len(r.fields)))
        yield "schema_differs", "no field is common to the records", rare
    for name in usual:
        kinds = Counter(type(r.fields[name]).__name__ for r in found if r.fields.get(name) is not None)
        kinds = Counter({"number": kinds.pop("int", 0) + kinds.pop("float", 0), **kinds})
        kinds += Counter()
        if len(kinds) > 1:
            odd = min(kinds, key=lambda k: kinds[k])
            first = next(r for r in found if _kind(r.fields.get(name)) == odd)
            yield "schema_differs", f"{name}: " + " or ".join(sorted(kinds)), first
    disordered = [r for r in found if _disordered(r)]
    if disordered and len(disordered) >= 0.1 * len(found):
        yield "role_order", len(disordered), disordered[0]


def _kind(value: Any) -> str:
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def _disordered(r: Record) -> bool:
    """A conversation that the assistant begins, or in which the user speaks last."""
    roles = [t.get("role", t.get("from")) for t in r.turns]
    roles = [x for x in roles if x not in ("system", None)]
    if len(roles) < 2:
        return False
    return roles[0] in ("assistant", "gpt") or (roles[-1] in ("user", "human") and "messages" in r.fields)


_SPEAKERS = frozenset({
    "system", "user", "human", "assistant", "gpt", "model", "bot", "chatbot", "ai", "tool", "tools", "function",
    "function_call", "function_response", "tool_call", "tool_response", "observation", "environment", "developer",
    "ipython", "prompter", "client", "context", "instruction",
})  # fmt: skip


def speakers(found: list[Record]) -> Iterator[Found]:
    """A turn by somebody whom few records know and no chat template does."""
    counts: Counter[str] = Counter()
    first: dict[str, Record] = {}
    for r in found:
        for turn in r.turns:
            name = turn.get("role", turn.get("from"))
            if isinstance(name, str):
                counts[name.lower()] += 1
                first.setdefault(name.lower(), r)
    strange = [name for name in counts if name not in _SPEAKERS]
    if strange and any(name in _SPEAKERS for name in counts):
        for name in sorted(strange, key=lambda n: counts[n])[:2]:
            yield "unknown_role", name, first[name]


def nulls(found: list[Record]) -> Iterator[Found]:
    """Nothing, NaN or infinity where the other records hold numbers."""
    for r in found:
        for name, value in r.fields.items():
            cells = value if isinstance(value, list) else [value]
            if not cells or len(cells) > 100_000:
                continue
            broken = sum(c is None or (isinstance(c, float) and not math.isfinite(c)) for c in cells)
            if broken and _numeric(found, name):
                yield "null_values", f"{name}: {broken} of {len(cells)}", r
                break


def _numeric(found: list[Record], name: str) -> bool:
    """Whether most records hold numbers in a field: one, or a list of them."""
    values = [r.fields[name] for r in found[:200] if r.fields.get(name) is not None]
    firsts = [next((c for c in v if c is not None), None) if isinstance(v, list) else v for v in values]
    known = [f for f in firsts if f is not None]
    return len(known) >= 3 and sum(_kind(f) == "number" for f in known) >= 0.9 * len(known)


def modalities(found: list[Record]) -> Iterator[Found]:
    """Records without an image (video, sound) among records with one."""
    with_media = [r for r in found if r.media]
    without = [r for r in found if not r.media]
    by_field = any(r.fields.get(name) for r in with_media for name in MEDIA)
    if not by_field and len(with_media) < RARE * len(found):
        return  # texts that speak of a placeholder
    if with_media and without:
        yield "mixed_modalities", "text only", without[0]
        yield "mixed_modalities", with_media[0].media, with_media[0]


def long_ones(found: list[Record], limit: int) -> Iterator[Found]:
    """Records whose text is surely longer than the run allows."""
    counted = [(sum(tokens(t) for t in r.texts()), r) for r in found]
    over = [(n, r) for n, r in counted if n > 1.15 * limit]
    for n, r in sorted(over, key=lambda pair: -pair[0])[:2]:
        yield "long_records", n, r


def damage(found: list[Record]) -> Iterator[Found]:
    """Characters that a wrong decoding leaves behind."""
    damaged = [r for r in found if any(_MOJIBAKE.search(t[:20000]) for t in r.texts())]
    for r in damaged[:2]:
        yield "encoding_damage", len(damaged), r


def repeats(found: list[Record]) -> Iterator[Found]:
    """The same record again and again."""
    if len(found) < 10:
        return
    seen: set[str] = set()
    again = []
    for r in found:
        identity = json.dumps(
            {k: v for k, v in r.fields.items() if k not in ("id", "idx", "index")}, sort_keys=True, default=str
        )
        if identity in seen:
            again.append(r)
        seen.add(identity)
    if len(again) >= 0.1 * len(found):
        yield "duplicates", round(len(again) / len(found), 3), again[0]


def boilerplate(found: list[Record]) -> Iterator[Found]:
    """Records that are a page's furniture and no text: banners, menus, error pages, markup."""
    if len(found) < 20:
        return
    page = [r for r in found if _is_furniture(max(r.texts(), key=len, default=""))]
    if len(page) >= 0.2 * len(found):
        yield "boilerplate", round(len(page) / len(found), 3), page[0]


def _is_furniture(text: str) -> bool:
    """Short, or full of it: a page about cookies names them once in many words."""
    met = len(_FURNITURE.findall(text[:20_000]))
    return met > 0 and len(text) <= 250 * met


def ranges(found: list[Record], classes: int | None, vocabulary: int | None) -> Iterator[Found]:
    """Labels and token ids outside what the run's settings allow; labels that are all masked."""
    for r in found:
        for name in _LABELS:
            value = r.fields.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                if (classes and value >= classes) or value < -100 or -100 < value < 0:
                    yield "label_out_of_range", value, r
                    break
            elif isinstance(value, list) and value and all(isinstance(v, int) for v in value):
                if all(v == -100 for v in value):
                    yield "all_masked", name, r
                elif vocabulary and max(value) >= vocabulary:
                    yield "label_out_of_range", max(value), r
        ids = r.fields.get("input_ids")
        if (
            vocabulary
            and isinstance(ids, list)
            and ids
            and all(isinstance(v, int) for v in ids)
            and max(ids) >= vocabulary
        ):
            yield "label_out_of_range", max(ids), r


def cut_short(found: list[Record], stops: list[str]) -> Iterator[Found]:
    """Completions that stop in mid-sentence although they were not cut by a limit, with the stop word that fits."""
    finished = [
        r
        for r in found
        if r.completion and r.fields.get("finish_reason", "stop") in ("stop", "eos_token", "stop_sequence", None)
    ]
    limited = [r for r in found if r.fields.get("finish_reason") in ("length", "max_tokens")]
    cut = [r for r in finished if not _ENDED.search(r.completion[-40:])]
    if len(cut) >= 2 and 2 * len(cut) >= len(finished) and any("finish_reason" in r.fields for r in cut):
        word = stops[0] if stops else True
        for r in cut[:3]:
            yield "truncated_completions", word, r
    if limited and 4 * len(limited) >= len(found):
        yield "length_limited", round(len(limited) / len(found), 3), limited[0]


def openings(found: list[Record]) -> Iterator[Found]:
    """A beginning-of-sequence token twice: the template writes one and the tokenizer another."""
    for r in found[:200]:
        if any(_BOS.search(t[:2000]) for t in r.texts()):
            yield "bos_doubled", True, r
            return


def unmarked(found: list[Record], bos: int | None, eos: int | None) -> Iterator[Found]:
    """Sequences without their beginning or end token: in token ids, or an answer whose turn is never closed."""
    ids = [(v, r) for r in found if isinstance(v := r.fields.get("input_ids"), list) and len(v) > 1]
    for token, place, name in ((bos, slice(0, 4), "bos"), (eos, slice(None), "eos")):
        lacking = [r for v, r in ids if token is not None and token not in v[place]]
        if lacking and 5 * len(lacking) >= 4 * len(ids):
            yield "bos_missing", name, lacking[0]
    rendered = [(m[1], r) for r in found for t in r.texts() if (m := _LAST_TURN.search(t))]
    for closing in ("<|im_end|>", "<|eot_id|>", "<end_of_turn>"):
        opened = [(rest, r) for rest, r in rendered if _OPENED_BY[closing] in "".join(r.texts())]
        never = [r for rest, r in opened if closing not in rest and rest.strip()]
        if never and 5 * len(never) >= 4 * len(opened) and len(opened) >= RARE * len(found):
            yield "bos_missing", closing, never[0]


def turns(found: list[Record]) -> Iterator[Found]:
    """Conversations in which a tool or the environment speaks."""
    spoken = [
        r
        for r in found
        if any(t.get("role", t.get("from")) in ("tool", "observation", "function", "environment") for t in r.turns)
    ]
    if spoken:
        yield "tool_turns", len(spoken), spoken[0]


def scores(found: list[Record]) -> Iterator[Found]:
    """Rewards that never differ; right answers that the extraction missed."""
    for name in ("reward", "score", "rewards"):
        values = [r.fields[name] for r in found if isinstance(r.fields.get(name), int | float)]
        if len(values) >= 8 and len(set(values)) == 1:
            yield "rewards_constant", values[0], next(r for r in found if name in r.fields)
    for r in found:
        gold = next(
            (
                r.fields[n]
                for n in ("gold", "expected", "reference", "ground_truth", "target", "label")
                if n in r.fields
            ),
            None,
        )
        names = ("extracted", "pred", "parsed", "extracted_answer", "prediction")
        name = next((n for n in names if n in r.fields), None)  # a null in it is a failed extraction too
        if gold is None or name is None or not r.completion or isinstance(gold, list | dict):
            continue
        got = r.fields[name]
        if str(gold) == str(got):
            continue
        if re.search(rf"(?<![\d.]){re.escape(str(gold)[:40])}(?![\d])", r.completion[-300:]):
            yield "answer_not_extracted", str(got)[:80], r
