"""Every name the map and the fixes use exists where `knowledge/checked.yaml` says it was looked up."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from traindoctor.agent.core.playbook import KNOWLEDGE, Fix, parse
from traindoctor.agent.reading.settings.settings_map import normal, settings_map

CHECKED: dict[str, Any] = yaml.safe_load((KNOWLEDGE / "checked.yaml").read_text(encoding="utf-8"))
FRAMEWORKS: dict[str, dict[str, Any]] = CHECKED["frameworks"]
INSTALLED = [name for name, entry in FRAMEWORKS.items() if entry.get("installed")]
FLAG = re.compile(r"(?<![\w-])--([A-Za-z][\w-]*(?:\.\w+)*)")
EXPORT = re.compile(r"(?<![\w$])([A-Z][A-Z0-9]*_\w+)=(?=\S)")
ARGUMENT = re.compile(r"(?<![\w.\-/$%])([a-z_]\w*(?:\.\w+)*)=(?![=\s])")


def spellings(framework: str) -> list[tuple[str, ...]]:
    """The dotted spellings that the map gives a framework, in parts."""
    canonical = settings_map().canonical.values()
    found = [s.segments for c in canonical for s in c.spelled.get(framework, ())]
    return [(first.lstrip("="), *rest) for first, *rest in found]


def names_of(path: Path) -> Iterator[str]:
    """What a file declares: fields, parameters, flags, keys it looks up, and constants that hold a key."""
    constants = path.name.endswith(("constants.py", "config.py"))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.arg(arg=name):
                yield name
            case ast.keyword(arg="alias", value=ast.Constant(value=str(name))):
                yield name
            case ast.Call(func=ast.Attribute(attr="add_argument" | "get" | "pop" | "setdefault"), args=args):
                yield from (a.value for a in args if isinstance(a, ast.Constant) and isinstance(a.value, str))
            case ast.Subscript(slice=ast.Constant(value=str(name))):
                yield name
            case ast.Assign(value=ast.Constant(value=str(name))) if constants:
                yield name
            case ast.Dict(keys=keys):
                yield from (k.value for k in keys if isinstance(k, ast.Constant) and isinstance(k.value, str))
            case _:
                pass


@cache
def declared(framework: str) -> frozenset[str]:
    """Names in the files of the installed package that the table names."""
    found: set[str] = set()
    for file in FRAMEWORKS[framework]["files"]:
        package, _, rest = file.partition("/")
        spec = importlib.util.find_spec(package)
        assert spec and spec.submodule_search_locations, f"{package} is not installed"
        paths = list(Path(next(iter(spec.submodule_search_locations))).glob(rest))
        assert paths, f"{file} is not in the installed package"
        found |= {normal(name) for path in paths for name in names_of(path)}
    return frozenset(found)


def elsewhere(framework: str) -> set[str]:
    return {s for names in FRAMEWORKS[framework].get("elsewhere", {}).values() for s in names}


@pytest.mark.parametrize("framework", INSTALLED)
def test_spellings_exist_in_the_installed_package(framework):
    other = elsewhere(framework)
    for segments in spellings(framework):
        dotted = ".".join(segments)
        missing = [part for part in segments if part not in declared(framework)]
        assert dotted in other or not missing, (
            f"{framework}: {dotted}: {FRAMEWORKS[framework]['files']} have no {missing}"
        )


@pytest.mark.parametrize("framework", INSTALLED)
def test_what_is_said_to_live_elsewhere_does(framework):
    for dotted in elsewhere(framework):
        parts = dotted.split(".")
        assert any(part not in declared(framework) for part in parts), f"{dotted} is in the installed release too"


@pytest.mark.parametrize("framework", INSTALLED)
def test_the_installed_release_is_the_one_recorded(framework):
    package, release = FRAMEWORKS[framework]["releases"][0].split()
    assert version(package).split("+")[0] == release


@pytest.mark.parametrize("framework", sorted(settings_map().frameworks))
def test_every_framework_was_compared_with_a_release(framework):
    found = spellings(framework)
    entry = FRAMEWORKS.get(framework)
    if not found and entry is None:
        return
    assert entry, f"{framework} has spellings and no release they were compared with"
    assert entry["releases"]
    assert entry["files"]
    said = f"{framework} has {len(found)} spellings, {entry['spellings']} were compared with {entry['releases'][0]}"
    assert len(found) == entry["spellings"], f"{said}: look the new ones up, then record it in checked.yaml"
    assert elsewhere(framework) <= {".".join(s) for s in found}, "told of a spelling that the map does not have"


def known_variables() -> set[str]:
    return {name for names in CHECKED["environment"].values() for name in names}


def test_every_variable_has_a_reader():
    readers = {normal(name) for name in known_variables()}
    assert {normal(s[0]) for s in spellings("env")} <= readers


def fixes() -> Iterator[tuple[str, Fix]]:
    for path in sorted(KNOWLEDGE.glob("*/*.md")):
        slug = f"{path.parent.name}/{path.stem}"
        for fix in parse(path.read_text(encoding="utf-8"), slug, str(path)).fixes:
            yield slug, fix


ALL = list(fixes())


def test_fixes_set_settings_of_the_map():
    for slug, fix in ALL:
        assert set(fix.settings) <= set(settings_map().canonical), slug


def test_variables_of_fixes_have_a_reader():
    known = known_variables()
    for slug, fix in ALL:
        told = {m[1] for text in (*fix.commands, fix.text) for m in EXPORT.finditer(text)}
        for name in {*fix.env, *told} - known:
            pytest.fail(f"{slug}: who reads {name}? Look it up, then record it under environment in checked.yaml")


@cache
def known_words() -> frozenset[str]:
    """Last and whole parts of every spelling, and what is recorded beside the map."""
    every = {p for f in (*settings_map().frameworks, "also") for s in spellings(f) for p in (s[-1], ".".join(s))}
    beside = {normal(w) for part in ("flags", "arguments") for names in CHECKED[part].values() for w in names}
    return frozenset(every | beside)


def denied(word: str) -> bool:
    """A name that the table of folklore says does nothing, which a fix may name to say so."""
    entries = yaml.safe_load((KNOWLEDGE / "folklore.yaml").read_text(encoding="utf-8"))
    return any(re.search(e["spelled"], word) for e in entries)


def test_flags_and_arguments_of_fixes_exist():
    for slug, fix in ALL:
        for text in (*fix.commands, fix.text):
            for m in (*FLAG.finditer(text), *ARGUMENT.finditer(text)):
                word = m[1]
                assert normal(word) in known_words() or denied(word), (
                    f"{slug}: whose is {m[0]}? Look it up, then record it under flags or arguments in checked.yaml"
                )
