"""What a client sees of a tool and gets from it; how its raw arguments are read."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ..errors import ToolError
from .runs import Runs

Tell = Callable[[int, str], None]  # checks done so far, and what goes on now


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back: a text, for a diagnosis its report as data too. A failure is one line."""

    text: str
    structured: dict[str, Any] | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool as the client sees it. `call` takes the client's raw arguments and may raise DoctorError or ToolError."""

    name: str
    title: str
    description: str
    schema: dict[str, Any]
    call: Callable[[dict[str, Any], Tell], Answer]
    output: dict[str, Any] | None = None


def with_run(schema: dict[str, Any], runs: Runs) -> dict[str, Any]:
    """A tool's own schema and the run it shall look at."""
    schema = copy.deepcopy(schema)
    told: dict[str, Any] = {"type": "string", "title": "Run"}
    if runs.roots:
        told |= {"default": "", "description": "a folder or file inside what the user named; empty: all of that"}
    else:
        told |= {"description": "absolute path of the run's folder or file; empty where no run is concerned"}
        schema["required"] = [*schema.get("required", []), "run"]
    schema["properties"] = {**schema.get("properties", {}), "run": told}
    return schema


def named_run(given: dict[str, Any], runs: Runs) -> tuple[str, dict[str, Any]]:
    """The client's `run` and its other arguments.

    Raises:
        ToolError: it is missing where it is needed, or no text.
    """
    rest = {name: value for name, value in given.items() if name != "run"}
    run = given.get("run", "" if runs.roots else None)
    if run is None:
        raise ToolError("argument 'run': name the folder or file of the run; empty where no run is concerned")
    if not isinstance(run, str):
        raise ToolError("argument 'run': must be text")
    return run, rest


def valid(model: type, given: dict[str, Any]) -> Any:
    """The arguments of a call, checked.

    Raises:
        ToolError: they do not fit; one line.
    """
    try:
        return model(**given)
    except ValidationError as e:
        first = e.errors()[0]
        raise ToolError(f"argument {'.'.join(map(str, first['loc']))!r}: {first['msg']}") from None
