"""Whether tokenizer, config and embedding belong together, and whether the tokenizers of a run are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...core.types import Evidence, ToolResult, Value
from ...reading.checkpoints.checks.checks_config import embedding_of
from ...reading.checkpoints.layouts import checkpoints
from ...reading.checkpoints.parts import Tensor
from ...reading.datasets.tokenizers import Tokenizer, tokenizers
from ...reading.run.files import RunFile
from ...reading.run.workspace import Workspace
from ..tool import clean, finding, not_applicable, tool

_PER_KEY = 12
_SHOWN = 6
_SPARE, _PADDING = 0.8, 2048  # rows beyond the tokens: a share, and a number, that padding does not reach
_FACTS = ("tokenizer.size", "tokenizer.pad_is_eos", "tokenizer.no_pad", "tokenizer.no_chat_template")


@tool(emits=("tokenizer.*",))
def tokenizer_match(ws: Workspace) -> ToolResult:
    """Check that tokenizer, config and embedding belong together, and that all tokenizers of the run agree.

    Ids beyond the embedding's rows or vocab_size, ids of BOS, EOS and PAD that config or generation_config contradict,
    added tokens without a row, two tokens with one id; between two tokenizers: tokens with other ids, other special
    tokens, another chat template.
    """
    found = tokenizers(ws)
    if not found:
        return not_applicable("no tokenizer files here")
    rows = _rows(ws)
    evidence: list[Evidence] = []
    for tokenizer in found:
        evidence += _alone(ws, tokenizer, rows.get((tokenizer.run, tokenizer.folder)))
    evidence += _pairs(ws, found)
    counts: Counter[str] = Counter()
    kept = []
    for one in evidence:
        counts[one.key] += 1
        if counts[one.key] <= _PER_KEY:
            kept.append(one)
    text = "\n".join(e.text for e in kept)
    telling = [k for k in counts if k not in _FACTS]
    if telling:
        words = ", ".join(f"{counts[k]} {k.removeprefix('tokenizer.').replace('_', ' ')}" for k in telling)
        return finding(f"{len(found)} tokenizers: {words}", kept, text)
    held = sum(1 for t in found if (t.run, t.folder) in rows or t.config)
    checked = f"{held} of them beside a config or weights" if held else "none of them beside a config or weights"
    return clean(f"{len(found)} tokenizers agree, {checked}", kept, text)


def _rows(ws: Workspace) -> dict[tuple[str, str], Tensor]:
    """The embedding of each folder that holds weights."""
    found: dict[tuple[str, str], Tensor] = {}
    for checkpoint in checkpoints(ws):
        if checkpoint.framework in ("hf", "accelerate") and checkpoint.files.get("tokenizer"):
            embedding = embedding_of(ws, checkpoint)
            if embedding is not None:
                for file in checkpoint.files["tokenizer"]:
                    found[file.run, file.name.rpartition("/")[0] or "."] = embedding
    return found


def _alone(ws: Workspace, tokenizer: Tokenizer, embedding: Tensor | None) -> Iterator[Evidence]:
    def at(key: str, value: Value, text: str, file: RunFile | None = None, member: str = "") -> Evidence:
        place = file or tokenizer.main
        name = place.name.rpartition("/")[0] or "."
        return ws.binary(place, member or place.path.name, f"tokenizer.{key}", value, f"{name}: {text}")

    for file, why in tokenizer.broken:
        yield at("broken", file.path.name, f"{file.path.name}: {why}", file)
    if tokenizer.size:
        yield at(
            "size", tokenizer.size, f"{tokenizer.size} tokens, ids to {tokenizer.top}, {len(tokenizer.added)} added"
        )
    shared = [n for n, count in Counter(tokenizer.vocabulary.values()).items() if count > 1]
    if shared:
        names = [t for t, n in tokenizer.vocabulary.items() if n == shared[0]]
        yield at(
            "duplicate_id", len(shared), f"{len(shared)} ids stand for two tokens each, {shared[0]} for {names[:3]}"
        )
    if embedding is not None and tokenizer.top >= 0:
        rows = embedding.shape[0]
        if tokenizer.top >= rows:
            beyond = [t for t, n in tokenizer.added.items() if n >= rows]
            text = (
                f"ids go to {tokenizer.top}, {embedding.name} has {rows} rows; beyond it {beyond[:_SHOWN] or 'others'}"
            )
            yield at("exceeds_embedding", tokenizer.top, text, embedding.file, embedding.name)
        elif tokenizer.size < _SPARE * rows and (rows - tokenizer.size > _PADDING or tokenizer.size < rows / 2):
            text = f"{tokenizer.size} tokens, {embedding.name} has {rows} rows: made for another tokenizer"
            yield at("smaller_than_embedding", tokenizer.size, text, embedding.file, embedding.name)
    rows = tokenizer.config.get("vocab_size")
    if isinstance(rows, int) and tokenizer.top >= rows:
        text = f"ids go to {tokenizer.top}, config.json says vocab_size {rows}"
        yield at("exceeds_config", tokenizer.top, text, tokenizer.files.get("config.json"), "vocab_size")
    for key, value, text, name, member in _special(tokenizer):
        yield at(key, value, text, tokenizer.files.get(name), member)


def _special(tokenizer: Tokenizer) -> Iterator[tuple[str, Value, str, str, str]]:
    """Ids of the special tokens in the tokenizer against config and generation config; the latter is what counts."""
    for role in ("bos", "eos", "pad"):
        own, member = tokenizer.ids.get(role), f"{role}_token_id"
        if role in tokenizer.tokens and own is None and tokenizer.vocabulary:
            text = f"{role} token {tokenizer.tokens[role]!r} is not in the vocabulary"
            yield f"{role}_unknown", tokenizer.tokens[role], text, "tokenizer_config.json", f"{role}_token"
        told = [(n, _ids(c.get(member))) for n, c in _configs(tokenizer) if c.get(member) is not None]
        if own is None or not told:
            continue
        name, ids = told[0]
        if own not in ids:
            text = f"{role} is {tokenizer.tokens[role]!r} with id {own}, {name} says {ids if len(ids) > 1 else ids[0]}"
            yield f"{role}_mismatch", own, text, name, member
    pad, eos = tokenizer.ids.get("pad"), tokenizer.ids.get("eos")
    if pad is not None and pad == eos:
        text = "PAD is the EOS token: a mask made from PAD hides the end of every text"
        yield "pad_is_eos", True, text, "tokenizer_config.json", "pad_token"
    if tokenizer.tokens and "pad" not in tokenizer.tokens:
        yield "no_pad", True, "no PAD token is named", "tokenizer_config.json", "pad_token"


def _configs(tokenizer: Tokenizer) -> Iterator[tuple[str, dict]]:
    yield "generation_config.json", tokenizer.generation
    yield "config.json", tokenizer.config


def _ids(value: object) -> list[int]:
    listed = value if isinstance(value, list) else [value]
    return [v for v in listed if isinstance(v, int)] or [-1]


def _pairs(ws: Workspace, found: list[Tokenizer]) -> Iterator[Evidence]:
    """Each tokenizer against the first one that differs from it in nothing said before."""
    first = found[0]
    seen = {(first.digest, first.template, tuple(sorted(first.tokens.items())))}
    for other in found[1:]:
        identity = (other.digest, other.template, tuple(sorted(other.tokens.items())))
        if identity in seen:
            continue
        seen.add(identity)
        for key, value, text in _differences(first, other):
            yield ws.binary(
                other.main,
                other.main.path.name,
                f"tokenizer.{key}",
                value,
                f"{first.folder} and {other.folder}: {text}",
            )


def _differences(one: Tokenizer, two: Tokenizer) -> Iterator[tuple[str, Value, str]]:
    if one.digest != two.digest:
        moved = [t for t, n in one.vocabulary.items() if t in two.vocabulary and two.vocabulary[t] != n]
        only = len(one.vocabulary.keys() ^ two.vocabulary.keys())
        text = f"{one.size} and {two.size} tokens; {len(moved)} have another id, {only} stand in one alone"
        if moved:
            text += f"; {moved[0]!r} is {one.vocabulary[moved[0]]} and {two.vocabulary[moved[0]]}"
        yield "differs", len(moved) + only, text
    for role in sorted(one.tokens.keys() | two.tokens.keys()):
        if one.tokens.get(role) != two.tokens.get(role):
            yield "special_differs", role, f"{role} is {one.tokens.get(role)!r} and {two.tokens.get(role)!r}"
    if one.template != two.template:
        if one.template is None or two.template is None:
            without = one.folder if one.template is None else two.folder
            yield "template_differs", "missing", f"only one has a chat template, {without} has none"
        else:
            at = next((i for i, (a, b) in enumerate(zip(one.template, two.template, strict=False)) if a != b), 0)
            here, there = one.template[at : at + 40], two.template[at : at + 40]
            text = f"chat templates differ from character {at}: {here!r} and {there!r}"
            yield "template_differs", at, text
