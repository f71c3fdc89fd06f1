"""What a scripted model answers: words and calls, a failure, or an error with a status; and how recordings hold it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .faults import FAULTS, FaultKind


@dataclass(frozen=True, slots=True)
class Say:
    """An answer as a model gives it.

    Attributes:
        calls: names of tools with their arguments, as data or as the text that a model would write.
        finish: by default what fits: `tool_calls` or `stop`.
        usage: tokens in and out; by default guessed from bytes, `(0, 0)` sends none.
        piece: characters of text to an event.
    """

    content: str | None = None
    calls: Sequence[tuple[str, Any]] = ()
    finish: str = ""
    usage: tuple[int, int] | None = None
    reasoning: str = ""
    piece: int = 24

    def message(self, number: int) -> dict[str, Any]:
        """The assistant's message."""
        calls = [
            {
                "index": i,
                "id": f"call_{number}_{i}",
                "type": "function",
                "function": {"name": name, "arguments": a if isinstance(a, str) else json.dumps(a)},
            }
            for i, (name, a) in enumerate(self.calls)
        ]
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if calls:
            message["tool_calls"] = calls
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        return message


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure by its name in `evals.faults.FAULTS`, or one of its own."""

    kind: str
    own: FaultKind | None = None

    @property
    def row(self) -> FaultKind:
        """How it goes."""
        return self.own or FAULTS[self.kind]


@dataclass(frozen=True, slots=True)
class Refuse:
    """An error with a status, as recorded exchanges hold it."""

    status: int
    message: str
    retry_after: float | None = None


Answer = Say | Fault | Refuse
Script = Sequence[Any] | Callable[[dict[str, Any], int], Any]


def answer(said: Any) -> Answer:
    """An answer of a script in whatever form it was given.

    Raises:
        ValueError: it is none.
    """
    if isinstance(said, Say | Fault | Refuse):
        return said
    if isinstance(said, str):
        return Say(said)
    if isinstance(said, Mapping) and isinstance(error := said.get("error"), Mapping):
        return Refuse(int(error.get("status", 500)), str(error.get("message", "")), error.get("retry_after"))
    if isinstance(said, Mapping) and ("content" in said or "tool_calls" in said):
        calls = [(c["name"], c["arguments"]) for c in said.get("tool_calls") or ()]
        return Say(said.get("content"), calls, said.get("finish", ""), reasoning=said.get("reasoning", ""))
    raise ValueError(f"no answer of a model: {str(said)[:100]}")


def recorded(folder: Path) -> list[Answer]:
    """The answers of a recorded conversation: the `*.response.json` of a folder, in order of their names."""
    return [answer(json.loads(p.read_text(encoding="utf-8"))) for p in sorted(folder.glob("*.response.json"))]


def deltas(message: Mapping[str, Any], piece: int) -> Iterator[dict[str, Any]]:
    """A message in the pieces of a stream: text by so many characters, arguments of calls in two halves."""
    yield {"role": "assistant"}
    for name, value in message.items():
        if isinstance(value, str) and name != "role":
            yield from ({name: value[i : i + piece]} for i in range(0, len(value), piece))
        elif value is None:
            yield {name: None}
    for call in message.get("tool_calls", ()):
        function = call["function"]
        arguments = function["arguments"]
        if not isinstance(arguments, str) or len(arguments) < 4:
            yield {"tool_calls": [call]}
            continue
        half = len(arguments) // 2
        yield {"tool_calls": [{**call, "function": {**function, "arguments": arguments[:half]}}]}
        yield {"tool_calls": [{"index": call["index"], "function": {"arguments": arguments[half:]}}]}
