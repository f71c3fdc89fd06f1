"""Summaries of an evaluation: scores of one task under two filters, and how the prompts were made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...types import Evidence
from ..files import Line, RunFile
from .find import matches

if TYPE_CHECKING:
    from ...workspace import Workspace

SIZE = 8 << 20
_CHAT = re.compile(r"(?i)(?:^|[-_/.])(?:it|instruct|chat|sft|dpo|rlhf)(?:$|[-_/.,\"])")
APART = 0.1  # scores of two filters


def summaries(ws: Workspace, path: str = "") -> Iterator[Evidence]:
    """Evidence from results files of the harness: `filters_disagree`, `no_chat_template`, `score`, `few_shot`."""
    for file in ws.files:
        if file.good or not matches(file.name, path) or not file.name.endswith(".json") or file.size > SIZE:
            continue
        if b'"results"' not in ws.head(file) and "results" not in file.name:
            continue
        try:
            tree = json.loads(ws.text(file, SIZE))
        except (ValueError, RecursionError):
            ws.tell(file.name, "no JSON")
            continue
        if isinstance(tree, dict) and isinstance(tree.get("results"), dict):
            yield from _of(ws, file, tree)


def _of(ws: Workspace, file: RunFile, tree: dict[str, Any]) -> Iterator[Evidence]:
    lines = list(ws.lines(file))
    for task, scores in list(tree["results"].items())[:200]:
        if not isinstance(scores, dict):
            continue
        by_metric: dict[str, dict[str, float]] = {}
        for name, value in scores.items():
            metric, _, rule = str(name).partition(",")
            if isinstance(value, int | float) and not isinstance(value, bool) and "stderr" not in metric:
                by_metric.setdefault(metric, {})[rule] = float(value)
        for metric, rules in by_metric.items():
            least, most = min(rules, key=lambda r: rules[r]), max(rules, key=lambda r: rules[r])
            if rules[most] - rules[least] > APART:
                line = _line(lines, f'"{metric},{least}"', str(task))
                said = f"{task} {metric}: {rules[least]:.4g} by {least}, {rules[most]:.4g} by {most}"
                yield ws.cite(file, line, "eval_result.filters_disagree", said)
            elif rules:
                yield ws.cite(file, _line(lines, f'"{metric},', str(task)), "eval_result.score", rules[most])
    config = tree.get("config") if isinstance(tree.get("config"), dict) else {}
    model = str(tree.get("model_name") or (config or {}).get("model_args") or "")
    if "chat_template" in tree and not tree["chat_template"] and _CHAT.search(model):
        yield ws.cite(file, _line(lines, '"chat_template"', ""), "eval_result.no_chat_template", model[:120])


def _line(lines: list[Line], key: str, after: str) -> Line:
    """The first line that holds the key, after the one that names the task."""
    mark, needle = after.encode(), key.encode()
    start = next((n for n, line in enumerate(lines) if mark and b'"' + mark + b'"' in line.data), 0)
    return next((line for line in lines[start:] if needle in line.data), lines[0] if lines else Line(1, 0, b""))
