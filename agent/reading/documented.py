"""What a README says a run was made with, against what this run is told: the setting that was not copied."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .files import Line, RunFile
from .settings import Setting, read_settings

if TYPE_CHECKING:
    from ..workspace import Workspace

READ = 64 << 10  # bytes of one such file
_PAGE = re.compile(r"(?i)(?:^|/)(?:readme|model_?card|reproduc\w*|recipe\w*|training|notes?)[\w.-]*\.(?:md|rst|txt)$")
_PAIR = re.compile(
    r"(?<![\w.])-{0,2}(?P<key>[A-Za-z][A-Za-z0-9_-]{1,30})(?: of| is|:| ?=)? ?`?"
    r"(?P<value>\d+(?:\.\d+)?(?:[eE]-?\d+)?)\b"
)
_AGREE = 2  # settings that a page and the run have alike, before the page is taken for one about this run
_APART = 2  # settings in which they may differ; a page of another experiment differs in many


@dataclass(frozen=True, slots=True)
class Undone:
    """A setting as it is documented and as it is, with the lines of both."""

    name: str
    documented: float
    set: float
    places: tuple[tuple[RunFile, Line], ...]


def documented(ws: Workspace) -> Iterator[Undone]:
    """Settings of the run that differ from those a page of it names, where the page agrees with the run otherwise."""
    for page in ws.files:
        if page.good or not _PAGE.search(page.name) or page.size > READ:
            continue
        said = _said(ws, page)
        own = _own(ws, page)
        both = [key for key in said if key in own]
        apart = [key for key in both if said[key][0] != own[key][1]]
        if len(both) - len(apart) >= _AGREE and 0 < len(apart) <= _APART:
            for key in apart:
                setting, value = own[key]
                places = ((setting.file, setting.line), (page, said[key][1]))
                yield Undone(setting.key, said[key][0], value, places)


def _said(ws: Workspace, page: RunFile) -> dict[str, tuple[float, Line]]:
    """Names with the one number that the page gives them."""
    found: dict[str, list[tuple[float, Line]]] = defaultdict(list)
    for line in ws.lines(page):
        for m in _PAIR.finditer(line.text[:4000]):
            found[m["key"].lower().replace("-", "_")].append((float(m["value"]), line))
    return {key: pairs[0] for key, pairs in found.items() if len({value for value, _ in pairs}) == 1}


def _own(ws: Workspace, page: RunFile) -> dict[str, tuple[Setting, float]]:
    """The run's settings by the last part of their key, where they have one value."""
    found: dict[str, list[tuple[Setting, float]]] = defaultdict(list)
    for s in read_settings(ws).all:
        if s.file is page or s.file.good or s.default or isinstance(s.value, bool):
            continue
        if isinstance(s.value, int | float):
            found[s.key.rpartition(".")[2].lower().replace("-", "_")].append((s, float(s.value)))
    return {key: pairs[0] for key, pairs in found.items() if len({value for _, value in pairs}) == 1}
