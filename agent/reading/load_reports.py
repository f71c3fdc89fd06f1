"""What a load that is not strict left out: a head or a token of the task, or layers of the model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..types import Evidence
from .curves import curves
from .logpass import LogPass

if TYPE_CHECKING:
    from ..workspace import Workspace

_MISSING = re.compile(r"(?i)missing(?:_keys| keys)?\W{0,3}\[")
_LEFT = re.compile(r"(?i).{0,40}?unexpected(?:_keys| keys)?\W{0,3}\[")
_KEY = re.compile(r"['\"]([\w.\-]{1,300})['\"]")
# By the first part of a parameter's name, what is made anew for a task; by the last, what holds nothing learned.
_OF_THE_TASK = re.compile(
    r"(?i)^(?:(?:module|model|base_model)\.)*(?:(?:pretrain|pred|mlm|cls|seg|bbox|mask|mlp|proj|projection|aux|det|task|score|lm"
    r"|ssl)?_?head\d?s?|classifiers?|fc|cls|cls_(?:token|score|pred)|category_tokens?|task_tokens?|prompt_tokens?|mask_token"
    r"|class_embed|score|qa_outputs|queue(?:_ptr)?|momentum_encoder|teacher)(?:[._]|\d|$)"
    r"|(?:^|\.)(?:pooler\.dense\.(?:weight|bias)|position_ids|num_batches_tracked|total_ops|total_params|inv_freq)$"
)
_FEW = 24
_STEPS = 3  # losses that make a training


def load_reports(ws: Workspace, found: LogPass) -> Iterator[Evidence]:
    """`load.only_heads`: every name that is missing or left over belongs to a head or a token of one task.

    Only where a run trains what it made anew: in an evaluation a head at random is the fault itself.
    """
    for hit in found.hits.get("sig.ckpt.weights_not_loaded", ()):
        missing, left = _listed(hit.line.text)
        if 0 < len(missing) <= _FEW and all(map(_OF_THE_TASK.search, [*missing, *left])) and _trains(ws):
            yield ws.cite(hit.file, hit.line, "load.only_heads", True)


def _trains(ws: Workspace) -> bool:
    """Whether losses of several steps are among the files."""
    return any(s.count >= _STEPS for s in curves(ws).of("loss", good=False))


def _listed(text: str) -> tuple[list[str], list[str]]:
    """The names that are missing and those left over; none where a line lists not both. One look at each character."""
    if (first := _MISSING.search(text)) is None or (end := text.find("]", first.end())) < 0:
        return [], []
    second = _LEFT.match(text, end + 1)
    if second is None or (over := text.find("]", second.end())) < 0:
        return [], []
    return _KEY.findall(text, first.end(), end), _KEY.findall(text, second.end(), over)
