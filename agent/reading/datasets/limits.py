"""What a run's own files say about its data: lengths, classes, vocabulary, special tokens, stop words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...workspace import Workspace

FILES = 60

_LIMIT = re.compile(
    r"(?i)\b(?:max_?seq(?:uence)?_?len(?:gth)?|model_max_length|max_length|cutoff_len|sequence_len(?:gth)?|seq_len(?:gth)?"
    r"|max_prompt_length|block_size|context_length)[\"']?\s*[:= ]\s*[\"']?(\d{2,7})\b"
)
_CLASSES = re.compile(r"(?i)\b(?:num_labels|num_classes|n_classes|nb_classes)[\"']?\s*[:= ]\s*(\d{1,6})\b")
_VOCABULARY = re.compile(r"(?i)\bvocab_?size[\"']?\s*[:= ]\s*(\d{2,7})\b")
_POSITIONS = re.compile(r"(?i)\bmax_position_embeddings[\"']?\s*[:= ]\s*(\d{2,8})\b")
_STOP = re.compile(r"""(?i)\b(?:stop(?:_strings|_sequences|_words)?|until)["']?\s*[:=]\s*\[([^\]]{0,400})""")


class Limits:
    """What the run's settings say.

    Attributes:
        tokens: the smallest sequence length set.
        classes, vocabulary: the largest number of classes and of ids.
        bos, eos, pad: ids of the special tokens, where exactly one is named.
        positions: places that the model has embeddings for.
        stops: stop words of the generation, likely ones first.
    """

    def __init__(self, ws: Workspace) -> None:
        files = [f for f in ws.by_role("config", "code") if not f.name.endswith("tokenizer.json")]
        text = "\n".join(ws.text(f, 64 << 10) for f in files[:FILES])
        lengths = [int(n) for n in _LIMIT.findall(text)]
        self.tokens = min(lengths) if lengths else None
        self.classes = max((int(n) for n in _CLASSES.findall(text)), default=None)
        self.bos, self.eos, self.pad = (_token(name, text) for name in ("bos", "eos", "pad"))
        self.positions = max((int(n) for n in _POSITIONS.findall(text)), default=None)
        self.vocabulary = max((int(n) for n in _VOCABULARY.findall(text)), default=None)
        listed = [w for part in _STOP.findall(text) for w in re.findall(r"""["']([^"']{1,40})["']""", part)]
        self.stops = sorted(dict.fromkeys(listed), key=lambda w: not re.fullmatch(r"[A-Za-z]{2,14}", w))


def limits(ws: Workspace) -> Limits:
    """The reading, made once."""
    return ws.memo("data limits", lambda: Limits(ws))


def _token(name: str, text: str) -> int | None:
    """The id of a special token, where the settings name exactly one."""
    found = set(re.findall(rf"(?i)\b{name}_token_id[\"']?\s*[:=]\s*(\d{{1,7}})\b", text))
    return int(found.pop()) if len(found) == 1 else None
