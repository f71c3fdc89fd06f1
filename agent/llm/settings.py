"""Which model is asked, how, and within what bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


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
