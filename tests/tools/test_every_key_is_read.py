"""What a tool declares as evidence is read by something: a playbook, a table, or code that judges, repairs or tells.

A fact that nobody reads only informs. It belongs in the summary or the text of its tool: as evidence it would be kept,
numbered and verified in every diagnosis, and never decide, prove or repair anything.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from traindoctor.agent.core.own_files import KNOWLEDGE, read_table
from traindoctor.agent.tools.tool import all_tools

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"(?<![\w.])[a-z_]+(?:\.[a-z0-9_]+)+(?!\w)")
# Read without being named, each by what reads it.
OTHERWISE = {
    "slurm.state": "any key below `slurm.` says that Slurm started the job (operations.scheduler)",
    **dict.fromkeys(
        ("run.last_line", "job.exit_code", "ib.port"),
        "names the hosts that nothing is wrong with: a node is blamed where others stand beside it (restart.culprits)",
    ),
    **dict.fromkeys(
        ("metrics.series", "data.shown", "live.row", "live.value", "log.once"),
        "all that its tool has to show: answers to a question quote it (answers._made, gate.answered)",
    ),
}


def texts(tree: ast.Module) -> Iterator[str]:
    """The strings of a module; one that stands as a statement is a docstring."""
    every = list(ast.walk(tree))
    said = {id(node.value) for node in every if isinstance(node, ast.Expr)}
    for node in every:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value


def leaves(data: Any) -> Iterator[str]:
    """The strings of a table, keys of mappings included."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from (*leaves(key), *leaves(value))
    elif isinstance(data, list):
        for value in data:
            yield from leaves(value)
    elif isinstance(data, str):
        yield data


def read() -> Iterator[str]:
    """All strings of what reads evidence: code behind the tools, tables and the front matter of playbooks."""
    modules = [p for room in ("agent", "tui") for p in (ROOT / room).rglob("*.py")]
    for path in [*modules, *(ROOT / "evals").glob("*.py")]:
        if path.relative_to(ROOT).parts[:2] not in (("agent", "tools"), ("agent", "reading")):
            yield from texts(ast.parse(path.read_text(encoding="utf-8")))
    for path in KNOWLEDGE.rglob("*.yaml"):
        yield from leaves(read_table(path))
    for path in KNOWLEDGE.rglob("*.md"):
        yield from leaves(yaml.load(path.read_text(encoding="utf-8").split("---\n", 2)[1], yaml.CSafeLoader))


@cache
def named() -> frozenset[str]:
    return frozenset(key for text in read() for key in NAMED.findall(text))


def patterns() -> list[str]:
    """`package.*` of the preflight, which tells all that lies below."""
    rows = read_table(KNOWLEDGE / "preflight.yaml")
    return [row["key"] for level in ("stops", "look", "known") for row in rows[level] if row["key"].endswith(".*")]


def declared() -> set[str]:
    """Keys of all tools; of a namespace only its tool knows what lies below."""
    return {key for tool in all_tools().values() for key in tool.emits if not key.endswith(".*")}


def test_every_key_is_read() -> None:
    told = patterns()
    unread = {key for key in declared() - named() if not any(fnmatchcase(key, pattern) for pattern in told)}
    assert not unread - OTHERWISE.keys(), "say it in the tool's text, or let something read it"


def test_what_is_read_otherwise_is_declared_and_named_nowhere() -> None:
    assert set(OTHERWISE) <= declared() - named()
