"""The settings of the model as `doctor config` shows them: each with who set it, and no secret among them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import Config, Origin, config_file, settle, variable
from ..errors import UsageError
from ..model_keys import ModelKeys
from .keys import from_file, from_variable
from .profiles import Choice, Level, choose, key_place, levels, model_of, setting
from .settings import ModelSettings

_DEFAULTS = ModelSettings("")


def origins() -> list[Origin]:
    """Every setting of the model with its value and where it comes from. No secret is among the values."""
    config = settle()
    choice = choose(config)
    found = levels(config, choice)
    by = "default"
    if choice.profile:  # named as such, or by its name as the model's
        in_place = config.profile == choice.profile
        by = variable("profile") if in_place and os.environ.get(variable("profile")) else str(config_file())
        by = by if in_place else choice.named_by
    shown = [
        Origin("profile", choice.profile or "-", by, _meaning("profile")),
        Origin("model", choice.model or "-", choice.named_by or "default", _meaning("model")),
    ]
    for name in ModelKeys.model_fields:
        if name != "model":
            shown.append(Origin(name, *_shown(found, name), _meaning(name)))
    env, file, folder = key_place(found)
    return [*shown, Origin("key", *_key_state(env, file, folder), "the key itself is never shown")]


def _shown(found: list[Level], name: str) -> tuple[str, str]:
    """A setting's value, made fit to be shown, and who set it."""
    try:
        value, origin, _ = setting(found, name)
    except UsageError as e:
        return f"unusable: {e.message}", "OPENAI_BASE_URL"
    return _visible(name, value), origin


@dataclass(frozen=True, slots=True)
class Listed:
    """A profile as it is shown."""

    name: str
    model: str
    base_url: str


def listed(config: Config) -> list[Listed]:
    """The profiles of the user's file, each with the model and the server that it would mean."""
    return [
        Listed(name, model_of(config, name), _shown(levels(config, Choice("", "", name)), "base_url")[0])
        for name in config.profiles
    ]


def _key_state(env: str, file: str, folder: Path | None) -> tuple[str, str]:
    """Whether there is a key, and where it is from."""
    try:
        key = from_file(file, folder) if file else from_variable(env) if env else ""
    except UsageError as e:
        return f"unusable: {e.message}", file or env
    place = file or env
    return (f"set, from {place}" if key else "not set" if place else "none is sent"), place or "default"


def _visible(name: str, value: Any) -> str:
    if value is None:
        default = getattr(_DEFAULTS, name, None)
        return "OPENAI_API_KEY" if name == "api_key_env" else "-" if default in (None, "", {}) else str(default)
    if isinstance(value, dict):  # the values may be secrets
        return ", ".join(value) or "-"
    return str(value) or "-"


def _meaning(name: str) -> str:
    return Config.model_fields[name].description or ""
