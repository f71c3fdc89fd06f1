"""A conversation as a file to pass on: all of its reports, without the secrets that a run may have printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    from ..redact import Redactor
    from ..report import Report


def exported(reports: list[Report], suffix: str) -> bytes:
    """The reports as markdown or JSON, in UTF-8. Secrets are taken out first: markdown's escapes would hide them.

    Args:
        suffix: of the file's name, with its dot, in capitals or not.

    Raises:
        UsageError: it names no form.
    """
    form = _FORMS.get(suffix.lower())
    if form is None:
        raise UsageError(f"there is no form {suffix or 'without a suffix'}", f"name a file in {' or '.join(_FORMS)}")
    return form(reports).encode("utf-8", "replace")


def _clean(reports: list[Report]) -> list[Report]:
    """The same reports without secrets. Gone through twice: what one report tells to be a secret, another may show."""
    from ..redact import Redactor

    redactor = Redactor()
    for _ in range(2):
        reports = [
            type(r).model_validate(_redacted(r.model_dump(by_alias=True, mode="json"), redactor)) for r in reports
        ]
    return reports


def _redacted(value: Any, redactor: Redactor, name: str = "") -> Any:
    """Plain data with every string redacted; a string is looked at beside its name, which may be all that tells."""
    if isinstance(value, str):
        lead = f"{name}=" if name else ""
        text = redactor.redact(lead + value)
        return text.removeprefix(lead) if text.startswith(lead) else redactor.redact(value)
    if isinstance(value, list):
        return [_redacted(v, redactor, name) for v in value]
    if isinstance(value, dict):
        key = value.get("key")  # of a piece of evidence: the setting that its value is of
        return {
            redactor.redact(n): _redacted(v, redactor, key if n == "value" and isinstance(key, str) else n)
            for n, v in value.items()
        }
    return value


def _as_json(reports: list[Report]) -> str:
    return "[" + ",\n".join(r.to_json() for r in _clean(reports)) + "]\n"


def _as_markdown(reports: list[Report]) -> str:
    from ..markdown import as_markdown

    return "\n\n".join(as_markdown(r) for r in _clean(reports)) + "\n"


_FORMS = {".md": _as_markdown, ".json": _as_json}
