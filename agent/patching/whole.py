"""A text as the format's own parser takes it, value by value: what a change really did, whatever our readers saw."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import yaml

from ..reading.bounded_toml import toml
from ..reading.settings_json import without_comments
from .document import Document

LARGEST = 400_000  # characters that are parsed once more; our own readers compare what is larger
ENTRIES, ALIASES = 60_000, 200  # a few aliases can stand for millions of values


def moved(before: Document, after: Document, meant: Iterable[str]) -> str:
    """A path outside those that are meant whose value a change moved; empty where there is none or it cannot be told.

    Args:
        meant: dotted keys that may change, with all below them.
    """
    old, new = values(before), values(after)
    if old is None or new is None:
        return ""
    allowed = set(meant)
    for path in old.keys() | new.keys():
        if old.get(path) != new.get(path) and not any(_within(path, key) for key in allowed):
            return path
    return ""


def _within(path: str, key: str) -> bool:
    """Whether a path is a key, below it, or a mapping above it that came or went with it."""
    return path == key or path.startswith(key + ".") or key.startswith(path + ".")


def values(doc: Document) -> dict[str, str] | None:
    """Dotted path -> value of all that a text holds; None where its parser does not take it or it is large."""
    if len(doc.text) > LARGEST:
        return None
    try:
        if doc.form == "json":
            trees = [json.loads(without_comments(doc.clean))]
        elif doc.form == "toml":
            trees = [toml(doc.text)]
        elif doc.form == "yaml" and doc.text.count("*") <= ALIASES:
            trees = list(yaml.load_all(doc.clean, Loader=_loader()))
        else:
            return None
    except (ValueError, yaml.YAMLError, RecursionError, TypeError):
        return None
    out: dict[str, str] = {}
    for number, tree in enumerate(trees):
        for path, value in _flat(tree, ""):
            out[path] = f"{out.get(path, '')}|{number}: {value}"
            if len(out) > ENTRIES:
                return None
    return out


def _flat(tree: Any, path: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    if not inner or not tree or depth > 80:
        yield path, repr(tree)
        return
    for key, value in inner:
        yield from _flat(value, f"{path}.{key}" if path else str(key), depth + 1)


@cache
def _loader() -> Any:
    """A loader that builds nothing: a value with a tag is what stands behind the tag."""

    def plain(loader: Any, _: str, node: Any) -> Any:
        if isinstance(node, yaml.MappingNode):
            return loader.construct_mapping(node, deep=True)
        return loader.construct_sequence(node, deep=True) if isinstance(node, yaml.SequenceNode) else str(node.value)

    loader: Any = type("Plain", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {})
    loader.add_multi_constructor("", plain)
    return loader
