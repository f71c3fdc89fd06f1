"""`doctor index`: the passages that a diagnosis and `index search` draw on."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ...core.own_files import KNOWLEDGE
from . import diagnosis_options

if TYPE_CHECKING:
    from ...core.types import ToolResult
    from ...reading.run.workspace import Workspace
    from ...tools.tool import Tool

index_app = typer.Typer(help="Build, extend and search the index of playbooks and documents.", no_args_is_help=True)


@index_app.command()
def build(quiet: diagnosis_options.Quiet = False) -> None:
    """Bring the index up to date; a current one is left as it is."""
    _build(quiet)


@index_app.command()
def add(
    files: Annotated[list[Path], typer.Argument(help="Markdown or text files.", metavar="FILES...")],
    quiet: diagnosis_options.Quiet = False,
) -> None:
    """Add documents of your own, and bring the index up to date."""
    from ....index import documents
    from ...core.config import settle
    from ...core.errors import UsageError
    from ...safety.fences import one_line
    from .output import print_line

    settle()
    try:
        names = documents.add(files)
    except documents.DocumentRefused as e:
        raise UsageError(str(e)) from None
    for name in names:
        print_line(f"added {one_line(name)}")
    _build(quiet)


@index_app.command()
def remove(
    names: Annotated[list[str], typer.Argument(help="Names as `doctor index status` lists them.", metavar="NAMES...")],
    quiet: diagnosis_options.Quiet = False,
) -> None:
    """Take documents of your own out again, and bring the index up to date."""
    from ....index import documents
    from ...core.config import settle
    from ...core.errors import UsageError
    from ...safety.fences import one_line
    from .output import print_line

    settle()
    for name in names:
        if not documents.remove(name):
            raise UsageError(f"no document {name!r} was added", "`doctor index status` lists them")
        print_line(f"removed {one_line(name)}")
    _build(quiet)


@index_app.command()
def search(
    query: Annotated[str, typer.Argument(help="What to look for, in your own words.")],
    json: diagnosis_options.Json = False,
    limit: Annotated[int, typer.Option("--limit", "-k", min=1, help="How many passages at most.")] = 5,
) -> None:
    """Find passages that answer a question; none when nothing bears on it."""
    from ....index import search as searching
    from ...core.config import settle
    from ...safety.fences import inert, one_line
    from .output import print_json, print_line

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


@index_app.command()
def measure(
    questions: Annotated[
        Path | None, typer.Argument(help="Questions of your own, in the form of the built-in ones.", show_default=False)
    ] = None,
    json: diagnosis_options.Json = False,
) -> None:
    """Measure how well questions find their passages, and how well what nobody knows is refused."""
    from ....evals import retrieval
    from ....index.places import Sources
    from ...core.config import settle
    from ...core.errors import UsageError
    from ...safety.fences import one_line
    from .output import print_json, print_line

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


@index_app.command()
def status(json: diagnosis_options.Json = False) -> None:
    """Say what is indexed and whether it is current."""
    from dataclasses import asdict

    from ....index.status import status as index_status
    from ...core.config import settle
    from ...safety.fences import one_line
    from .output import print_json, print_line

    settle()
    found = asdict(index_status())
    if json:
        print_json(found)
        return
    for name, value in found.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
        print_line(f"{name}: {one_line(str(shown)) or '-'}")


def _build(quiet: bool) -> None:
    from ....index.build import build as build_index
    from ...core.config import settle

    pass
    from .output import print_line

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


# ----------
# `doctor playbook`: what doctor knows, whether it proves itself, and which causes it covers.

playbook_app = typer.Typer(help="Read and check the playbooks: one file for each failure mode.", no_args_is_help=True)


@playbook_app.command(name="list")
def listing(
    family: Annotated[str, typer.Argument(help="Only this family, such as `memory`.")] = "",
    json: diagnosis_options.Json = False,
) -> None:
    """List all playbooks with the cause each stands for."""
    from ...core.config import settle
    from ...core.playbook import playbooks
    from ...safety.fences import one_line
    from .output import print_json, print_line

    settle()
    found = [p for p in playbooks() if p.slug.startswith(f"{family}/") or not family]
    if json:
        print_json([{"slug": p.slug, "cause": p.cause, "title": p.title} for p in found])
        return
    width = max((len(p.slug) for p in found), default=0)
    for p in found:
        print_line(f"{p.slug:<{width}}  {one_line(p.title)}")


@playbook_app.command()
def show(slug: Annotated[str, typer.Argument(help="As `doctor playbook list` shows it, or a cause.")]) -> None:
    """Print a playbook as it stands in its file."""
    from pathlib import Path

    from ...core.config import settle
    from ...core.errors import UsageError
    from ...core.playbook import playbooks
    from ...safety.fences import inert
    from .output import print_line

    settle()
    found = [p for p in playbooks() if p.slug == slug] or [p for p in playbooks() if p.cause == slug]
    if not found:
        raise UsageError(f"no playbook {slug!r}", "`doctor playbook list` shows them")
    for p in found:
        print_line(inert(Path(p.path).read_text(encoding="utf-8")).rstrip())


@playbook_app.command()
def check(
    folder: Annotated[
        str, typer.Argument(help="A knowledge folder of your own.", show_default="the built-in one")
    ] = "",
) -> int:
    """Prove playbooks: examples, keys, causes, checks and repairs, by file and line. Exit code 1 when one fails.

    What is only incomplete is told too, and fails nothing.
    """
    from pathlib import Path

    from ...core.errors import UsageError
    from ...safety.fences import one_line
    from .output import print_line

    if folder and not Path(folder).is_dir():
        raise UsageError(f"no such folder: {folder}")
    number, wrong, lacking = _faults(Path(folder) if folder else KNOWLEDGE)
    for fault in wrong:
        print_line(one_line(fault))
    for gap in lacking:
        print_line(f"{one_line(gap)} (incomplete)")
    print_line(f"{number} playbooks, {len(wrong)} faults, {len(lacking)} gaps")
    return 1 if wrong else 0


def _faults(folder: Path) -> tuple[int, list[str], list[str]]:
    """How many playbooks a folder holds, what is wrong with them and what they lack; a broken one hides no other."""
    from ...core.errors import KnowledgeError
    from ...core.playbook import parse, playbook_files, playbooks
    from ...session.playbook_proofs import faults, gaps

    found, wrong = [], []
    paths = playbook_files(folder)
    for slug, path in paths:
        try:
            found.append(parse(path.read_text(encoding="utf-8"), slug, str(path)))
        except (KnowledgeError, OSError, UnicodeDecodeError) as e:
            wrong.append(str(e) if isinstance(e, KnowledgeError) else f"{path}:1: {e}")
    known = found if folder == KNOWLEDGE else [*found, *playbooks()]  # a team's own may name signatures of ours
    wrong += [fault for p in found for fault in faults(p, known)]
    return len(paths), wrong, [gap for p in found for gap in gaps(p)]


@playbook_app.command()
def new(
    cause: Annotated[str, typer.Argument(help="A cause, as `doctor playbook coverage --causes` lists them.")],
    slug: Annotated[str, typer.Argument(help="Name of the file.", show_default="that of the cause")] = "",
    folder: Annotated[
        str, typer.Option("--folder", help="Knowledge folder it goes into.", show_default="the first of yours")
    ] = "",
) -> None:
    """Begin a playbook: a file whose proofs fail until it is filled in."""
    import os
    from pathlib import Path

    from ...core.config import settle
    from ...core.errors import UsageError
    from ...core.playbook import causes
    from ...session.playbook_proofs import skeleton
    from .output import print_line

    own = settle().knowledge.split(os.pathsep)[0]
    if cause not in causes():
        raise UsageError(f"no cause {cause!r}", "`doctor playbook coverage --causes` lists them")
    family, _, name = cause.partition(".")
    if slug and not slug.replace("_", "").isalnum():
        raise UsageError(f"{slug!r} is no file name", "use lower-case letters, digits and underscores")
    where = Path(folder or own or "knowledge")
    path = where / family / f"{slug or name}.md"
    if path.exists():
        raise UsageError(f"{path} is there already", "give the new one a name: doctor playbook new CAUSE NAME")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(skeleton(cause), encoding="utf-8")
    print_line(str(path))
    print_line(f"Fill it in until this finds nothing: doctor playbook check {where}")


@playbook_app.command()
def coverage(
    json: diagnosis_options.Json = False,
    by_cause: Annotated[bool, typer.Option("--causes", help="List every cause with its playbooks.")] = False,
) -> int:
    """Say which causes have a playbook, and what the playbooks hold. Exit code 1 when a cause has none."""
    from ...core.config import settle
    from ...core.playbook import playbooks
    from ...session.playbook_proofs import covered, table
    from .output import print_json, print_line

    settle()
    slugs = covered(playbooks())
    if json:
        print_json(slugs)
    elif by_cause:
        for cause, found in slugs.items():
            print_line(f"{cause:<32} {', '.join(found) or '-'}")
    else:
        for row in table(playbooks()):
            print_line(row)
    return 0 if all(slugs.values()) else 1


# ----------
# The pattern databases, compiled before a diagnosis has to wait for them.


def compile_patterns() -> int:
    """Compile what the log pass scans with into the cache; at once when that is current. Returns how many patterns."""
    from ...core.playbook import playbooks
    from ...reading.scan.anchors import anchor_patterns
    from ...reading.scan.logpass import signature_patterns
    from ...reading.scan.patterns import scanner

    known = playbooks()
    patterns = [*signature_patterns(known), *anchor_patterns()]
    examples = "\n".join(line for p in known for s in p.signatures for line in s.matches[:1])
    scanner(patterns).scan(f"{examples}\n".encode())  # each database is made when it is first needed
    return len(patterns)


# ----------
# `doctor tool NAME`: every diagnostic alone. The options come from the tool's own signature.


class _Tools(TyperGroup):
    """A command for each tool, made when it is asked for: listing them imports them all, `doctor --help` must not."""

    def list_commands(self, ctx: Any) -> list[str]:
        from ...tools.tool import all_tools

        return [name.replace("_", "-") for name in all_tools()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from ...tools.tool import all_tools

        found = all_tools().get(cmd_name.replace("-", "_"))
        return _command(found) if found else None


tool_app = typer.Typer(
    cls=_Tools, help="Run one diagnostic alone; without a name, list them.", invoke_without_command=True
)


@tool_app.callback()
def tools(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        _list()


def _list() -> None:
    from ...tools.tool import all_tools
    from .output import print_line

    for name, tool in all_tools().items():
        print_line(f"{name.replace('_', '-'):<18} {tool.title}")


def _command(tool: Tool) -> Any:
    """A command whose parameters are those of the tool, after the run's paths."""
    single = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})
    single.command(name=tool.name.replace("_", "-"), help=tool.description)(_body(tool))
    return typer.main.get_command(single)


def _body(tool: Tool) -> Any:
    def run(**given: Any) -> None:
        from ...core.config import settle
        from ...core.types import Risk
        from .diagnosis_options import workspace

        settle()
        paths, as_json, pids = given.pop("paths"), given.pop("as_json"), given.pop("pid", None)
        good = given.pop("good", None)
        # what is named in full needs no file beside it: `estimate-memory --config NAME`
        fields = tool.arguments.model_fields
        asked = any(value != fields[name].default for name, value in given.items())
        # a folder that is named may be another machine's: it is then looked at as in a diagnosis
        here = tool.live and (asked or not paths or tool.risk is not Risk.READ)
        ws = workspace(paths, good, live=here or None, pids=pids, may_be_empty=asked and not paths)
        _run(tool, ws, as_json, {k: v for k, v in given.items() if v is not None})

    keyword = inspect.Parameter.KEYWORD_ONLY
    paths = Annotated[
        list[str] | None,
        typer.Argument(help="Folders or files of the run; '-' is standard input.", show_default="this folder"),
    ]
    parameters = [
        inspect.Parameter("paths", keyword, default=None, annotation=paths),
        *(_parameter(name, field) for name, field in tool.arguments.model_fields.items()),
        inspect.Parameter("good", keyword, default=None, annotation=diagnosis_options.Good),
        *([inspect.Parameter("pid", keyword, default=None, annotation=diagnosis_options.Pid)] if tool.live else []),
        inspect.Parameter("as_json", keyword, default=False, annotation=diagnosis_options.Json),
    ]
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _parameter(name: str, field: Any) -> inspect.Parameter:
    """A tool's parameter as an option of the same name."""
    required = field.is_required()
    default = inspect.Parameter.empty if required else field.get_default(call_default_factory=True)
    option = typer.Option(f"--{name.replace('_', '-')}", help=field.description or "")
    annotation = Annotated[field.annotation, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _run(tool: Tool, ws: Workspace, as_json: bool, arguments: dict[str, Any]) -> None:
    from ...core.errors import ParseError, ToolError
    from ...core.types import ToolResult
    from .output import print_json

    try:
        result = tool(ws, **arguments)
    except (ToolError, ParseError) as e:
        result = ToolResult("failed", str(e), text=str(e))
    if as_json:
        print_json(_as_data(tool, result))
    else:
        _show(result)


def _as_data(tool: Tool, result: ToolResult) -> dict[str, Any]:
    return {
        "tool": tool.name, "outcome": result.outcome, "summary": result.summary,
        "evidence": [e.as_dict() for e in result.evidence], "text": result.text, "more": result.more,
    }  # fmt: skip


def _show(result: ToolResult) -> None:
    from ...safety.fences import inert, one_line
    from .output import print_line

    print_line(f"{result.outcome.replace('_', ' ')}: {one_line(result.summary)}")
    if result.text and result.text != result.summary:
        print_line(inert(result.text))
    for e in result.evidence:
        where = f"{e.file}:{e.line}" if e.file and e.line else e.file or " ".join(e.argv or ())
        print_line(one_line(f"  {e.key} = {e.value!r}  {'not there' if e.kind == 'absent' else where}"))
