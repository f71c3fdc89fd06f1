"""What can be set about a model at one level: the top of the user's file, a profile in it, `DOCTOR_*`, the flags.

None is unset; `llm/profiles.py` lays the levels over each other. A key stands in none of them: a level says only where
it is kept, so that a config file can be shown, copied and committed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

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
