"""How many tokens fit: each kind of server says it in its own way, and nobody is asked who should not be."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from traindoctor.agent.llm.client import context_window
from traindoctor.agent.llm.model_settings import ModelSettings
from traindoctor.evals.endpoint import Say, ScriptedEndpoint

SHOWN = {"model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40960}, "parameters": "stop x"}


@pytest.mark.parametrize(
    ("models", "pages", "tokens", "origin"),
    [
        ([{"id": "m", "max_model_len": 8192}], {}, 8192, "max_model_len"),
        ([{"id": "a", "max_model_len": 1024}, {"id": "m", "max_model_len": 16384}], {}, 16384, "max_model_len"),
        ([{"id": "other-name", "max_model_len": 4096}], {}, 4096, "max_model_len"),
        ([{"id": "a", "max_model_len": 1024}, {"id": "b", "max_model_len": 2048}], {}, 0, "does not say"),
        ([{"id": "m", "context_length": 131072}], {}, 131072, "context_length"),
        (
            [{"id": "m", "meta": {"n_ctx_train": 131072}}],
            {"/props": {"default_generation_settings": {"n_ctx": 8192}}},
            8192,
            "/props",
        ),
        ([{"id": "m", "meta": {"n_ctx_train": 32768}}], {}, 32768, "n_ctx_train"),
        ([{"id": "m", "meta": {"n_ctx": 4096, "n_ctx_train": 32768}}], {}, 4096, "meta.n_ctx`"),
        ([{"id": "m"}], {"/api/show": SHOWN}, 4096, "OLLAMA_CONTEXT_LENGTH"),
        (
            [{"id": "m:latest", "owned_by": "library"}],
            {"/api/show": SHOWN | {"parameters": 'stop "</s>"\nnum_ctx                        24576'}},
            24576,
            "num_ctx",
        ),
        (
            [{"id": "m:latest", "owned_by": "library"}],
            {"/api/show": SHOWN, "/api/ps": {"models": [{"name": "m:latest", "context_length": 32768}]}},
            32768,
            "runs the model with",
        ),
        ([{"id": "m", "max_model_len": True}], {}, 0, "does not say"),
        ([{"id": "m", "max_model_len": "8192"}], {}, 0, "does not say"),
        ([{"id": "m", "max_model_len": -1}, "x"], {"/props": [], "/api/ps": {"models": [1]}}, 0, "does not say"),
        ([], {"/v1/models": ["no", "object"]}, 0, "does not say"),
    ],
)
def test_each_server_says_it_in_its_own_way(models: list[Any], pages: dict[str, Any], tokens: int, origin: str) -> None:
    with ScriptedEndpoint([Say("")], models=models, pages=pages) as server:
        found, said = context_window(ModelSettings("m", server.url))
    assert found == tokens and origin in said, said


def test_what_the_user_set_holds_and_nobody_is_asked() -> None:
    with ScriptedEndpoint([Say("")]) as server:
        assert context_window(ModelSettings("m", server.url, window=5000)) == (5000, "the setting `window`")
        assert not server.asked


def test_a_hosted_service_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert context_window(ModelSettings("m", api_key="sk-x"))[0] == 0


def test_a_server_that_is_not_there_is_unknown() -> None:
    for url in ("http://127.0.0.1:9/v1", "http://no-such-host.invalid/v1", "nonsense", "http://[::1"):
        assert context_window(ModelSettings("m", url))[0] == 0


def test_a_server_that_keeps_silent_costs_one_wait() -> None:
    asked, over = [], threading.Event()

    class Silent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            over.wait(30)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert context_window(ModelSettings("m", f"http://127.0.0.1:{server.server_address[1]}/v1"))[0] == 0
    finally:
        over.set()
        server.shutdown()
        server.server_close()
    assert asked == ["/v1/models"]


def test_deep_and_large_lists_are_borne() -> None:
    many = [{"id": f"model-{i}", "context_length": 4096, "description": "x" * 200} for i in range(5000)]
    with ScriptedEndpoint([Say("")], models=[*many, {"id": "m", "context_length": 9000}]) as server:
        assert context_window(ModelSettings("m", server.url))[0] == 9000
    deep: Any = []
    for _ in range(500):
        deep = [deep]
    with ScriptedEndpoint([Say("")], pages={"/v1/models": {"data": deep}}) as server:
        assert context_window(ModelSettings("m", server.url))[0] == 0
    assert json.dumps(deep)
