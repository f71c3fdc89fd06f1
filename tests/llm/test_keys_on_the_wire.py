"""Which key reaches a server, read from what arrives there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from traindoctor.agent.core.config import ModelKeys, settle
from traindoctor.agent.doors.commands.diagnosis_options import model_settings
from traindoctor.agent.llm.client import Client
from traindoctor.agent.llm.model_settings import ModelSettings
from traindoctor.agent.llm.wire import Wire
from traindoctor.evals.endpoint import Say, ScriptedEndpoint

AMBIENT = "sk-ambient-" + "a" * 30
TEAM = "sk-team-" + "t" * 30


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedEndpoint]:
    """A server, and a machine on which everything that clients read by themselves is set."""
    for name in list(os.environ):
        if name.startswith("OPENAI_") or name.removeprefix("DOCTOR_").lower() in {*ModelKeys.model_fields, "profile"}:
            monkeypatch.delenv(name)
    monkeypatch.setenv("OPENAI_API_KEY", AMBIENT)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    for name in ("OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_WEBHOOK_SECRET"):
        monkeypatch.setenv(name, AMBIENT + name)
    with ScriptedEndpoint([Say("It diverged.")]) as found:
        yield found


def headers(server: ScriptedEndpoint, text: str) -> dict[str, str]:
    """The headers that arrive with this config file."""
    Path(os.environ["DOCTOR_CONFIG"]).write_text(f'model = "m"\nbase_url = "{server.url}"\n{text}')
    settle.cache_clear()
    found = model_settings(settle())
    assert found is not None
    wire = Wire(found)
    wire.send(wire.body([{"role": "user", "content": "why?"}], []), until=time.monotonic() + 30, token=lambda _: None)
    return {name.lower(): value for name, value in server.requests[-1].headers.items()}


def test_the_named_key_and_headers_arrive(server: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    assert headers(server, "")["authorization"] == f"Bearer {AMBIENT}"
    monkeypatch.setenv("TEAM_KEY", TEAM)
    found = headers(server, 'api_key_env = "TEAM_KEY"\n[headers]\nX-Gate-Key = "$TEAM_KEY"\n')
    assert (found["authorization"], found["x-gate-key"]) == (f"Bearer {TEAM}", TEAM)


@pytest.mark.parametrize("text", ['api_key_env = ""\n', 'api_key_env = "NOT_SET_HERE"\n'])
def test_a_key_that_was_not_named_stays_here(server: ScriptedEndpoint, text: str) -> None:
    assert AMBIENT not in headers(server, text).get("authorization", "")


def test_nothing_else_that_the_environment_holds_arrives(
    server: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (
        f"Authorization: Bearer {AMBIENT}",
        f"OpenAI-Organization: {AMBIENT}",
        f"X-Team: {AMBIENT}",
        f"{AMBIENT}: 1",
    )
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "\n".join(lines))
    found = headers(server, 'api_key_env = ""\n[headers]\nX-Ours = "ours"\n')
    assert AMBIENT not in str(found) and AMBIENT.lower() not in str(found)
    assert not {"openai-organization", "openai-project", "x-team"} & set(found)
    assert found["x-ours"] == "ours" and found["accept-encoding"] == "identity", "what is set for this server arrives"


def test_what_is_meant_for_the_maker_of_the_client_still_goes_there(
    server: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Team: ours")
    sent = Client(ModelSettings("m", base_url="https://api.openai.com/v1", api_key=AMBIENT))._made().default_headers
    assert (sent["OpenAI-Organization"], sent["X-Team"]) == (f"{AMBIENT}OPENAI_ORG_ID", "ours")
