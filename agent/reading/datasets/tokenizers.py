"""The tokenizers that lie in a run: vocabulary, added and special tokens, chat template; read without any library.

for tokenizer in tokenizers(ws):
    tokenizer.top, tokenizer.ids["eos"], tokenizer.template
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ..run.files import RunFile
from .dataset_files import matches

if TYPE_CHECKING:
    from ..run.workspace import Workspace

_LIMIT = 96 << 20  # bytes of one tokenizer.json; the largest in use have 40 MB
_TOKENIZERS = 64  # folders that are read
_NAMES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "vocab.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "chat_template.jinja",
    "chat_template.json",
)  # fmt: skip
_BESIDE = ("config.json", "generation_config.json")
_ROLES = ("bos", "eos", "pad", "unk")


@dataclass(slots=True)
class Tokenizer:
    """One folder's tokenizer.

    Attributes:
        vocabulary: id by token, added ones included; empty where only a size is known.
        size: number of tokens; `top` is the highest id.
        added: id by token, of those that were added to the trained vocabulary.
        tokens: text of the bos, eos, pad and unk token, where they are named.
        ids: their ids, where the vocabulary has them.
        template: the chat template, None where there is none.
        config, generation: what config.json and generation_config.json beside it say.
        broken: files that could not be read, with why.
    """

    folder: str
    files: dict[str, RunFile]
    run: str = "r1"
    good: bool = False
    vocabulary: dict[str, int] = field(default_factory=dict)
    size: int = 0
    top: int = -1
    added: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    template: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    generation: dict[str, Any] = field(default_factory=dict)
    broken: list[tuple[RunFile, str]] = field(default_factory=list)

    @property
    def main(self) -> RunFile:
        """The file that is cited for it."""
        return next(f for n in (*_NAMES, *_BESIDE) if (f := self.files.get(n)) is not None)

    @property
    def digest(self) -> str:
        """The same for tokenizers whose tokens have the same ids."""
        known = hashlib.sha256()
        for token, number in sorted(self.vocabulary.items(), key=lambda item: item[1]):
            known.update(f"{number}\t{token}\n".encode(errors="surrogatepass"))
        return known.hexdigest()[:16] if self.vocabulary else f"size {self.size}"


def tokenizers(ws: Workspace) -> list[Tokenizer]:
    """Every tokenizer of the runs, in the order of the files; read once."""
    return ws.memo("tokenizers", lambda: [_read(ws, *found) for found in islice(_folders(ws), _TOKENIZERS)])


def _folders(ws: Workspace) -> Iterator[tuple[str, str, dict[str, RunFile]]]:
    folders: dict[tuple[str, str], dict[str, RunFile]] = defaultdict(dict)
    for file in ws.files:
        if file.path.name in _NAMES or file.path.name in _BESIDE:
            folders[file.run, str(PurePosixPath(file.name).parent)][file.path.name] = file
    for (run, folder), files in folders.items():
        if any(n in files for n in ("tokenizer.json", "vocab.json", "vocab.txt", *_MODELS)):
            yield run, folder, files


_MODELS = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")


def _read(ws: Workspace, run: str, folder: str, files: dict[str, RunFile]) -> Tokenizer:
    made = Tokenizer(folder, files, run, next(iter(files.values())).good)
    known = {name: _object(ws, made, name) for name in files if name.endswith(".json")}
    made.config, made.generation = known.get("config.json", {}), known.get("generation_config.json", {})
    _vocabulary(ws, made, known)
    for token, number in _added(known):
        made.added[token] = number
        made.vocabulary[token] = number
    made.size = max(made.size, len(made.vocabulary))
    made.top = max(made.vocabulary.values(), default=made.size - 1)
    for role in _ROLES:
        for source in ("tokenizer_config.json", "special_tokens_map.json"):
            token = _text(known.get(source, {}).get(f"{role}_token"))
            if token is not None:
                made.tokens.setdefault(role, token)
        if role in made.tokens and made.tokens[role] in made.vocabulary:
            made.ids[role] = made.vocabulary[made.tokens[role]]
    made.template = _template(ws, made, known)
    return made


def _object(ws: Workspace, made: Tokenizer, name: str) -> dict[str, Any]:
    file = made.files[name]
    try:
        known = json.loads(ws.read(file, _LIMIT))
    except (ValueError, RecursionError) as e:
        made.broken.append((file, f"no JSON: {str(e)[:100]}"))
        return {}
    if not isinstance(known, dict):
        made.broken.append((file, "not a JSON object"))
        return {}
    return known


def _vocabulary(ws: Workspace, made: Tokenizer, known: dict[str, dict[str, Any]]) -> None:
    """From tokenizer.json, else vocab.json, vocab.txt, or the pieces of a SentencePiece or tiktoken file."""
    model = known.get("tokenizer.json", {}).get("model")
    words = model.get("vocab") if isinstance(model, dict) else None
    if words is None and "vocab.json" in known:
        words = known["vocab.json"]
    if isinstance(words, dict):
        made.vocabulary = {str(t): n for t, n in words.items() if _is_id(n)}
    elif isinstance(words, list):  # Unigram: pieces with scores, in the order of their ids
        made.vocabulary = {str(p[0]): n for n, p in enumerate(words) if isinstance(p, list) and p}
    elif "vocab.txt" in made.files:
        lines = ws.text(made.files["vocab.txt"], _LIMIT).splitlines()
        made.vocabulary = {token: n for n, token in enumerate(lines)}
    else:
        for name in _MODELS:
            if name in made.files:
                made.size = pieces(ws.read(made.files[name], _LIMIT))
                return


def pieces(data: bytes) -> int:
    """Number of tokens in a SentencePiece model (a protobuf whose field 1 repeats), or in tiktoken's lines."""
    if data[:1] != b"\x0a":
        return data.count(b"\n")
    count = at = 0
    while at < len(data) and data[at] == 0x0A:
        length = shift = 0
        at += 1
        while at < len(data) and shift < 35:
            byte = data[at]
            length |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                break
        at += length
        count += 1
    return count


def _added(known: dict[str, dict[str, Any]]) -> Iterator[tuple[str, int]]:
    listed = known.get("tokenizer.json", {}).get("added_tokens")
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict) and _is_id(one.get("id")):
            yield str(one.get("content")), one["id"]
    decoder = known.get("tokenizer_config.json", {}).get("added_tokens_decoder")
    for number, one in decoder.items() if isinstance(decoder, dict) else ():
        if isinstance(one, dict) and str(number).isdigit() and len(str(number)) < 10:
            yield str(one.get("content")), int(number)
    for token, number in known.get("added_tokens.json", {}).items():
        if _is_id(number):
            yield token, number


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _text(token: Any) -> str | None:
    """A special token is written as its text, or as an object with its content."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _template(ws: Workspace, made: Tokenizer, known: dict[str, dict[str, Any]]) -> str | None:
    if "chat_template.jinja" in made.files:
        return ws.text(made.files["chat_template.jinja"])
    for source in ("chat_template.json", "tokenizer_config.json"):
        template = known.get(source, {}).get("chat_template")
        if isinstance(template, list):
            named = [t for t in template if isinstance(t, dict) and isinstance(t.get("template"), str)]
            template = next((t["template"] for t in named if t.get("name") == "default"), None) or next(
                (t["template"] for t in named), None
            )
        if isinstance(template, str):
            return template
    return None


# ----------
# The run's own tokenizer: ids of a text and texts of ids, by the tokenizers library from tokenizer.json.

SIZE = 64 << 20  # bytes of a tokenizer.json that are read
TEXT = 100_000  # characters of one text that are counted

# A group that is repeated, or a reference back: a pattern that may take for ever on a made-up text.
_COSTLY = re.compile(r"\)(?:[*+]|\{\d*,\d*\})|\\[1-9]")
_SPECIAL = ("bos", "eos", "pad", "unk", "sep", "cls")


class RunTokenizer:
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


def tokenizer(ws: Workspace, path: str = "") -> RunTokenizer | None:
    """The tokenizer of the run, or the one named; None where there is none that can be read."""
    return ws.memo(("tokenizer", path), lambda: _read_tokenizer(ws, path))


def _read_tokenizer(ws: Workspace, path: str) -> RunTokenizer | None:
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
            return RunTokenizer(file, inner, tree, _names(ws, file))
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
