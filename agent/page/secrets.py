"""Reports without the secrets that a run may have printed, as they may be passed on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..redact import Redactor
from ..report import Report

_IDENT = re.compile(r"E\d{1,9}")  # of evidence: there are many, and they tell nothing
ROUNDS = 2  # what one text tells to be a secret, an earlier one may show


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
    for _ in range(ROUNDS):
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
