"""`doctor index`: the passages that a diagnosis and `index search` draw on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from . import options

app = typer.Typer(help="Build, extend and search the index of playbooks and documents.", no_args_is_help=True)


@app.command()
def build(quiet: options.Quiet = False) -> None:
    """Bring the index up to date; a current one is left as it is."""
    _build(quiet)


@app.command()
def add(
    files: Annotated[list[Path], typer.Argument(help="Markdown or text files.", metavar="FILES...")],
    quiet: options.Quiet = False,
) -> None:
    """Add documents of your own, and bring the index up to date."""
    from ...index import documents
    from ..config import settle
    from ..errors import UsageError
    from ..sanitize import one_line
    from .streams import print_line

    settle()
    try:
        names = documents.add(files)
    except documents.DocumentRefused as e:
        raise UsageError(str(e)) from None
    for name in names:
        print_line(f"added {one_line(name)}")
    _build(quiet)


@app.command()
def remove(
    names: Annotated[list[str], typer.Argument(help="Names as `doctor index status` lists them.", metavar="NAMES...")],
    quiet: options.Quiet = False,
) -> None:
    """Take documents of your own out again, and bring the index up to date."""
    from ...index import documents
    from ..config import settle
    from ..errors import UsageError
    from ..sanitize import one_line
    from .streams import print_line

    settle()
    for name in names:
        if not documents.remove(name):
            raise UsageError(f"no document {name!r} was added", "`doctor index status` lists them")
        print_line(f"removed {one_line(name)}")
    _build(quiet)


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="What to look for, in your own words.")],
    json: options.Json = False,
    limit: Annotated[int, typer.Option("--limit", "-k", min=1, help="How many passages at most.")] = 5,
) -> None:
    """Find passages that answer a question; none when nothing bears on it."""
    from ...index import search as searching
    from ..config import settle
    from ..sanitize import inert, one_line
    from .streams import print_json, print_line

    settle()
    found = searching.search(query, k=limit)
    if found.degraded:
        sys.stderr.write(f"doctor: {one_line(found.degraded)}\n")
    if json:
        print_json([r.as_dict() for r in found])
        return
    if not found:
        print_line("Nothing in the index bears on that.")
    for r in found:
        print_line(f"{r.score:.2f}  {one_line(' > '.join([r.document, *r.headings]))}")
        print_line("\n".join(f"    {line}" for line in inert(r.text).splitlines()[:12]))


@app.command()
def measure(
    questions: Annotated[
        Path | None, typer.Argument(help="Questions of your own, in the form of the built-in ones.", show_default=False)
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure how well questions find their passages, and how well what nobody knows is refused."""
    from ...evals import retrieval
    from ...index.places import Sources
    from ..config import settle
    from ..errors import UsageError
    from ..sanitize import one_line
    from .streams import print_json, print_line

    settle()
    try:
        table = retrieval.measure(Sources(), path=questions or retrieval.QUESTIONS)
    except retrieval.QuestionsUnusable as e:
        raise UsageError(str(e)) from None
    if json:
        print_json(retrieval.as_dict(table))
        return
    for row in retrieval.lines(table):
        print_line(row)
    best = table.get("both") or table["words"]
    for name, score in best.items():
        if name != "nothing":
            for question in score.missed:
                print_line(f"not among the first three of {name}: {one_line(question)}")


@app.command()
def status(json: options.Json = False) -> None:
    """Say what is indexed and whether it is current."""
    from dataclasses import asdict

    from ...index.status import status as index_status
    from ..config import settle
    from ..sanitize import one_line
    from .streams import print_json, print_line

    settle()
    found = asdict(index_status())
    if json:
        print_json(found)
        return
    for name, value in found.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
        print_line(f"{name}: {one_line(str(shown)) or '-'}")


def _build(quiet: bool) -> None:
    from ...index.build import build as build_index
    from ..config import settle
    from .patterns import compile_patterns
    from .streams import print_line

    settle()
    with _progress(quiet) as tell:
        tell("compiling patterns", 0, 1)
        compile_patterns()
        tell("compiling patterns", 1, 1)
        built = build_index(progress=tell)
    print_line(
        f"{built.documents} documents, {built.chunks} passages"
        + (", searched by words and by meaning" if built.vectors else f", searched by words alone: {built.why}")
    )


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each stage of a build, on standard error; one line a stage where there is no terminal."""
    if quiet:
        yield lambda stage, done, total: None
        return
    if not sys.stderr.isatty():
        seen: set[str] = set()

        def line(stage: str, done: int, total: int) -> None:
            if stage not in seen:
                seen.add(stage)
                sys.stderr.write(f"{stage} ...\n")

        yield line
        return
    from rich.console import Console
    from rich.progress import Progress, TaskID

    with Progress(console=Console(stderr=True), transient=True) as bar:
        stages: dict[str, TaskID] = {}

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages[stage] = bar.add_task(stage, total=total)
            bar.update(stages[stage], completed=done, total=total)

        yield advance
