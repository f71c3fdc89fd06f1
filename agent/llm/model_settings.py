"""Which model is asked, how, and within what bounds."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..core.config import Config, ModelKeys, Origin, config_file, environment, settle, validated, variable
from ..core.errors import UsageError
from ..core.own_files import small_file


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """A named model. Only a user names one: by flag, `DOCTOR_MODEL` or their own config file.

    Attributes:
        model: the name sent to the server.
        base_url: of an OpenAI-compatible server (`http://host:8000/v1`); empty means the client's default.
        api_key: sent as bearer token; never shown, stored or logged.
        headers: further headers, `extra_body`: further fields of the request.
        timeout: seconds to wait for the next piece of an answer.
        window: tokens that fit the model; 0 asks the server.
        max_calls: requests per question; `max_tokens`: in and out together; `max_seconds`: of waiting; `max_cost`: in
            the currency of the prices. 0 means no such bound.
        price_in, price_out: per million tokens; None when no price is known.
        key_from: the variable or file that the key is, or would be, from; empty when none is to be sent.
        named_by: what named the model: `--model`, `DOCTOR_MODEL`, a profile or the config file.
    """

    model: str
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    temperature: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = 60.0
    window: int = 0
    max_calls: int = 16
    max_tokens: int = 400_000
    max_seconds: float = 300.0
    max_cost: float = 0.0
    price_in: float | None = None
    price_out: float | None = None
    key_from: str = ""
    named_by: str = ""


def tightened(settings: ModelSettings, bounds: Mapping[str, float]) -> tuple[ModelSettings, list[str]]:
    """The same model within the smaller of each bound, and what could not be done, to be told.

    Args:
        bounds: positive numbers by name (`max_calls`, `max_tokens`, `max_seconds`, `max_cost`).
    """
    told = []
    if "max_cost" in bounds and settings.price_in is None:
        told.append(f"doctor.toml in the run bounds the cost, but no price of {settings.model} is known: ignored")
    smaller: dict[str, Any] = {}
    for name, bound in bounds.items():
        now = getattr(settings, name)
        if (now == 0 or bound < now) and not (name == "max_cost" and told):
            smaller[name] = bound
    return replace(settings, **smaller), told


# ----------
# Where a key is kept and how it is fetched. No message here ever repeats what a file or a variable holds.

_LIMIT = 8192  # bytes of a file with a key
_KEY = re.compile(r"[\x21-\x7e]+")
_OR = "or ask no model with --offline"


def from_variable(name: str) -> str:
    """The value of a variable without blanks around it; empty where it is not set.

    Raises:
        UsageError: it holds characters that no header may carry.
    """
    value = os.environ.get(name, "").strip()
    if value and not _KEY.fullmatch(value):
        raise UsageError(f"{name}: the value holds blanks or characters that no key has", _OR)
    return value


def from_file(name: str, folder: Path | None = None) -> str:
    """The key in a file: one line, in a regular file that others cannot read.

    Args:
        folder: what a relative name starts from; None is the current folder.

    Raises:
        UsageError: there is no such file, others may read it, or it does not hold one line.
    """
    path = Path(name)
    try:
        path = (folder or Path()) / path.expanduser()
        data, mode = small_file(path, _LIMIT)
    except (OSError, ValueError, RuntimeError) as e:  # the last: `~nobody` has no home
        raise UsageError(f"{path}: the key cannot be read: {getattr(e, 'strerror', None) or e}", _OR) from None
    if mode & 0o007:
        raise UsageError(f"{path}: everyone on this machine can reach the key", f"chmod 600 {path}")
    lines = data.decode("ascii", errors="replace").split()
    if len(lines) != 1 or not _KEY.fullmatch(lines[0]):
        raise UsageError(f"{path}: must hold one key and nothing else", _OR)
    return lines[0]


# ----------
# From what the user set at each level to the settings of one model, or to none: then nothing is sent.
#
# Levels, from above: flags, `DOCTOR_*`, the profile, the top of the user's file. `OPENAI_API_KEY` and `OPENAI_BASE_URL`
# stand below all of them and name no model. Key and headers belong to a server: a level that names a server takes none
# from the levels below it, so that one server's key never goes to another.

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


# ----------
# The settings of the model as `doctor config` shows them: each with who set it, and no secret among them.

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
