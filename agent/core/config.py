"""Doctor's own settings: `DOCTOR_*` over the user's config file over defaults; command-line flags stand above all.

The file is `doctor.toml` in the user's config folder (`DOCTOR_CONFIG` names another; `config.toml`, its older name, is
read where there is no `doctor.toml`). A `doctor.toml` in the folder of a run may do one thing (end of this file):
tighten bounds, and nothing else.
"""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from .errors import UsageError
from .own_files import OddFile, cache_folder, small_file, state_folder

# ----------
# What can be set about a model at one level: the top of the user's file, a profile in it, `DOCTOR_*`, the flags.
#
# None is unset; `llm/model_settings.py` lays the levels over each other. A key stands in none of them: a level says
# only where it is kept, so that a config file can be shown, copied and committed.


SMALLEST_WINDOW = 4096  # tokens; below it not even the first call fits
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_SECRET_HEADER = re.compile(r"(?i)auth|cookie|key|token|secret|pass|credential|signature")
_OURS = frozenset(("model", "messages", "tools", "tool_choice", "functions", "stream_options", "n"))
_OUR_HEADERS = frozenset(("host", "content-length", "content-type", "transfer-encoding", "connection"))


def _model_name(value: str) -> str:
    if not value.strip() or len(value) > 200 or not value.isprintable():
        raise ValueError("this names no model")
    return value


def _server_url(value: str) -> str:
    """An http(s) address; what is wrong is said without the address, which may hold a password."""
    if len(value) > 2000 or re.search(r"[\x00-\x20\x7f-\x9f\\]", value):
        raise ValueError("not an address: it is too long or holds spaces or control characters")
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        raise ValueError("not an address") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must begin with http:// or https:// and name a host, as in http://localhost:8000/v1")
    if "@" in parts.netloc:
        raise ValueError("may hold no user or password: keep the key apart, with api_key_file or api_key_env")
    if parts.query or parts.fragment:
        raise ValueError("may hold nothing after ? or #: the address ends with the path, as in http://host:8000/v1")
    return value


def _variable_name(value: str) -> str:
    if value and not _VARIABLE.fullmatch(value):
        raise ValueError("this names no variable: it is the name of the one that holds the key, never the key")
    return value


def _window(value: int) -> int:
    if 0 < value < SMALLEST_WINDOW:
        raise ValueError(f"must be 0 (the server is asked) or at least {SMALLEST_WINDOW}")
    return value


def _headers(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _HEADER.fullmatch(name) or not re.fullmatch(r"[\x20-\x7e]{0,4000}", text):
            raise ValueError("a header is a name without spaces and a line of printable ASCII")
        if name.lower() in _OUR_HEADERS:
            raise ValueError(f"{name} is set by the client")
        if _SECRET_HEADER.search(name) and not text.startswith("$"):
            raise ValueError(f"{name}: a secret is not kept here; name the variable that holds it, as in '$TEAM_KEY'")
        if text.startswith("$") and not _VARIABLE.fullmatch(text[1:]):
            raise ValueError(f"{name}: after $ stands the name of a variable and nothing else")
    return value


def _extra_body(value: dict[str, Any]) -> dict[str, Any]:
    if taken := sorted(_OURS & value.keys()):
        raise ValueError(f"may not set {', '.join(taken)}: doctor does")
    if not isinstance(value.get("stream", True), bool):
        raise ValueError("stream is true or false")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise ValueError("holds what JSON has no word for (dates, nan, inf)") from None
    return value


def _no_switch(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _from_text(value: Any) -> Any:
    """A variable holds a table as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError('must be JSON, as in {"top_k": 20}') from None


_Number = Annotated[float, BeforeValidator(_no_switch), Field(ge=0, allow_inf_nan=False)]
_Count = Annotated[int, BeforeValidator(_no_switch), Field(ge=0)]


def _described(text: str) -> Any:
    return Field(None, description=text)


class ModelKeys(BaseModel):
    """Settings of a model at one level; None is unset there."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Annotated[str, AfterValidator(_model_name)] | None = _described(
        "model that is asked, or a profile's name; nothing is sent unless one is named"
    )
    base_url: Annotated[str, AfterValidator(_server_url)] | None = _described("OpenAI-compatible server")
    api_key_file: str | None = _described("file that holds the key, readable by its owner alone")
    api_key_env: Annotated[str, AfterValidator(_variable_name)] | None = _described(
        "variable that holds the key; empty: no key is sent"
    )
    temperature: Annotated[_Number, Field(le=2)] | None = _described("of sampling; unset: the server's own")
    timeout: Annotated[_Number, Field(gt=0)] | None = _described("seconds to wait for the next piece of an answer")
    window: Annotated[_Count, AfterValidator(_window)] | None = _described(
        "tokens that fit the model; 0: the server is asked"
    )
    max_calls: _Count | None = _described("requests per question; 0: no such bound")
    max_tokens: _Count | None = _described("tokens per question, in and out; 0: no such bound")
    max_seconds: _Number | None = _described("seconds of waiting per question; 0: no such bound")
    max_cost: _Number | None = _described("cost per question, as [prices] has it; 0: no such bound")
    headers: Annotated[dict[str, str], BeforeValidator(_from_text), AfterValidator(_headers)] | None = _described(
        "further headers; '$NAME' stands for a variable's value"
    )
    extra_body: Annotated[dict[str, Any], BeforeValidator(_from_text), AfterValidator(_extra_body)] | None = _described(
        "further fields of each request"
    )

    @model_validator(mode="after")
    def _one_key(self) -> ModelKeys:
        if self.api_key_file and self.api_key_env:
            raise ValueError("api_key_file and api_key_env are both set: keep one")
        return self


class Price(BaseModel):
    """What a million tokens cost, in any one currency."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    given: _Number = Field(alias="in")
    written: _Number = Field(alias="out")


BOUNDS: dict[str, Callable[[float], float]] = {
    "max_calls": int, "max_tokens": int, "max_seconds": float, "max_cost": float,
}  # fmt: skip


# ----------

FILE_LIMIT = 1 << 20
_Keys = TypeVar("_Keys", bound=BaseModel)


class Config(ModelKeys):
    """What a user may settle once. Every setting has an environment variable `DOCTOR_<NAME>`.

    The settings of the model here are those at the top of the file alone; `llm/model_settings.py` says which hold.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    allow: Literal["read", "probe", "costly"] = Field("read", description="checks up to this risk run unasked")
    state: str = Field("", description="folder of sessions, reports and added documents")
    history: str = Field("", description="folder of a history of diagnoses that a team shares")
    cache: str = Field("", description="folder of rebuildable things: patterns, index")
    knowledge: str = Field("", description=f"folders of a team's own playbooks, with {os.pathsep!r} between them")
    chroma_url: str = Field("", description="Chroma server of a team's shared index")
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


# ----------
# A `doctor.toml` in the folder of a run: whoever made the run wrote it, so it may ask for less and for nothing else.
#
# It can lower the bounds on requests, tokens, seconds and cost. Every other key is ignored, and that is told; no word
# of the file gets into what is told, only names of our own settings.

NAME = "doctor.toml"
LIMIT = 8192  # bytes; the parser takes seconds over a few dozen KiB of nested names
_NAMES = ("api_key", *(n for n in Config.model_fields if n not in BOUNDS))


class _Unread(Exception):
    """Why a file was not read."""


def project_bounds(roots: Iterable[Path]) -> tuple[dict[str, float], list[str]]:
    """Bounds that the folders of a run ask for, and what of their files was ignored, to be told with the report.

    Args:
        roots: of the run; what is no folder has no such file.

    Returns:
        The smallest of each bound (positive numbers by name), and lines of plain text.
    """
    bounds: dict[str, float] = {}
    told: list[str] = []
    folders = list(roots)
    for number, root in enumerate(folders, 1):
        where = f"{NAME} in {f'r{number}' if len(folders) > 1 else 'the run'}"
        try:
            keys = _keys(root)
        except _Unread as e:
            told.append(f"{where} {e}: ignored")
            continue
        for name, value in keys.items():
            if name in BOUNDS and _is_bound(name, value):
                bounds[name] = min(BOUNDS[name](value), bounds.get(name, math.inf))
        told += _ignored(where, keys)
    return bounds, told


def _ignored(where: str, keys: dict[str, Any]) -> list[str]:
    """One line on what a file may not set, and one on bounds that are none."""
    refused = [name for name in _NAMES if name in keys]
    strange = sum(name not in BOUNDS and name not in _NAMES for name in keys)
    if strange:
        refused.append(f"{strange} unknown key{'s' if strange > 1 else ''}")
    wrong = [name for name in BOUNDS if name in keys and not _is_bound(name, keys[name])]
    lines = [f"{where} may not set {', '.join(refused)}: ignored"] if refused else []
    return lines + ([f"{where}: {', '.join(wrong)} must be a positive number: ignored"] if wrong else [])


def _is_bound(name: str, value: Any) -> bool:
    """Whether it bounds anything: 0, which lifts a bound in the user's own file, does not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if BOUNDS[name] is int:
        return isinstance(value, int) and value > 0
    return 0 < value <= 1e300


def _keys(root: Path) -> dict[str, Any]:
    """What the file sets; nothing where there is none, or where it is a file of the user's own."""
    path = root / NAME
    try:
        if root == Path("-") or not root.is_dir() or not os.path.lexists(path):
            return {}
        real, inside = path.resolve(strict=True), root.resolve()
        if not real.is_relative_to(inside):
            raise _Unread("is a link that leads out of it")
        if _same(real, config_file()):
            return {}
        return parsed(small_file(real, LIMIT, follow=False)[0])
    except RuntimeError:  # links in a ring
        raise _Unread("is a link that leads nowhere") from None
    except OSError as e:
        raise _Unread(f"cannot be read ({e.strerror or 'no such file'})") from None
    except OddFile as e:
        raise _Unread(str(e)) from None
    except ValueError:
        raise _Unread("is not TOML that can be read") from None


def _same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except (OSError, ValueError):
        return False
