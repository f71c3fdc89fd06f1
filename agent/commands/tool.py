"""`doctor tool NAME`: every diagnostic alone. The options come from the tool's own signature."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from . import options

if TYPE_CHECKING:
    from ..tool import Tool
    from ..types import ToolResult
    from ..workspace import Workspace


class _Tools(TyperGroup):
    """A command for each tool, made when it is asked for: listing them imports them all, `doctor --help` must not."""

    def list_commands(self, ctx: Any) -> list[str]:
        from ..tool import all_tools

        return [name.replace("_", "-") for name in all_tools()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from ..tool import all_tools

        found = all_tools().get(cmd_name.replace("-", "_"))
        return _command(found) if found else None


app = typer.Typer(cls=_Tools, help="Run one diagnostic alone; without a name, list them.", invoke_without_command=True)


@app.callback()
def tools(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        _list()


def _list() -> None:
    from ..tool import all_tools
    from .streams import print_line

    for name, tool in all_tools().items():
        print_line(f"{name.replace('_', '-'):<18} {tool.title}")


def _command(tool: Tool) -> Any:
    """A command whose parameters are those of the tool, after the run's paths."""
    single = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})
    single.command(name=tool.name.replace("_", "-"), help=tool.description)(_body(tool))
    return typer.main.get_command(single)


def _body(tool: Tool) -> Any:
    def run(**given: Any) -> None:
        from ..config import settle
        from ..types import Risk
        from .material import workspace

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
        inspect.Parameter("good", keyword, default=None, annotation=options.Good),
        *([inspect.Parameter("pid", keyword, default=None, annotation=options.Pid)] if tool.live else []),
        inspect.Parameter("as_json", keyword, default=False, annotation=options.Json),
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
    from ..errors import ParseError, ToolError
    from ..types import ToolResult
    from .streams import print_json

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
    from ..sanitize import inert, one_line
    from .streams import print_line

    print_line(f"{result.outcome.replace('_', ' ')}: {one_line(result.summary)}")
    if result.text and result.text != result.summary:
        print_line(inert(result.text))
    for e in result.evidence:
        where = f"{e.file}:{e.line}" if e.file and e.line else e.file or " ".join(e.argv or ())
        print_line(one_line(f"  {e.key} = {e.value!r}  {'not there' if e.kind == 'absent' else where}"))
