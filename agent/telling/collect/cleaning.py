"""Secrets out of everything that goes into a bundle or a paper: one redactor for texts, plain data and names.

What one text tells to be a secret, another may show plainly: `settle` goes over all until nothing new is learnt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ...core.report import Report
from ...safety.redact import Redactor

ROUNDS = 4
SHORTEST = 6  # digits of a number that may be a secret


class Cleaning:
    """One redactor for all that leaves together, so that the same secret has the same placeholder everywhere."""

    def __init__(self) -> None:
        self._redactor = Redactor()

    @property
    def count(self) -> int:
        """How many times a secret was taken out."""
        return self._redactor.count

    @property
    def kinds(self) -> dict[str, int]:
        """How many distinct secrets of each kind."""
        return dict(sorted(self._redactor.found.items()))

    def text(self, text: str) -> str:
        """The text with a placeholder for each secret; as many lines as before."""
        return self._redactor.redact(text)

    def data(self, value: Any, name: str = "") -> Any:
        """Plain data with every string and key cleaned; a value is looked at beside its name, which may alone tell.

        Args:
            name: what the value is called: its key, or the setting that a piece of evidence is of.
        """
        if isinstance(value, str):
            return self._named(value, name)
        if isinstance(value, int | float) and not isinstance(value, bool) and name and len(str(value)) >= SHORTEST:
            shown = self._named(str(value), name)
            return value if shown == str(value) else shown
        if isinstance(value, list | tuple):
            return [self.data(v, name) for v in value]
        if isinstance(value, dict):
            told = value.get("key") if isinstance(value.get("key"), str) else value.get("name")
            return {
                self.text(str(n)): self.data(v, told if n == "value" and isinstance(told, str) else str(n))
                for n, v in value.items()
            }
        return value

    def settle(self, texts: dict[str, str]) -> None:
        """Clean all texts, in place, until a round learns no new secret."""
        for _ in range(ROUNDS):
            before = self.kinds
            for name, text in texts.items():
                texts[name] = self.text(text)
            if self.kinds == before:
                return

    def _named(self, value: str, name: str) -> str:
        lead = f"{name}=" if name else ""
        text = self.text(lead + value)
        return text.removeprefix(lead) if text.startswith(lead) else self.text(value)


# ----------
# Reports without the secrets that a run may have printed, as they may be passed on.

_IDENT = re.compile(r"E\d{1,9}")  # of evidence: there are many, and they tell nothing
SECRETS_ROUNDS = 2  # what one text tells to be a secret, an earlier one may show


def without_secrets(
    reports: list[Report], around: Iterable[str] = (), redactor: Redactor | None = None
) -> tuple[list[Report], list[str]]:
    """The same reports and texts with a placeholder for each secret.

    Args:
        around: what stands in the files around the cited lines; a line alone may not tell that it holds a secret.
            Each comes back with as many lines as it had.
        redactor: that counts, and knows what it has found before.
    """
    redactor, texts = redactor or Redactor(), list(around)
    for _ in range(SECRETS_ROUNDS):
        texts = [redactor.redact(text) for text in texts]
        one_round = _Round(redactor)
        reports = [type(r).model_validate(one_round.clean(r.model_dump(by_alias=True))) for r in reports]
    return reports, texts


@dataclass(slots=True)
class _Round:
    """One pass over plain data. The same string under the same name is looked at once."""

    redactor: Redactor
    known: dict[tuple[str, str], str] = field(default_factory=dict)

    def clean(self, value: Any, name: str = "") -> Any:
        """The data with every string redacted; a string is looked at beside its name, which may be all that tells."""
        if isinstance(value, str):
            return self._text(value, name)
        if isinstance(value, list):
            return [self.clean(v, name) for v in value]
        if isinstance(value, dict):
            key = value.get("key")  # of a piece of evidence: the setting that its value is of
            return {
                self._text(n, ""): self.clean(v, key if n == "value" and isinstance(key, str) else n)
                for n, v in value.items()
            }
        return value

    def _text(self, value: str, name: str) -> str:
        if _IDENT.fullmatch(value):
            return value
        if (name, value) not in self.known:
            lead = f"{name}=" if name else ""
            text = self.redactor.redact(lead + value)
            self.known[name, value] = text.removeprefix(lead) if text.startswith(lead) else self.redactor.redact(value)
        return self.known[name, value]
