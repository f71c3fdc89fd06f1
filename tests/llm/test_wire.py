"""The wire to a model against a real server: every way it fails ends in a turn or in a trouble with a name."""

from __future__ import annotations

import time
from typing import Any

import pytest

from evals.endpoint import Fault, Refuse, Say, ScriptedEndpoint
from evals.faults import FAULTS
from traindoctor.agent.llm.settings import ModelSettings
from traindoctor.agent.llm.turn import ModelTrouble, Turn
from traindoctor.agent.llm.wire import AGAIN, Wire

KEY = "sk-test-0123456789abcdefghijklmnop"
TOOLS = [{"type": "function", "function": {"name": "grep_logs", "parameters": {"type": "object", "properties": {}}}}]
ASKED = [{"role": "user", "content": "why did the loss become NaN?"}]


def made(server: ScriptedEndpoint | str, **more: Any) -> Wire:
    url = server if isinstance(server, str) else server.url
    wire = Wire(ModelSettings(**{"model": "scripted", "base_url": url, "api_key": KEY, "timeout": 0.3, **more}))
    wire.backoff = 0.01
    return wire


def said(wire: Wire, seconds: float = 20.0, told: list[str] | None = None, **more: Any) -> Turn:
    body = wire.body(more.pop("messages", ASKED), TOOLS)
    return wire.send(body, until=time.monotonic() + seconds, token=(told if told is not None else []).append)


@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_ends_in_what_the_table_says(kind: str) -> None:
    row, told = FAULTS[kind], []
    with ScriptedEndpoint([Fault(kind)]) as server:
        wire = made(server)
        seconds = 0.6 if row.play.startswith("drip") else 20.0
        if row.meets == "turn":
            assert isinstance(said(wire, seconds, told), Turn)
        else:
            with pytest.raises(ModelTrouble) as caught:
                said(wire, seconds, told)
            assert caught.value.kind == row.meets, caught.value.message
            message = caught.value.message
            assert message and "\n" not in message and message.isprintable() and len(message) < 600
            assert KEY not in message
        assert len(server.requests) == row.asked or row.meets == "turn"
