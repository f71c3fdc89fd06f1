"""A diagnostic, declared once: its signature is the schema, the validation, the command line and the card."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from ..core.deadline import Deadline
from ..core.errors import DoctorError, ParseError, ToolError
from ..core.types import Evidence, Risk, ToolResult
from ..reading.run.workspace import Workspace


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

    def declared(self, facts: list[Evidence]) -> list[Evidence]:
        """Of all that was seen what is evidence; the rest only informs, in the text."""
        return [e for e in facts if self.allows(e.key)]

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


def tool(
    *, emits: tuple[str, ...], risk: Risk = Risk.READ, recall: bool = False, live: bool = False
) -> Callable[[Callable[..., ToolResult]], Tool]:
    """Declare a function `Workspace -> ToolResult` as a diagnostic.

    Args:
        emits: evidence keys it may produce, each read by something; `"settings.*"` admits a namespace.
        risk: what it may do to the world.
        recall: cheap enough to run over everything at the start of every diagnosis.
        live: it can look at this machine, so that it needs no file of a run. It does so where `ws.live` holds.
    """

    def declare(function: Callable[..., ToolResult]) -> Tool:
        return Tool(function.__name__, function, risk, emits, recall, live)

    return declare


@cache
def all_tools() -> dict[str, Tool]:
    """Every tool in the folders of agent/tools, by name, in alphabetical order. A new file is found by itself."""
    package = importlib.import_module(__package__ or "")
    found: dict[str, Tool] = {}
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
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


T = TypeVar("T")


def few(found: Iterable[T], each: int, same: Callable[[T], object]) -> Iterator[T]:
    """The first so many of those that are the same, in order; a thousand ranks may say one thing."""
    seen: Counter[object] = Counter()
    for one in found:
        seen[same(one)] += 1
        if seen[same(one)] <= each:
            yield one


def listed(evidence: Iterable[Evidence]) -> str:
    """Evidence as a text: a line each, with where it stands."""
    return "\n".join(f"{f'{e.file}:{e.line}' if e.file else 'this machine'} {e.key} = {e.value}" for e in evidence)


# ----------
# Work that a diagnosis survives: a call of a tool, what a report can do without. The only place that catches all.


def guarded(
    tool: Tool, ws: Workspace, args: dict[str, Any], seconds: float, stopped: Callable[[], bool] | None = None
) -> tuple[ToolResult, str]:
    """Run a tool within a time limit. Returns its result and, where it crashed, what to tell as a bug of ours.

    Args:
        stopped: whether nobody wants the result any more.
    """
    try:
        with Deadline(seconds, stopped):
            return tool(ws, **args), ""
    except (ToolError, ParseError, DoctorError, TimeoutError) as e:
        return failed(str(e)), ""
    except Exception as e:  # noqa: BLE001 - a bug in one tool must not cost the whole diagnosis; it is told as ours
        told = f"{type(e).__name__}: {e}"
        return failed(f"bug in doctor: {told}"), f"{tool.name} crashed ({told}); this is a bug in doctor"


def survived(name: str, work: Callable[[], None], seconds: float) -> str:
    """Do what a verdict can stand without; empty, or what to tell where it failed."""
    try:
        with Deadline(seconds):
            work()
        return ""
    except (DoctorError, TimeoutError) as e:
        return f"no {name}: {e}"
    except Exception as e:  # noqa: BLE001 - a bug in what comes after the verdict must not cost the verdict
        return f"no {name}: it crashed ({type(e).__name__}: {e}); this is a bug in doctor"
