"""Spellings that not every release takes: those that the run's releases allow, or all of them where none is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from ..reading.settings_map import Spelling, normal
from .spelling import lineage, table

if TYPE_CHECKING:
    from .document import Document


def untimely(doc: Document, scope: str, spelling: Spelling) -> str:
    """Why a spelling is not to be put in: the run's release does not take it, or not every release does.

    Returns:
        The reason; empty where it may be put in.
    """
    key = ".".join(spelling.segments)
    if why := _other_style(doc, scope, spelling):
        return why
    for framework in dict.fromkeys((*lineage(doc.framework), scope)):
        told = table()["dated"].get(framework, {}).get(key)
        if told:
            return _outside(doc, key, Requirement(told))
    return ""


def _outside(doc: Document, key: str, needed: Requirement) -> str:
    version = next((v for p, v in doc.versions.items() if normal(p) == normal(needed.name)), "")
    try:
        known = Version(version.split("+")[0]) if version else None
    except InvalidVersion:
        known = None
    if known is not None:
        holds = needed.specifier.contains(known.base_version, prereleases=True)
        return "" if holds else f"{needed.name} {version} does not take `{key}` ({needed})"
    ends = any(s.operator in ("<", "<=", "==") for s in needed.specifier)
    return f"only some releases take `{key}` ({needed}), and the run's is not known" if ends else ""


def _other_style(doc: Document, scope: str, spelling: Spelling) -> str:
    """Where a framework went from plain flags to dotted ones, the flags of the file tell which release reads it."""
    if scope not in table()["restyled"]:
        return ""
    own = [f for f in doc.found if f.own and f.scope == scope and f.leaf.style == "flag"]
    if not own:
        return ""
    dotted = any("." in f.leaf.key for f in own)
    return "" if dotted == bool(spelling.segments[1:]) else f"the file's flags are those of another release of {scope}"
