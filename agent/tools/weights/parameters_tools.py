"""How much of a model the run says that it trains."""

from __future__ import annotations

import re
from itertools import islice

from ...core.types import ToolResult
from ...reading.profiles.parameters import counts, trained_share
from ...reading.run.workspace import Workspace
from ..tool import clean, finding, not_applicable, tool

HEAD = 4000  # lines of a log in which a model is told
# What trains a small part on purpose.
_ADAPTERS = re.compile(
    r"(?i)\bq?(?:lora|dora|peft|galore)\b|adapter|prefix.?tuning|prompt.?tuning|ia3|linear.?prob|bitfit"
)


@tool(emits=("params.trained_share",), recall=True)
def trained_parameters(ws: Workspace) -> ToolResult:
    """Tell what part of the model's parameters is trained, where the log says both numbers.

    Use where little is learned: a filter of names, a freeze or an optimizer's groups may leave almost nothing to train.
    Nothing is told of runs with adapters or probes, which train a small part on purpose.
    """
    logs = [f for f in ws.by_role("log") if not f.good]
    told = list(counts((f, line) for f in logs for line in islice(ws.lines(f), HEAD)))
    if not told:
        return not_applicable("no log tells how many parameters there are")
    texts = [ws.question, *(ws.text(f, 1 << 16) for f in (*logs, *ws.by_role("config", "code")))]
    share = trained_share(told)
    if share is None or any(map(_ADAPTERS.search, texts)):
        return clean("all parameters that are told of are trained, as far as the log says")
    shown = f"{share.share:.3g} of {share.whole.line.text.strip()}"
    evidence = [ws.cite(c.file, c.line, "params.trained_share", round(share.share, 6)) for c in share.trained]
    return finding(f"the log tells that {shown} is trained", evidence)
