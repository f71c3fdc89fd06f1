"""What a model is told, from `knowledge/prompt.yaml`."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from ..playbook import KNOWLEDGE


@cache
def _table() -> dict[str, Any]:
    return yaml.load(
        (KNOWLEDGE / "prompt.yaml").read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )


def system() -> str:
    """The opening of every request, the same throughout a session."""
    from .fence import fenced

    opening, _, closing = fenced("\n", "FILE").partition("\n\n")
    shown = _table()["fence"].format(open=opening.strip(), close=closing.strip())
    return f"{_table()['system'].strip()}\n\n{shown}"


def again(said: str, /, **values: object) -> str:
    """What is answered to words of a model that cannot be used as they are."""
    return _table()["again"][said].format(**values)


def tool(name: str) -> str:
    """The description of a tool that only models have."""
    return _table()["tools"][name]


def general() -> list[str]:
    """Tools that are offered whatever the hypotheses."""
    return list(_table()["general"])
