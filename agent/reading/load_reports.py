"""What a load that is not strict left out: a head or a token of the task, or layers of the model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..types import Evidence
from .logpass import LogPass

if TYPE_CHECKING:
    from ..workspace import Workspace

_REPORT = re.compile(
    r"missing(?:_keys| keys)?\W{0,3}\[(?P<missing>[^\]]{0,20000})\]"
    r".{0,40}unexpected(?:_keys| keys)?\W{0,3}\[(?P<left>[^\]]{0,60000})\]",
    re.IGNORECASE,
)
_KEY = re.compile(r"['\"]([\w.\-]{1,300})['\"]")
# By the first part of a parameter's name, what is made anew for a task; by the last, what holds nothing learned.
_OF_THE_TASK = re.compile(
    r"(?i)^(?:(?:module|model|base_model)\.)*(?:(?:pretrain|pred|mlm|cls|seg|bbox|mask|mlp|proj|projection|aux|det|task|score|lm"
    r"|ssl)?_?head\d?s?|classifiers?|fc|cls|cls_(?:token|score|pred)|category_tokens?|task_tokens?|prompt_tokens?|mask_token"
    r"|class_embed|score|qa_outputs|queue(?:_ptr)?|momentum_encoder|teacher)(?:[._]|\d|$)"
    r"|(?:^|\.)(?:pooler\.dense\.(?:weight|bias)|position_ids|num_batches_tracked|total_ops|total_params|inv_freq)$"
)
_FEW = 24


def load_reports(ws: Workspace, found: LogPass) -> Iterator[Evidence]:
    """`load.only_heads`: every name that is missing or left over belongs to a head or a token of one task."""
    for hit in found.hits.get("sig.ckpt.weights_not_loaded", ()):
        report = _REPORT.search(hit.line.text)
        if report is None:
            continue
        missing, left = (_KEY.findall(report[name]) for name in ("missing", "left"))
        if 0 < len(missing) <= _FEW and all(map(_OF_THE_TASK.search, [*missing, *left])):
            yield ws.cite(hit.file, hit.line, "load.only_heads", True)
