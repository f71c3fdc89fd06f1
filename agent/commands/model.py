"""From the options of a command to the model it asks, or to none."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config import Config
    from ..llm.settings import ModelSettings


def model_settings(
    config: Config,
    *,
    model: str | None = None,
    base_url: str | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    max_seconds: float | None = None,
    max_cost: float | None = None,
    offline: bool = False,
    hook: bool = False,
    required: bool = False,
) -> ModelSettings | None:
    """The model that the user named, within the user's bounds; None where none was named: then nothing is sent.

    Args:
        config: what `settle()` gave; the rest are the options of the same names, None where not given.
        offline: no model, whatever else is set.
        hook: a model that only the config file names is not asked (`doctor triage`).
        required: a model must be named (`--require-model`).

    Raises:
        UsageError: an option or a setting is wrong, or options ask for a model and none is named.
    """
    from ..config import flags
    from ..errors import UsageError
    from ..llm.profiles import NAME_ONE, resolve

    if offline:
        if required:
            raise UsageError("--offline and --require-model exclude each other", "leave one out")
        return None
    given = flags(
        {
            "model": model, "base_url": base_url, "max_calls": max_calls, "max_tokens": max_tokens,
            "max_seconds": max_seconds, "max_cost": max_cost,
        }
    )  # fmt: skip
    settings = resolve(config, given, hook=hook)
    if settings is None and (required or base_url):
        option = "--require-model" if required else "--base-url"
        raise UsageError(f"{option} is given, but no model is named", NAME_ONE)
    return settings


def within_the_run(settings: ModelSettings | None, roots: Iterable[Path]) -> tuple[ModelSettings | None, list[str]]:
    """The same within what a `doctor.toml` of the run asks for, and what is to be told in `meta.degraded`."""
    from ..llm.settings import tightened
    from ..project_config import project_bounds

    bounds, told = project_bounds(roots)
    if settings is None:
        return None, told
    settings, more = tightened(settings, bounds)
    return settings, [*told, *more]
