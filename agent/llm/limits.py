"""The bounds of one question: requests, tokens, seconds, cost."""

from __future__ import annotations

import time
from collections.abc import Mapping

from .settings import ModelSettings

NEARLY = 0.85  # share of tokens, seconds or cost from which the next answer must conclude


def cost(settings: ModelSettings, tokens_in: int, tokens_out: int) -> float | None:
    """What so many tokens cost, None where a price is missing."""
    if settings.price_in is None or settings.price_out is None:
        return None
    return (tokens_in * settings.price_in + tokens_out * settings.price_out) / 1e6


class Limits:
    """What a question has cost so far and may still cost. One request may run over, never two."""

    def __init__(self, settings: ModelSettings, spent: Mapping[str, float]) -> None:
        self._settings = settings
        self._before = spent
        self.added: dict[str, float] = {"calls": 0, "in": 0, "out": 0, "seconds": 0.0}

    def add(self, calls: int, tokens_in: int, tokens_out: int, seconds: float) -> None:
        """Count a request."""
        for name, n in (("calls", calls), ("in", tokens_in), ("out", tokens_out), ("seconds", seconds)):
            self.added[name] += n

    def _spent(self, name: str) -> float:
        return self._before.get(name, 0) + self.added[name]

    def _shares(self) -> list[tuple[str, float]]:
        s = self._settings
        paid = cost(s, int(self._spent("in")), int(self._spent("out")))
        return [
            (f"{bound:g} {what}", spent / bound)
            for what, spent, bound in (
                ("tokens", self._spent("in") + self._spent("out"), s.max_tokens),
                ("seconds", self._spent("seconds"), s.max_seconds),
                ("of cost", paid or 0.0, s.max_cost if paid is not None else 0.0),
            )
            if bound
        ]

    def reached(self) -> str:
        """The bound that is reached, in words; empty when there is room for another request."""
        most = self._settings.max_calls
        if most and self._spent("calls") >= most:
            return f"{most} requests"
        return next((what for what, share in self._shares() if share >= 1), "")

    def is_last(self) -> bool:
        """Whether the next answer must be the conclusion."""
        most = self._settings.max_calls
        return bool(most and self._spent("calls") >= most - 1) or any(share >= NEARLY for _, share in self._shares())

    def until(self) -> float:
        """`time.monotonic()` at which a request must be given up."""
        most = self._settings.max_seconds
        return time.monotonic() + (max(0.0, most - self._spent("seconds")) if most else 86_400.0)
