"""One answer of a model as it came over the wire, and what can go wrong on the way."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the model wrote it; `arguments` is its raw text, not yet parsed by anyone."""

    id: str
    name: str
    arguments: str


@dataclass(slots=True)
class Turn:
    """A whole answer.

    Attributes:
        finish: the server's reason for ending: `stop`, `tool_calls`, `length`, `content_filter`, or empty.
        reasoning: what the model thought aloud in a channel of its own.
        tokens_in: of the prompt, by the server's count; where it gave none, guessed from bytes (`guessed`).
    """

    content: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    finish: str = ""
    reasoning: str = ""
    refusal: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    guessed: bool = False
    seconds: float = 0.0


class ModelTrouble(Exception):
    """The model could not be had: one line that says what happened and, where the user can help, what to do.

    Attributes:
        kind: `key`, `model`, `overflow`, `tools`, `refused`, `busy`, `server`, `connection`, `timeout`, `cut`,
            `garbled`, `endless` or `stopped`.
        tokens_in: what the failed attempts cost as far as it is known; likewise `tokens_out`.
    """

    def __init__(self, kind: str, message: str, tokens_in: int = 0, tokens_out: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.tokens_in = tokens_in
        self.tokens_out = tokens_out
