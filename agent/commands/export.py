"""A conversation as a file to pass on: all of its reports, without the secrets that a run may have printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
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


def _as_json(reports: list[Report]) -> str:
    from ..page.secrets import without_secrets

    return "[" + ",\n".join(r.to_json() for r in without_secrets(reports)[0]) + "]\n"


def _as_markdown(reports: list[Report]) -> str:
    from ..markdown import as_markdown
    from ..page.secrets import without_secrets

    return "\n\n".join(as_markdown(r) for r in without_secrets(reports)[0]) + "\n"


_FORMS = {".md": _as_markdown, ".json": _as_json}
