"""Installed packages and what they require of each other, judged by the rules of Python's packaging standards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .command_output import output_lines
from .files import Line

# How pip words a conflict: `pip check`, and the resolver after an installation.
PIP = (
    re.compile(r"^(?P<who>[\w.-]+) (?P<version>\S+) requires (?P<what>[\w.-]+), which is not installed\.?"),
    re.compile(r"^(?P<who>[\w.-]+) (?P<version>\S+) has requirement (?P<what>.+?), but you have (?P<have>.+?)\.?$"),
    re.compile(
        r"^(?P<who>[\w.-]+) (?P<version>\S+) requires (?P<what>.+?), but you have (?P<have>.+?) which is incompatible"
    ),
    re.compile(r"^(?P<who>[\w.-]+) (?P<version>\S+) is not supported on this platform"),
)
NO_CONFLICT = "No broken requirements found."


@dataclass(slots=True)
class Installed:
    """A package of a folder and the line that told of it."""

    name: str
    version: str
    requires: list[str]
    folder: str
    python: str
    line: Line


@dataclass(slots=True)
class Listing:
    """One answer of the probe. `problems` are facts (key below `package.`, value, line) of the folders themselves."""

    packages: list[Installed] = field(default_factory=list)
    pythons: dict[str, str] = field(default_factory=dict)  # folder -> version of its interpreter
    problems: list[tuple[str, str, Line]] = field(default_factory=list)


def normal(name: str) -> str:
    """The name under which packages are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def listing(text: str) -> Listing:
    """What the probe printed."""
    found = Listing()
    for line in output_lines(text):
        try:
            said: dict[str, Any] = json.loads(line.data)
        except ValueError:
            continue
        if not isinstance(said, dict):
            continue
        if {"name", "version", "requires", "folder", "python"} <= set(said):
            where = str(said["folder"])
            requires = [str(r) for r in said["requires"]] if isinstance(said["requires"], list) else []
            package = Installed(str(said["name"]), str(said["version"]), requires, where, str(said["python"]), line)
            found.packages.append(package)
        elif "remains" in said:
            found.problems.append(("remains", f"{said['remains']} in {said.get('folder')}", line))
        elif "broken" in said:
            found.problems.append(("broken", f"{said['broken']} in {said.get('folder')} has no metadata", line))
        elif "folder" in said:
            found.pythons[str(said["folder"])] = str(said.get("python") or "")
    return found


def conflicts(found: Listing) -> Iterator[tuple[str, str, Line]]:
    """Duplicates, requirements that are not met, and packages for another Python.

    Yields:
        key below `package.`, the conflict in words, the line of the package that has the requirement.
    """
    yield from found.problems
    by_name: dict[str, list[Installed]] = {}
    for package in found.packages:
        by_name.setdefault(normal(package.name), []).append(package)
    for same in by_name.values():
        here = [p for p in same if p.folder == same[0].folder]
        if len({p.version for p in here}) > 1:
            both = " and ".join(p.version for p in here)
            yield "duplicate", f"{here[0].name} is installed as {both} in one folder", here[-1].line
    for package in found.packages:
        yield from _unmet(package, by_name, found.pythons.get(package.folder, ""))


def _unmet(package: Installed, by_name: dict[str, list[Installed]], python: str) -> Iterator[tuple[str, str, Line]]:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    who = f"{package.name} {package.version}"
    try:
        if python and package.python and f"{python}.99" not in SpecifierSet(package.python):
            yield "other_python", f"{who} requires Python {package.python}, this is {python}", package.line
    except InvalidSpecifier:
        pass
    machine = {"python_version": python, "python_full_version": f"{python}.99"} if python else {}
    for text in package.requires:
        try:
            wanted = Requirement(text)
            applies = wanted.marker is None or wanted.marker.evaluate({**machine, "extra": ""})
        except (InvalidRequirement, ValueError, KeyError):
            continue
        if not applies:
            continue
        have = by_name.get(normal(wanted.name), [])
        if not have:
            yield "missing", f"{who} requires {wanted.name}{wanted.specifier}, which is not installed", package.line
        elif not any(_meets(p.version, wanted.specifier) for p in have):
            is_now = f"installed is {have[0].version}"
            yield "conflict", f"{who} requires {wanted.name}{wanted.specifier}, {is_now}", package.line


def _meets(version: str, specifier: Any) -> bool:
    from packaging.version import InvalidVersion

    try:
        return specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return True  # cannot be judged: no accusation


def told_by_pip(text: str) -> tuple[str, str] | None:
    """The conflict that a line of pip states, as key below `package.` and the line's words."""
    head = text.strip()[:400]
    for pattern in PIP:
        if pattern.match(head):
            return ("missing" if "not installed" in head else "conflict"), head.rstrip(".")
    return None
