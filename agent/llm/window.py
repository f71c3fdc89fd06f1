"""How many tokens fit the model: asked of servers of one's own, which each say it in another way.

vLLM and SGLang say it beside the model's name, llama.cpp and Ollama in pages of their own. What a server runs the model
with counts, not what the model was trained for: a longer prompt is refused by some and cut without a word by others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from .client import Client
from .settings import ModelSettings
from .turn import ModelTrouble

SECONDS = 2.0
# Ollama runs a model with this many tokens on a GPU below 24 GiB, and cuts off the start of what is longer.
OLLAMA_DEFAULT = 4096
_BESIDE_THE_NAME = ("max_model_len", "context_length", "context_window", "max_context_length")


@dataclass(slots=True)
class _Server:
    """A server that is asked, within a time for all questions together."""

    client: Client
    listed: dict[str, Any]
    until: float

    def page(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """What a path beside `/v1` answers; empty where there is nothing."""
        root = self.client.base.removesuffix("/v1")
        return self.client.ask(method, f"{root}{path}", max(0.05, self.until - time.monotonic()), body)


Found = tuple[int, str]


def context_window(settings: ModelSettings) -> Found:
    """Tokens that fit, in and out together, and who says so; 0 where nobody does.

    Takes 2 s at most. A hosted service, that is one with no address in the settings, is not asked.
    """
    if settings.window > 0:
        return settings.window, "the setting `window`"
    client = Client(settings)
    if client.hosted:
        return 0, "unknown: a hosted service is not asked"
    try:
        client.check()
        answers = _answers(client, settings.model, time.monotonic() + SECONDS)
        return next(answers, (0, "unknown: the server does not say"))
    except ModelTrouble:
        return 0, "unknown: the server cannot be asked"
    finally:
        client.close()


def _answers(client: Client, model: str, until: float) -> Iterator[Found]:
    models = client.models(max(0.05, until - time.monotonic()))
    if not models and time.monotonic() > until:
        return
    listed = next((m for m in models if m.get("id") == model), models[0] if len(models) == 1 else {})
    server = _Server(client, listed, until)
    order: list[Callable[[_Server, str], Iterator[Found]]] = [_beside_the_name, _llama_cpp, _ollama]
    if listed.get("owned_by") == "library":  # so Ollama lists what it has
        order = [_ollama]
    for ask in order:
        yield from ask(server, model)
        if time.monotonic() > until:
            return
    yield from _trained(listed)


def _beside_the_name(server: _Server, model: str) -> Iterator[Found]:
    for name in _BESIDE_THE_NAME:
        yield from _tokens(server.listed.get(name), f"`{name}` of the server's list of models")


def _llama_cpp(server: _Server, model: str) -> Iterator[Found]:
    # A router of several models would load one that is merely asked about, unless told not to.
    for path in (f"/props?model={quote(model, safe='')}&autoload=false", "/props"):
        stated = server.page("GET", path).get("default_generation_settings")
        if isinstance(stated, Mapping):
            yield from _tokens(stated.get("n_ctx"), "`n_ctx` of llama.cpp's /props")


def _trained(listed: Mapping[str, Any]) -> Iterator[Found]:
    meta = listed.get("meta")
    if isinstance(meta, Mapping):
        yield from _tokens(meta.get("n_ctx"), "`meta.n_ctx` of the server's list of models")
        yield from _tokens(meta.get("n_ctx_train"), "`meta.n_ctx_train` of the server's list of models")


def _ollama(server: _Server, model: str) -> Iterator[Found]:
    """What the loaded model runs with, else what its file sets, else Ollama's default."""
    running = server.page("GET", "/api/ps").get("models")
    for loaded in running if isinstance(running, list) else ():
        if isinstance(loaded, dict) and _same(model, loaded.get("name"), loaded.get("model")):
            yield from _tokens(loaded.get("context_length"), "what Ollama runs the model with")
    shown = server.page("POST", "/api/show", {"model": model})
    parameters = shown.get("parameters")
    for line in parameters.splitlines() if isinstance(parameters, str) else ():
        name, _, value = line.strip().partition(" ")
        if name == "num_ctx" and (digits := value.strip()[:12]).isdecimal():
            yield from _tokens(int(digits), "`num_ctx` of the model in Ollama")
    facts = shown.get("model_info")
    for name, value in facts.items() if isinstance(facts, Mapping) else ():
        if str(name).endswith(".context_length"):
            for tokens, _ in _tokens(value, ""):
                yield min(tokens, OLLAMA_DEFAULT), f"Ollama's default; OLLAMA_CONTEXT_LENGTH raises it, to {tokens}"


def _same(model: str, *names: Any) -> bool:
    return any(name in (model, f"{model}:latest") for name in names)


def _tokens(value: Any, origin: str) -> Iterator[Found]:
    """A count that can be one."""
    if isinstance(value, int) and not isinstance(value, bool) and 256 <= value <= 100_000_000:
        yield value, origin
