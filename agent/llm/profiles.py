"""From what the user set at each level to the settings of one model, or to none: then nothing is sent.

Levels, from above: flags, `DOCTOR_*`, the profile, the top of the user's file. `OPENAI_API_KEY` and `OPENAI_BASE_URL`
stand below all of them and name no model. Key and headers belong to a server: a level that names a server takes none
from the levels below it, so that one server's key never goes to another.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import Config, config_file, environment, validated, variable
from ..errors import UsageError
from ..model_keys import ModelKeys
from .keys import from_file, from_variable
from .settings import ModelSettings

_NOTHING = ModelKeys()
_OF_A_SERVER = ("api_key_file", "api_key_env", "headers")
NAME_ONE = "name one with --model, DOCTOR_MODEL, or model = in doctor.toml"


@dataclass(frozen=True, slots=True)
class Level:
    """What was set in one place; `origin` tells by which words a setting was made there."""

    keys: ModelKeys
    origin: Callable[[str], str]
    folder: Path | None = None  # what a relative file name starts from; None: the current folder


@dataclass(frozen=True, slots=True)
class Choice:
    """The model that was named, by whom, with which profile; no model where none was."""

    model: str
    named_by: str
    profile: str = ""


def choose(config: Config, flags: ModelKeys = _NOTHING, *, hook: bool = False) -> Choice:
    """Which model is asked. A name that is a profile's stands for the model of that profile.

    Args:
        hook: a failure hook asks: a model that only the file names is not asked.

    Raises:
        UsageError: a profile is not there, or the one that was asked for has no model.
    """
    for name, origin in ((flags.model, "--model"), (environment().model, variable("model"))):
        if name and name in config.profiles:
            return Choice(model_of(config, name, must=True), origin, name)
        if name:
            return Choice(name, origin, _default_profile(config))
    if hook:
        return Choice("", "")
    if profile := _default_profile(config):
        model = model_of(config, profile)
        named_by = f"profile {profile}" if config.profiles[profile].model else str(config_file())
        return Choice(model, named_by if model else "", profile)
    if config.model and config.model in config.profiles:
        return Choice(model_of(config, config.model, must=True), str(config_file()), config.model)
    return Choice(config.model or "", str(config_file()) if config.model else "")


def _default_profile(config: Config) -> str:
    if config.profile and config.profile not in config.profiles:
        known = ", ".join(sorted(config.profiles)) or "none"
        raise UsageError(f"there is no [profiles.{config.profile}] in {config_file()}", f"profiles there: {known}")
    return config.profile


def model_of(config: Config, profile: str, must: bool = False) -> str:
    """The model of a profile, else the one at the top of the file; empty where there is none and none must be."""
    top = "" if config.model in config.profiles else config.model
    model = config.profiles[profile].model or top or ""
    if must and not model:
        raise UsageError(f"profile {profile} names no model", f"set model = in [profiles.{profile}]")
    return model


def levels(config: Config, choice: Choice, flags: ModelKeys = _NOTHING) -> list[Level]:
    """All that was set, the strongest first."""
    file = config_file()
    found = [Level(flags, lambda name: f"--{name.replace('_', '-')}"), Level(environment(), variable)]
    if choice.profile:
        found.append(Level(config.profiles[choice.profile], lambda _: f"profile {choice.profile}", file.parent))
    return [*found, Level(config, lambda _: str(file), file.parent)]


def setting(found: list[Level], name: str) -> tuple[Any, str, Level | None]:
    """A setting's value, who set it, and at which level; None where nobody did.

    Raises:
        UsageError: it comes from `OPENAI_BASE_URL`, which is no address.
    """
    if name in _OF_A_SERVER:
        server = next((i for i, level in enumerate(found) if level.keys.base_url is not None), len(found))
        found = found[: server + 1]
    for level in found:
        if (value := getattr(level.keys, name)) is not None:
            return value, level.origin(name), level
    if name == "base_url" and (ambient := os.environ.get("OPENAI_BASE_URL")):
        keys = validated(ModelKeys, {name: ambient}, lambda _: "OPENAI_BASE_URL")
        return keys.base_url, "OPENAI_BASE_URL", None
    return None, "default", None


def key_place(found: list[Level]) -> tuple[str, str, Path | None]:
    """Where the key is kept: a variable or a file (one of them empty), and the folder of a relative file name."""
    by_file, _, file_level = setting(found, "api_key_file")
    by_variable, _, variable_level = setting(found, "api_key_env")
    if file_level and (not variable_level or found.index(file_level) <= found.index(variable_level)):
        return "", by_file, file_level.folder
    return by_variable if variable_level else "OPENAI_API_KEY", "", None


def resolve(config: Config, flags: ModelKeys = _NOTHING, *, hook: bool = False) -> ModelSettings | None:
    """The settings of the model to ask; None where the user named none.

    Raises:
        UsageError: a profile, a key file or a variable of a header is not there, or a cost is to be bounded and no
            price is known.
    """
    choice = choose(config, flags, hook=hook)
    if not choice.model:
        return None
    found = levels(config, choice, flags)
    names = [n for n in ModelKeys.model_fields if n != "model" and n not in _OF_A_SERVER]
    values = {name: setting(found, name)[0] for name in names}
    env, file, folder = key_place(found)
    headers = setting(found, "headers")[0] or {}
    price = config.prices.get(choice.model)
    if values["max_cost"] and price is None:
        raise UsageError(
            f"a cost is to be bounded, but no price of {choice.model} is known",
            f'write [prices."{choice.model}"] with in = and out = (per million tokens) into {config_file()}',
        )
    return ModelSettings(
        model=choice.model,
        api_key=from_file(file, folder) if file else from_variable(env) if env else "",
        key_from=file or env,
        headers={name: _expanded(name, text) for name, text in headers.items()},
        price_in=price.given if price else None,
        price_out=price.written if price else None,
        named_by=choice.named_by,
        **{name: value for name, value in values.items() if value is not None},
    )


def _expanded(name: str, text: str) -> str:
    if not text.startswith("$"):
        return text
    value = from_variable(text[1:])
    if not value:
        raise UsageError(f"header {name}: the variable {text[1:]} is not set", "or ask no model with --offline")
    return value
