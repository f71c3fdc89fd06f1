"""A check that the user names, as `verify-checkpoint path=ckpt/step-1000`: from words to a call."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from ..core.errors import UsageError
from ..core.types import Call
from ..tools.tool import Tool, all_tools


def named_check(words: Sequence[str]) -> Call:
    """The call that words mean: a tool's name, then its arguments, `name=value`, `--name value` or in their order.

    Raises:
        UsageError: no such tool, or the arguments do not fit it.
    """
    name, given = words[0].replace("-", "_").lower(), list(words[1:])
    tool = all_tools().get(name)
    if tool is None:
        near = difflib.get_close_matches(name, all_tools(), n=1)
        hint = f"did you mean {near[0].replace('_', '-')}?" if near else "`/tool ` lists them while you type"
        raise UsageError(f"no check {words[0][:60]}", hint)
    return Call(name, _checked(tool, _arguments(tool, given)), why="you asked for it")


def _arguments(tool: Tool, given: list[str]) -> dict[str, Any]:
    fields = list(tool.arguments.model_fields)
    found: dict[str, Any] = {}
    while given:
        word = given.pop(0)
        name, sign, value = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if word.startswith("--") and not sign:
            plain = tool.arguments.model_fields.get(name)
            value = "true" if plain is not None and plain.annotation is bool else given.pop(0) if given else ""
        elif not sign or not (name.isidentifier() or word.startswith("--")):  # `./a=b.pt` is a path
            left = [f for f in fields if f not in found]
            if not left:
                raise UsageError(f"{_said(tool)} takes no further argument: {word[:60]}", _usage(tool))
            name, value = left[0], word
        if name not in fields:
            raise UsageError(f"{_said(tool)} has no argument {name[:60]}", _usage(tool))
        found[name] = value
    return found


def _checked(tool: Tool, given: dict[str, Any]) -> dict[str, Any]:
    """Values as the tool takes them: text where that fits, else what the text says as JSON."""
    try:
        known = tool.arguments(**{name: _value(tool, name, text) for name, text in given.items()})
    except ValidationError as e:
        first = e.errors()[0]
        raise UsageError(f"{_said(tool)}: {'.'.join(map(str, first['loc']))}: {first['msg']}", _usage(tool)) from None
    return {name: getattr(known, name) for name in given}


def _value(tool: Tool, name: str, text: str) -> Any:
    if tool.arguments.model_fields[name].annotation is str:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _said(tool: Tool) -> str:
    return tool.name.replace("_", "-")


def _usage(tool: Tool) -> str:
    fields = tool.arguments.model_fields
    names = [f"{n}=..." if f.is_required() else f"[{n}=...]" for n, f in fields.items()]
    return f"/tool {_said(tool)} {' '.join(names)}".rstrip()
