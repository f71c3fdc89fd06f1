"""What leaves the machine: the request as it is counted, without secrets, to the named server alone."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from traindoctor.agent.llm.model_settings import ModelSettings
from traindoctor.agent.llm.turns import ModelTrouble
from traindoctor.agent.llm.wire import Wire
from traindoctor.evals.endpoint import Fault, Refuse, Say, ScriptedEndpoint
from traindoctor.evals.faults import FAULTS

KEY = "sk-test-0123456789abcdefghijklmnop"
HF, AWS, PASSWORD = "hf_" + "QwErTyUiOpAsDfGhJkLzXcVbNmQwErTyUi", "AKIA" + "QWERTYUIOPASDFGH", "hunter2-secret"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7\nabcdefgh\n-----END RSA PRIVATE KEY-----"


def settings(server: ScriptedEndpoint, **more: Any) -> ModelSettings:
    return ModelSettings(**{"model": "m", "base_url": server.url, "api_key": KEY, "timeout": 1.0, **more})


def sent(wire: Wire, messages: list[dict[str, Any]], tools: Any = (), choice: Any = None) -> None:
    wire.send(wire.body(messages, tools, choice), until=time.monotonic() + 10, token=lambda _: None)


def messages() -> list[dict[str, Any]]:
    hidden = json.dumps({"pattern": HF, "why": "é"}).replace("hf_", "hf\\u005f")  # an escape that a search overlooks
    call = {"id": "c1", "type": "function", "function": {"name": "grep_logs", "arguments": hidden}}
    return [
        {"role": "system", "content": f"export HF_TOKEN={HF}"},
        {"role": "user", "name": f"user-{AWS}", "content": [{"type": "text", "text": f"password={PASSWORD} {PEM}"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": json.dumps({"url": f"https://me:{PASSWORD}@host/x", "k": PEM}),
        },
    ]


def test_no_secret_reaches_the_server() -> None:
    with ScriptedEndpoint([Say("ok")]) as server:
        wire = Wire(settings(server))
        sent(wire, messages())
        raw = server.requests[0].raw.decode()
    for secret in (HF, AWS, PASSWORD, "MIIEowIBAAKCAQEA7", KEY, HF[3:]):
        assert secret not in raw
    assert "<SECRET:hf:1>" in raw
    assert wire.redactor.count >= 6
    arguments = json.loads(raw)["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"pattern": "<SECRET:hf:1>", "why": "é"}


def test_a_secret_is_counted_once_and_keeps_its_place_in_later_requests() -> None:
    with ScriptedEndpoint([Say("ok")]) as server:
        wire = Wire(settings(server))
        first = wire.body(messages(), [])
        count = wire.redactor.count
        assert wire.body([*messages(), {"role": "user", "content": "why?"}], [])["messages"][:4] == first["messages"]
        assert wire.redactor.count == count
        # The same hidden secret in another text is found again, though its inner string was seen before.
        again = wire.body([{"role": "tool", "content": json.dumps([HF]).replace("hf_", "hf\\u005f")}], [])
        assert HF[3:] not in json.dumps(again)


def test_the_size_is_that_of_the_bytes_that_arrive() -> None:
    tools = [{"type": "function", "function": {"name": "grep_logs", "description": "größer", "parameters": {}}}]
    with ScriptedEndpoint([Say("ok")]) as server:
        wire = Wire(settings(server, temperature=0.1, extra_body={"seed": 7, "top_k": 20}))
        odd = [{"role": "user", "content": "ü \u2028 \x00 \ud800 🙂"}]
        sent(wire, odd, tools, "auto")
        assert wire.size(wire.body(odd, tools, "auto")) == len(server.requests[0].raw)
        body = server.requests[0].body
    assert (body["seed"], body["top_k"], body["temperature"], body["tool_choice"]) == (7, 20, 0.1, "auto")
    assert body["stream"] is True and body["model"] == "m"


def test_a_message_holds_plain_data_only() -> None:
    with pytest.raises(TypeError, match="bytes"):
        Wire(ModelSettings("m")).body([{"role": "user", "content": b"raw"}], [])


def test_further_fields_do_not_replace_the_messages() -> None:
    body = Wire(ModelSettings("m", extra_body={"messages": [], "model": "other"})).body([{"role": "user"}], [])
    assert (body["model"], len(body["messages"])) == ("m", 1)


def test_the_key_goes_to_the_server_and_into_no_message() -> None:
    header = "gateway-secret-value"
    with ScriptedEndpoint([Refuse(400, f"bad key {KEY} of {header} at password={PASSWORD}")]) as server:
        wire = Wire(settings(server, headers={"x-gateway": header}))
        with pytest.raises(ModelTrouble) as caught:
            sent(wire, [{"role": "user", "content": "why?"}])
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert server.requests[0].headers["x-gateway"] == header
    shown = repr(caught.value) + repr(caught.value.__cause__) + repr(wire.settings)
    assert not [s for s in (KEY, header, PASSWORD) if s in shown]


def test_a_server_of_ones_own_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with ScriptedEndpoint([Say("ok")]) as server:
        sent(Wire(settings(server, api_key="")), [{"role": "user", "content": "why?"}])
        monkeypatch.setenv("OPENAI_API_KEY", "sk-from-the-environment")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        sent(Wire(ModelSettings("m")), [{"role": "user", "content": "why?"}])
        # Settings that were resolved hold the key of their server or none; another's key does not go there.
        sent(Wire(settings(server, api_key="", named_by="--model")), [{"role": "user", "content": "why?"}])
        keys = [r.headers["authorization"] for r in server.requests]
    assert keys == ["Bearer no-key", "Bearer sk-from-the-environment", "Bearer no-key"]


def test_a_hosted_service_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for key in ("", "sk-\u201cquoted\u201d", "sk-two\nlines"):
        with pytest.raises(ModelTrouble, match="OPENAI_API_KEY") as caught:
            sent(Wire(ModelSettings("m", api_key=key)), [])
        assert caught.value.kind == "key" and "sk-" not in caught.value.message


@pytest.mark.parametrize("url", ["localhost:8000/v1", "file:///etc/passwd", "http://", "http://[::1", "http://h:99999"])
def test_an_address_that_is_none_is_told(url: str) -> None:
    with pytest.raises(ModelTrouble, match="base_url") as caught:
        sent(Wire(ModelSettings("m", base_url=url)), [])
    assert caught.value.kind == "connection"


def test_what_is_sent_goes_to_no_other_server() -> None:
    with ScriptedEndpoint([Say("ok")]) as other:
        moved = replace(FAULTS["moved"], status=307, headers={"location": other.url + "/chat/completions"})
        with ScriptedEndpoint([Fault("moved", moved)]) as server, pytest.raises(ModelTrouble, match="307"):
            sent(Wire(settings(server)), [{"role": "user", "content": "why?"}])
        assert not other.requests


def test_no_proxy_stands_between_us_and_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with ScriptedEndpoint([Say("ok")]) as server:
        sent(Wire(settings(server)), [{"role": "user", "content": "why?"}])
        assert len(server.requests) == 1
