"""The run's own tokenizer: ids of a text and texts of ids, by the tokenizers library from tokenizer.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..files import RunFile
from .find import matches

if TYPE_CHECKING:
    from ...workspace import Workspace

SIZE = 64 << 20  # bytes of a tokenizer.json that are read
TEXT = 100_000  # characters of one text that are counted

# A group that is repeated, or a reference back: a pattern that may take for ever on a made-up text.
_COSTLY = re.compile(r"\)(?:[*+]|\{\d*,\d*\})|\\[1-9]")
_SPECIAL = ("bos", "eos", "pad", "unk", "sep", "cls")


class Tokenizer:
    """Encodes and decodes as the run does.

    Attributes:
        file: the tokenizer.json.
        size: number of ids, added tokens included.
        special: ids of bos, eos, pad and the like, as tokenizer_config.json and its like name them.
        specials: every id that is marked special.
        counts: whether texts may be encoded (its patterns are harmless).
    """

    def __init__(self, file: RunFile, inner: Any, tree: dict[str, Any], named: dict[str, str]) -> None:
        self.file = file
        self._inner = inner
        self.size: int = inner.get_vocab_size(with_added_tokens=True)
        self.special = {k: i for k, v in named.items() if (i := inner.token_to_id(v)) is not None}
        added = [t for t in tree.get("added_tokens") or [] if isinstance(t, dict)]
        marked = [t for t in added if isinstance(t.get("id"), int) and t.get("special")]
        self.specials = {t["id"]: str(t.get("content")) for t in marked}
        self.counts = not any(_COSTLY.search(p) for p in _patterns(tree, 0))

    def lengths(self, texts: list[str]) -> list[int]:
        """Ids of each text, without special tokens. Text over `TEXT` characters is scaled up from its start."""
        sound = [t[:TEXT].encode("utf-8", "replace").decode() for t in texts]
        encoded = self._inner.encode_batch_fast(sound, add_special_tokens=False)
        return [
            len(e.ids) if len(t) <= TEXT else round(len(e.ids) * len(t) / TEXT)
            for e, t in zip(encoded, texts, strict=True)
        ]

    def decode(self, ids: list[int]) -> str:
        """Text of ids with its special tokens; an id outside the vocabulary shows as such."""
        parts: list[str] = []
        run: list[int] = []
        for i in [*ids, None]:
            known = i is not None and 0 <= i < 1 << 31 and self._inner.id_to_token(i) is not None
            if known and i is not None:
                run.append(i)
                continue
            if run:
                parts.append(self._inner.decode(run, skip_special_tokens=False))
                run = []
            if i is not None:
                parts.append(f"<id {i}>")
        return "".join(parts)


def _patterns(value: Any, depth: int) -> Iterator[str]:
    if depth > 12:
        return
    if isinstance(value, dict):
        if isinstance(p := value.get("Regex"), str):
            yield p
        for k, v in value.items():
            if k not in ("vocab", "merges", "added_tokens"):
                yield from _patterns(v, depth + 1)
    elif isinstance(value, list):
        for v in value[:100]:
            yield from _patterns(v, depth + 1)


def tokenizer(ws: Workspace, path: str = "") -> Tokenizer | None:
    """The tokenizer of the run, or the one named; None where there is none that can be read."""
    return ws.memo(("tokenizer", path), lambda: _read(ws, path))


def _read(ws: Workspace, path: str) -> Tokenizer | None:
    named = [f for f in ws.files if f.name.rsplit("/", 1)[-1] == "tokenizer.json" and not f.good]
    chosen = [f for f in named if matches(f.name, path)] if path else sorted(named, key=lambda f: f.name.count("/"))
    for file in chosen[:5]:
        if file.size > SIZE:
            ws.tell(file.name, f"a tokenizer over {SIZE >> 20} MiB is not read")
            continue
        text = ws.text(file, SIZE)
        try:
            tree = json.loads(text)
        except (ValueError, RecursionError) as e:
            ws.tell(file.name, f"no JSON: {e}"[:200])
            continue
        if isinstance(tree, dict) and (inner := _inner(ws, file, text)) is not None:
            return Tokenizer(file, inner, tree, _names(ws, file))
    return None


def _inner(ws: Workspace, file: RunFile, text: str) -> Any:
    from tokenizers import Tokenizer as Inner

    try:
        return Inner.from_str(text)
    except Exception as e:  # noqa: BLE001 - the library raises bare Exception for a file it cannot read
        ws.tell(file.name, f"no tokenizer: {e}"[:200])
        return None


def _names(ws: Workspace, file: RunFile) -> dict[str, str]:
    """Special tokens by name, from the files beside the tokenizer."""
    folder = file.name.rpartition("/")[0]
    out: dict[str, str] = {}
    for base in ("tokenizer_config.json", "special_tokens_map.json"):
        name = f"{folder}/{base}" if folder else base
        beside = next((f for f in ws.files if f.name == name), None)
        if beside is None:
            continue
        try:
            tree = json.loads(ws.text(beside, 1 << 20))
        except (ValueError, RecursionError):
            continue
        for key in _SPECIAL if isinstance(tree, dict) else ():
            value = tree.get(f"{key}_token")
            value = value.get("content") if isinstance(value, dict) else value
            if isinstance(value, str):
                out.setdefault(key, value)
    return out
