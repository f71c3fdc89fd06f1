"""The one door to a client, which is usually a model: no secret, no steering character, no endless text gets out."""

from __future__ import annotations

from threading import Lock
from typing import Any

from ..llm.fence import fenced, harmless
from ..redact import Redactor

CAP = 20_000  # bytes of one text


class Outgoing:
    """What leaves through here has its secrets replaced; the same secret has the same name in all answers."""

    def __init__(self) -> None:
        self._redactor = Redactor()
        self._lock = Lock()

    @property
    def redacted(self) -> int:
        """How many secrets were taken out so far."""
        return self._redactor.count

    def learn(self, text: str) -> None:
        """Read a text that does not leave: a secret it tells is taken out of all that does."""
        self._redact(text)

    def line(self, text: str) -> str:
        """One line in our own words that may name things of the run."""
        return " ".join(harmless(self._redact(text)).split())[:2000]

    def text(self, text: str, source: str, more: str = "") -> str:
        """Text of a run, labelled as data. What is over the cap is counted.

        Args:
            more: how to read on, where that is known; it may name files of the run.
        """
        shown, told = cut(self._redact(text), self.line(more))
        return fenced(shown, self.line(source)) + (f"\n{told}" if told else "")

    def data(self, value: Any) -> Any:
        """Plain data with every string in it redacted and inert. A string is looked at beside its key."""
        if isinstance(value, str):
            return harmless(self._redact(value))
        if isinstance(value, list):
            return [self.data(v) for v in value]
        if isinstance(value, dict):
            clean = {self.data(k): self._beside(k, v) for k, v in value.items()}
            if isinstance(value.get("key"), str) and isinstance(value.get("value"), str):  # a piece of evidence
                clean["value"] = self._beside(value["key"], value["value"])
            return clean
        return value

    def _beside(self, key: str, value: Any) -> Any:
        """The value, also where only its name tells that it is a secret (`api_key`)."""
        if not isinstance(value, str):
            return self.data(value)
        label = f"{key}="
        together = self._redact(label + value)
        return harmless(together.removeprefix(label)) if together.startswith(label) else self.data(value)

    def _redact(self, text: str) -> str:
        with self._lock:  # calls run side by side
            return self._redactor.redact(text)


def cut(text: str, more: str = "") -> tuple[str, str]:
    """The part of a text that is shown, and a sentence with exact counts where that is not all of it."""
    data = text.encode(errors="replace")
    if len(data) <= CAP:
        return text, ""
    end = data.rfind(b"\n", CAP - CAP // 4, CAP) + 1 or CAP  # at a line, unless that is a very long one
    shown = data[:end].decode(errors="ignore")
    how = more or "narrow the arguments, or read files in parts with read_lines"
    size = len(shown.encode())
    return shown, f"[cut: {size} of {len(data)} bytes, {_lines(shown)} of {_lines(text)} lines are shown; {how}]"


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))
