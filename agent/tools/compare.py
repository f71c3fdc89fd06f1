"""The one flag that differs: variants against each other, good against bad, asked against used."""

from __future__ import annotations

from collections.abc import Iterator

from ..reading.asked_done import not_done
from ..reading.contrasts import Contrast, asked_against_used, between_variants, between_versions
from ..reading.documented import documented
from ..reading.settings import plain_value, read_settings
from ..reading.versions import read_environment
from ..reading.vocabularies import renumbered
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

SHOWN = 40


@tool(emits=("compare.*",), recall=True)
def compare_settings(ws: Workspace) -> ToolResult:
    """Compare settings and versions across variants, against the good run, and asked against used.

    Use when one variant works and another does not, when a healthy run is given with --good, or when a setting
    seems to have no effect. Both lines of every difference are cited; a difference that stands alone is told as
    compare.only_difference.
    """
    reading, environment = read_settings(ws), read_environment(ws)
    variants, used = between_variants(reading)[:SHOWN], list(asked_against_used(reading))[:SHOWN]
    versions = list(between_versions(environment))[:SHOWN]
    unmet, other_words = list(not_done(ws))[:SHOWN], list(renumbered(ws))[:SHOWN]
    pages = list(documented(ws))
    if not (variants or used or versions or unmet or other_words or pages):
        many = {s.file.variant or s.file.run for s in reading.sources}
        return clean("no setting differs") if len(many) > 1 else not_applicable("nothing to compare settings with")
    evidence = [
        *(e for c in variants for e in _told(ws, "setting_differs", c, ("name", "a", "b", "where"))),
        *(e for c in used for e in _told(ws, "asked_used_differs", c, ("name", "asked", "used"))),
        *(e for c in versions for e in _told(ws, "version_differs", c, ("name", "a", "b", "where"))),
        *_alone(ws, variants, versions),
    ]
    for u in unmet:
        said = {"name": u.name, "asked": u.asked, "done": u.done}
        evidence += [ws.cite(file, line, "compare.asked_not_done", said) for file, line in u.places]
    evidence += [ws.cite(f, line, "compare.vocabulary_differs", v.says) for v in other_words for f, line in v.places]
    for d in pages:
        said = {"name": d.name, "documented": d.documented, "set": d.set}
        evidence += [ws.cite(file, line, "compare.documented_differs", said) for file, line in d.places]
    rows = [f"{c.name}: {c.a} / {c.b} ({c.where})" for c in (*variants, *versions)]
    rows += [f"{c.name}: asked {c.a}, used {c.b} ({c.where})" for c in used]
    rows += [f"{u.name}: asked {u.asked:g}, done {'not so many' if u.done is None else u.done}" for u in unmet]
    rows += [f"{d.name}: documented {d.documented:g}, set to {d.set:g}" for d in pages]
    rows += [v.says for v in other_words]
    summary = f"{len(variants)} settings differ between variants, {len(used) + len(unmet)} are not as asked"
    summary += f", {len(pages)} not as documented" if pages else ""
    summary += f", {len(versions)} versions differ"
    return finding(summary, evidence, "\n".join([summary, *rows]))


def _told(ws: Workspace, key: str, c: Contrast, names: tuple[str, ...]) -> Iterator[Evidence]:
    fields = dict(zip(names, (c.name, plain_value(c.a), plain_value(c.b), c.where), strict=False))
    for file, line in dict.fromkeys(c.places):
        yield ws.cite(file, line, f"compare.{key}", fields)


def _alone(ws: Workspace, variants: list[Contrast], versions: list[Contrast]) -> Iterator[Evidence]:
    """The only thing that differs, told by its name."""
    names = {c.name for c in (*variants, *versions)}
    if len(names) == 1:
        for c in (*variants, *versions):
            for file, line in dict.fromkeys(c.places):
                yield ws.cite(file, line, "compare.only_difference", c.name)
