"""Which model is asked, how, and within what bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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

    def cost(self, tokens_in: int, tokens_out: int) -> float | None:
        """What so many tokens cost, None when a price is missing."""
        if self.price_in is None or self.price_out is None:
            return None
        return (tokens_in * self.price_in + tokens_out * self.price_out) / 1e6
