"""A diagnostic, declared once: its signature is the schema, the validation, the command line and the card."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from .errors import ToolError
from .types import Evidence, Risk, ToolResult

if TYPE_CHECKING:
    from .workspace import Workspace


@dataclass(frozen=True)
class Tool:
    """A declared diagnostic. `name` uses underscores; the command line shows hyphens."""

    name: str
    function: Callable[..., ToolResult]
    risk: Risk
    emits: tuple[str, ...]
    recall: bool
    live: bool = False

    @property
    def title(self) -> str:
        """First docstring line: title of the card, help of the command."""
        return (inspect.getdoc(self.function) or self.name).splitlines()[0]

    @property
    def description(self) -> str:
        """The whole docstring: what a model reads."""
        return inspect.getdoc(self.function) or ""

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """Pydantic model of the parameters after the workspace; unknown arguments are refused."""
        hints = get_type_hints(self.function, include_extras=True)
        parameters = list(inspect.signature(self.function).parameters.values())[1:]
        fields: dict[str, Any] = {
            p.name: (hints[p.name], ... if p.default is p.empty else p.default) for p in parameters
        }
        return create_model(f"{self.name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)

    def schema(self) -> dict[str, Any]:
        """The function schema an OpenAI-compatible model is offered."""
        return {"name": self.name, "description": self.description, "parameters": self.arguments.model_json_schema()}

    def allows(self, key: str) -> bool:
        """Whether `key` was declared in `emits` (a `namespace.*` admits all below it)."""
        return any(key == e or (e.endswith(".*") and key.startswith(e[:-1])) for e in self.emits)

    def __call__(self, ws: Workspace, **args: Any) -> ToolResult:
        """Validate the arguments and run.

        Raises:
            ToolError: the arguments do not fit, or the tool told a failure.
        """
        try:
            valid = self.arguments(**args)
        except ValidationError as e:
            first = e.errors()[0]
            where = ".".join(str(p) for p in first["loc"])
            raise ToolError(f"{self.name}: argument {where!r}: {first['msg']}") from None
        result = self.function(ws, **{k: getattr(valid, k) for k in type(valid).model_fields})
        result.evidence = [e if e.tool else e.with_(tool=self.name) for e in result.evidence]
        return result


def tool(*, emits: tuple[str, ...], risk: Risk = Risk.READ, recall: bool = False, live: bool = False) -> Callable:
    """Declare a function `Workspace -> ToolResult` as a diagnostic.

    Args:
        emits: evidence keys it may produce; `"settings.*"` admits a namespace.
        risk: what it may do to the world.
        recall: cheap enough to run over everything at the start of every diagnosis.
        live: it can look at this machine, so that it needs no file of a run. It does so where `ws.live` holds.
    """

    def declare(function: Callable[..., ToolResult]) -> Tool:
        return Tool(function.__name__, function, risk, emits, recall, live)

    return declare


@cache
def all_tools() -> dict[str, Tool]:
    """Every tool in agent/tools, by name, in alphabetical order. A new file there is found by itself."""
    package = importlib.import_module(f"{__package__}.tools")
    found: dict[str, Tool] = {}
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Tool):
                found[value.name] = value
    return dict(sorted(found.items()))


def finding(summary: str, evidence: list[Evidence], text: str = "", more: dict[str, Any] | None = None) -> ToolResult:
    """Something was seen that bears on a diagnosis."""
    return ToolResult("finding", summary, evidence, text or summary, more)


def clean(summary: str, evidence: list[Evidence] | None = None, text: str = "") -> ToolResult:
    """Looked, and nothing is wrong there. Absences that matter travel as evidence."""
    return ToolResult("clean", summary, evidence or [], text or summary)


def not_applicable(why: str) -> ToolResult:
    """There is nothing here that this tool could look at."""
    return ToolResult("not_applicable", why, [], why)


def failed(why: str) -> ToolResult:
    """There is something to look at, but it could not be checked."""
    return ToolResult("failed", why, [], why)
