"""Reports without the secrets that a run may have printed, as they may be passed on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..redact import Redactor
from ..report import Report

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
        reports = [type(r).model_validate(_clean(r.model_dump(by_alias=True, mode="json"), redactor)) for r in reports]
    return reports, texts


def _clean(value: Any, redactor: Redactor, name: str = "") -> Any:
    """Plain data with every string redacted; a string is looked at beside its name, which may be all that tells."""
    if isinstance(value, str):
        lead = f"{name}=" if name else ""
        text = redactor.redact(lead + value)
        return text.removeprefix(lead) if text.startswith(lead) else redactor.redact(value)
    if isinstance(value, list):
        return [_clean(v, redactor, name) for v in value]
    if isinstance(value, dict):
        key = value.get("key")  # of a piece of evidence: the setting that its value is of
        return {
            redactor.redact(n): _clean(v, redactor, key if n == "value" and isinstance(key, str) else n)
            for n, v in value.items()
        }
    return value
