"""Doctor's own settings: `DOCTOR_*` over the user's config file over defaults; command-line flags stand above all.

The file is `doctor.toml` in the user's config folder (`DOCTOR_CONFIG` names another; `config.toml`, its older name, is
read where there is no `doctor.toml`). What a `doctor.toml` in the folder of a run may do is in `project_config.py`:
tighten bounds, and nothing else.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .errors import UsageError
from .model_keys import ModelKeys, Price
from .paths import cache_folder, state_folder
from .small_file import small_file

FILE_LIMIT = 1 << 20
_Keys = TypeVar("_Keys", bound=BaseModel)


class Config(ModelKeys):
    """What a user may settle once. Every setting has an environment variable `DOCTOR_<NAME>`.

    The settings of the model here are those at the top of the file alone; `llm/profiles.py` says which hold.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    allow: Literal["read", "probe", "costly"] = Field("read", description="checks up to this risk run unasked")
    state: str = Field("", description="folder of sessions, reports and added documents")
    history: str = Field("", description="folder of a history of diagnoses that a team shares")
    cache: str = Field("", description="folder of rebuildable things: patterns, index")
    knowledge: str = Field("", description=f"folders of a team's own playbooks, with {os.pathsep!r} between them")
    chroma_url: str = Field("", description="Chroma server of a team's shared index")
    experiments: str = Field("", description="file that declares commands of experiments; a run's own is never used")
    python: str = Field("", description="interpreter of the jobs, for tests that need its torch; else our own")
    embedding_model: str = Field("", description="folder of another sentence-transformers model")
    report_url: str = Field("", description="what stands before the path of a report where notices link to it")
    notify: str | list[str] = Field([], description="URLs that notices go to; each is kept as a secret")
    profile: str = Field("", description="the profile that holds where none is named")
    profiles: dict[str, ModelKeys] = Field({}, description="settings of a model under a name")
    prices: dict[str, Price] = Field({}, description="per million tokens, by model")


TABLES = ("profiles", "prices")
# What parts of doctor read from `DOCTOR_*` themselves. `profile` is none of them: set for a child process, a choice
# of the file would stand there as if the user had made it for this call. Nor is `notify`: a job would see its secrets.
PLAIN = tuple(n for n in Config.model_fields if n not in {*ModelKeys.model_fields, *TABLES, "profile", "notify"})


@dataclass(frozen=True, slots=True)
class Origin:
    """A setting, its value and who set it."""

    name: str
    value: str
    origin: str
    meaning: str


def config_file() -> Path:
    """Where the user's config file is, or would be."""
    if named := os.environ.get("DOCTOR_CONFIG"):
        return Path(named)
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "traindoctor"
    file, older = folder / "doctor.toml", folder / "config.toml"
    return older if _is_there(older) and not _is_there(file) else file


@cache
def settle() -> Config:
    """Read the settings once and make them hold: parts that read `DOCTOR_*` themselves see the file's values too.

    Raises:
        UsageError: the file is broken, or a setting is unknown or ill-typed; the message names where.
    """
    file = config_file()
    stored = _stored(file)
    validated(Config, stored, lambda name: f"{file}: {name}" if name else str(file))
    named = _named((*PLAIN, "profile"))
    validated(Config, named, variable)
    config = Config.model_validate({**stored, **named})
    for name in PLAIN:
        if (value := getattr(config, name)) and name in stored:
            os.environ.setdefault(variable(name), str(value))
    return config


def environment() -> ModelKeys:
    """Settings of the model that `DOCTOR_*` names.

    Raises:
        UsageError: one of them is ill-typed; the message names the variable.
    """
    return validated(ModelKeys, _named(ModelKeys.model_fields), variable)


def flags(given: Mapping[str, Any]) -> ModelKeys:
    """Settings of the model from the command line; what is None was not given.

    Raises:
        UsageError: one of them is ill-typed; the message names the option.
    """
    named = {name: value for name, value in given.items() if value is not None}
    return validated(ModelKeys, named, lambda name: f"--{name.replace('_', '-')}")


def origins() -> list[Origin]:
    """Every setting but those of the model, with its value and where that comes from."""
    named = _named(PLAIN)
    config, stored = settle(), _stored(config_file())
    found = []
    for name in PLAIN:
        origin = variable(name) if name in named else str(config_file()) if name in stored else "default"
        value = str(getattr(config, name)) or _default(name)
        found.append(Origin(name, value, origin, Config.model_fields[name].description or ""))
    return found


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"DOCTOR_{name.upper()}"


def parsed(data: bytes) -> dict[str, Any]:
    """TOML of anyone's making.

    Raises:
        ValueError: it is none; the message is one line.
    """
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("tables or lists too deep in each other") from None
    except UnicodeDecodeError as e:
        raise ValueError(f"not UTF-8 at byte {e.start}") from None


def _named(names: Any) -> dict[str, str]:
    return {name: v for name in names if (v := os.environ.get(variable(name)))}


def _default(name: str) -> str:
    """What an empty setting amounts to."""
    state = str(state_folder())
    return {"state": state, "cache": str(cache_folder()), "history": state}.get(name, "-")


def _is_there(path: Path) -> bool:
    """Whether there is such a file; a folder closed to us (a hook that runs as someone else) has none."""
    try:
        return path.exists()
    except OSError:
        return False


def _stored(path: Path) -> dict[str, Any]:
    """The file's own words; nothing where there is no file."""
    if not _is_there(path):
        return {}
    try:
        data = parsed(small_file(path, FILE_LIMIT)[0])
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}") from None
    except ValueError as e:
        raise UsageError(f"{path}: {e}") from None
    for where, keys in (("", data), *_profiles(data)):
        if "api_key" in keys:
            raise UsageError(
                f"{path}: {where}api_key: a key is not kept in this file",
                "api_key_file names a file that holds it, api_key_env a variable",
            )
    return data


def _profiles(data: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    tables = data.get("profiles")
    found = tables.items() if isinstance(tables, dict) else ()
    return [(f"profiles.{name}.", keys) for name, keys in found if isinstance(keys, dict)]


def validated(kind: type[_Keys], data: Mapping[str, Any], where: Callable[[str], str]) -> _Keys:
    """Settings as their model.

    Args:
        where: from the dotted name of a setting (empty: all of them together) to the words for it.

    Raises:
        UsageError: one is wrong; it is told by place, never by value: that may be a secret.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as e:
        first = e.errors(include_url=False, include_input=False)[0]
        path = [str(part) for part in first["loc"]]
        what = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            known = (Price if path[0] == "prices" else ModelKeys if len(path) > 1 else kind).model_fields
            near = get_close_matches(path[-1], [f.alias or name for name, f in known.items()], 1)
            what = "there is no such setting" + (f"; meant is perhaps {near[0]}" if near else "")
        raise UsageError(f"{where('.'.join(path))}: {what}", "`doctor config` lists what can be set") from None
