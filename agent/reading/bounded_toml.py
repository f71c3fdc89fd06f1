"""TOML of a run, read within bounds: a key of many parts costs the square of their number in time and memory."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from .settings_leaf import DEPTH

# A string or a comment, whatever it holds. Where this goes wrong, the text is no TOML and the parser ends there too.
_OPAQUE = re.compile(
    r'''"""(?:[^"\\]|\\.|"(?!""))*(?:"{3,5}|\Z)|\'{3}(?:[^\']|\'(?!\'\'))*(?:\'{3,5}|\Z)'''
    r"""|"(?:[^"\\\n]|\\.)*"?|\'[^\'\n]*\'?|\#[^\n]*""",
    re.DOTALL,
)
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){{{DEPTH}}}[\w-]", re.ASCII)


def toml(text: str) -> dict[str, Any]:
    """The tree of a text.

    Raises:
        ValueError: it is no TOML, or nested deeper than any setting is.
    """
    if text.count(".") >= DEPTH and _LONG_KEY.search(_OPAQUE.sub("s", text)):
        raise ValueError(f"a key of more than {DEPTH} parts")
    try:
        tree = tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if _too_deep(tree):
        raise ValueError(f"nested deeper than {DEPTH}")
    return tree


def _too_deep(tree: Any) -> bool:
    """Keys and inline tables make depth together, each within its own bound."""
    level, depth = [tree], 0
    while level:
        if depth > DEPTH:
            return True
        depth += 1
        level = [
            inner
            for node in level
            for inner in (node.values() if isinstance(node, dict) else node)
            if isinstance(inner, dict | list)
        ]
    return False
