"""Results of an evaluation, item by item: why the wrong ones are wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from ..reading.datasets.before_after import changes
from ..reading.datasets.failures import is_right, reasons, together
from ..reading.datasets.results import Item, Results, results
from ..reading.datasets.rows import cited, preview
from ..reading.datasets.scores import summaries
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

EACH = 3  # items shown of one reason in one group
PRINTED = 2  # items printed of one reason
FEW = 0.03  # share of the wrong items below which a reason is told but not called a finding
MANY = 10  # items that are wrong for no reason in the record, below which that is not told
_FACTS = frozenset({"items", "accuracy", "score"})


@tool(emits=("eval_result.*",), recall=True)
def eval_failures(
    ws: Workspace,
    path: Annotated[str, Field(description="File or folder of results inside the run; all when empty")] = "",
) -> ToolResult:
    """Group the wrong items of an evaluation by why they are wrong: cut, empty, not extracted, other format, loops.

    Use when a score is lower than expected or at chance. Reads samples and results of lm-evaluation-harness,
    OpenCompass, and JSON or JSON lines with a prediction and an answer. A value is the share of all items.
    Compares scores before and after training where two files give them.
    """
    found = results(ws, path)
    evidence = [*summaries(ws, path), *_before_after(ws)]
    if not found and not evidence:
        return not_applicable(f"no results of an evaluation {'named ' + path if path else 'among the files'}")
    text: list[str] = []
    telling = [e.key.removeprefix("eval_result.") for e in evidence if e.key != "eval_result.score"]
    for one in found:
        groups: dict[str, list[Item]] = defaultdict(list)
        for item in one.items:
            groups[item.group].append(item)
        for name, items in groups.items():
            telling += _group(ws, one, name, items, evidence, text)
        if one.unread:
            text.append(f"{one.file.name}: {one.unread}")
    text += [f"{e.file}:{e.line} {e.key} {e.value}" for e in evidence if e.key.endswith(("disagree", "template"))]
    total = sum(len(o.items) for o in found)
    said = f"{total} items in {len(found)} files"
    if telling:
        kinds = ", ".join(dict.fromkeys(telling))
        return finding(f"{said}: {kinds}", evidence, "\n".join([said, *text]))
    unread = [f"{o.file.name}: {o.unread}" for o in found if o.unread]
    if unread or not found:
        why = unread[0] if unread else "only summaries are there, no items"
        return ToolResult("failed", f"{said}, nothing odd seen; {why}", evidence, "\n".join([said, *text]))
    return clean(f"{said}: wrong answers are just wrong", evidence, "\n".join([said, *text]))


def _before_after(ws: Workspace) -> Iterator[Evidence]:
    """Scores that fell or rose with the training, both lines of each."""
    for change in sorted(changes(ws), key=lambda c: c.after - c.before)[:8]:
        if change.fell or change.rose:
            told = {"name": change.name, "before": change.before, "after": change.after}
            key = f"eval_result.{'fell' if change.fell else 'rose'}_after_training"
            for file, line in dict.fromkeys(zip(change.files, change.lines, strict=True)):
                yield ws.cite(file, line, key, told)


def _group(
    ws: Workspace, one: Results, name: str, items: list[Item], evidence: list[Evidence], text: list[str]
) -> list[str]:
    """One task and filter: its score, and the reasons of its wrong items. The keys of findings."""
    verdicts = [(i, is_right(i)) for i in items]
    judged = [i for i, right in verdicts if right is not None]
    wrong = [i for i, right in verdicts if right is False] if judged else items
    place = f"{one.file.name}{' ' + name if name else ''}"
    if judged:
        share = round(1 - len(wrong) / len(judged), 4)
        evidence.append(cited(ws, judged[0].row, "eval_result.accuracy", share, f"{len(judged)} items"))
        text.append(f"{place}: {len(judged) - len(wrong)} of {len(judged)} right ({share:.1%})")
    evidence.append(cited(ws, items[0].row, "eval_result.items", len(items)))
    by_reason: dict[str, list[Item]] = defaultdict(list)
    plain = 0
    for item in wrong:
        given = list(dict.fromkeys(reasons(item)))
        plain += not given
        for reason in given:
            by_reason[reason].append(item)
    out = []
    for reason, hit in sorted(by_reason.items(), key=lambda pair: -len(pair[1])):
        text.append(f"  {reason}: {len(hit)} of {len(wrong)} wrong items")
        text += [f"    {_where(i)}: {_shown(i)}" for i in hit[:PRINTED]]
        if len(hit) >= max(2, FEW * len(wrong)) or (len(wrong) <= 3 and hit):
            out.append(reason)
            for item in hit[:EACH]:
                evidence.append(cited(ws, item.row, f"eval_result.{reason}", round(len(hit) / len(items), 4)))
    text.append(f"  no reason in the record: {plain} of {len(wrong)} wrong items")
    if judged and plain >= max(MANY, len(items) / 2):
        evidence.append(cited(ws, wrong[-1].row, "eval_result.plainly_wrong", round(plain / len(items), 4)))
    stops = Counter(s for i in by_reason.get("stopped_early", []) for s in i.stops)
    if stops:
        text.append(f"  stop strings in force: {', '.join(repr(s) for s, _ in stops.most_common(8))}")
    for key, value, item in together(items):
        out.append(key)
        text.append(f"  {key}: {value}")
        evidence.append(cited(ws, item.row, f"eval_result.{key}", value))
    return out


def _where(item: Item) -> str:
    return f"{item.row.file.name}:{item.row.line.number}" if not item.row.member else item.row.member


def _shown(item: Item) -> str:
    return preview({"gold": item.gold[-80:], "extracted": item.extracted, "output": item.output[-240:]})
