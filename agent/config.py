"""Doctor's own settings: `DOCTOR_*` over the user's config file over defaults; command-line flags stand above all.

The file is `config.toml` in the user's config folder (`DOCTOR_CONFIG` names another). Nothing is ever read from
the folder of a run.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .errors import UsageError
from .paths import cache_folder, state_folder


class Config(BaseModel):
    """What a user may settle once. Every field has an environment variable `DOCTOR_<FIELD>`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    allow: Literal["read", "probe", "costly"] = Field("read", description="checks up to this risk run unasked")
    state: str = Field("", description="folder of sessions, reports and added documents")
    cache: str = Field("", description="folder of rebuildable things: patterns, index")
    knowledge: str = Field("", description=f"folders of a team's own playbooks, with {os.pathsep!r} between them")
    chroma_url: str = Field("", description="Chroma server of a team's shared index")
    experiments: str = Field("", description="file that declares commands of experiments; a run's own is never used")
    python: str = Field("", description="interpreter of the jobs, for tests that need its torch; else our own")
    embedding_model: str = Field("", description="folder of another sentence-transformers model")


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
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "traindoctor" / "config.toml"


@cache
def settle() -> Config:
    """Read the settings once and make them hold: parts that read `DOCTOR_*` themselves see the file's values too.

    Raises:
        UsageError: the file is broken, or a setting is unknown or ill-typed; the message names where.
    """
    stored = _stored(config_file())
    named = {name: v for name in Config.model_fields if (v := os.environ.get(_variable(name)))}
    try:
        config = Config.model_validate({**stored, **named})
    except ValidationError as e:
        first = e.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        where = _variable(name) if name in named else str(config_file())
        raise UsageError(f"{where}: {name}: {first['msg']}", "`doctor config` lists what can be set") from None
    for name in Config.model_fields:
        if (value := getattr(config, name)) and name in stored:
            os.environ.setdefault(_variable(name), str(value))
    return config


def origins() -> list[Origin]:
    """Every setting with its value and where that comes from."""
    named = {name for name in Config.model_fields if os.environ.get(_variable(name))}
    config, stored = settle(), _stored(config_file())
    found = []
    for name, field in Config.model_fields.items():
        origin = _variable(name) if name in named else str(config_file()) if name in stored else "default"
        value = str(getattr(config, name)) or _default(name)
        found.append(Origin(name, value, origin, field.description or ""))
    return found


def _default(name: str) -> str:
    """What an empty setting amounts to."""
    return {"state": str(state_folder()), "cache": str(cache_folder())}.get(name, "-")


def _variable(name: str) -> str:
    return f"DOCTOR_{name.upper()}"


def _stored(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise UsageError(f"{path}: {e}") from None
