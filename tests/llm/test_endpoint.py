"""The scripted server speaks the protocol: the official client understands it, and recordings are replayed as they are."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from traindoctor.evals.endpoint import Fault, Refuse, Say, ScriptedEndpoint, answer, recorded

ASKED: list[Any] = [{"role": "user", "content": "why?"}]
SAY = Say("It diverged at step 40.", [("grep_logs", {"pattern": "nan"}), ("list_files", "{}")], usage=(11, 7))


def client(server: ScriptedEndpoint) -> Any:
    import openai

    return openai.OpenAI(api_key="none", base_url=server.url, max_retries=0)


def test_the_official_client_reads_whole_answers() -> None:
    with ScriptedEndpoint([SAY]) as server:
        said = client(server).chat.completions.create(model="m", messages=ASKED)
    choice = said.choices[0]
    assert (choice.message.content, choice.finish_reason) == (SAY.content, "tool_calls")
    assert [c.function.name for c in choice.message.tool_calls] == ["grep_logs", "list_files"]
    assert said.usage.prompt_tokens == 11


def test_the_official_client_reads_streams() -> None:
    with ScriptedEndpoint([SAY]) as server:
        options = {"include_usage": True}
        events = list(
            client(server).chat.completions.create(model="m", messages=ASKED, stream=True, stream_options=options)
        )
        assert server.requests[0].body["messages"] == ASKED
        assert json.loads(server.requests[0].raw) == server.requests[0].body
    deltas = [e.choices[0].delta for e in events if e.choices]
    assert "".join(d.content or "" for d in deltas) == SAY.content
    arguments = [c.function.arguments for d in deltas for c in d.tool_calls or () if c.index == 0]
    assert json.loads("".join(arguments)) == {"pattern": "nan"} and len(arguments) == 2
    assert events[-1].usage.completion_tokens == 7
    assert [e.choices[0].finish_reason for e in events if e.choices][-1] == "tool_calls"


def test_usage_is_sent_only_where_it_was_asked_for() -> None:
    with ScriptedEndpoint([SAY]) as server:
        events = list(client(server).chat.completions.create(model="m", messages=ASKED, stream=True))
    assert all(e.usage is None for e in events)


def test_models_are_listed_and_other_paths_are_not_there() -> None:
    import openai

    with ScriptedEndpoint(
        [SAY], models=["a", {"id": "b", "max_model_len": 4096}], pages={"/props": {"x": 1}}
    ) as server:
        assert [m.id for m in client(server).models.list()] == ["a", "b"]
        with pytest.raises(openai.NotFoundError):
            client(server).embeddings.create(model="m", input="x")
        assert server.asked == ["/v1/models", "/v1/embeddings"]


def test_the_script_goes_on_with_its_last_answer() -> None:
    with ScriptedEndpoint(["one", {"content": "two"}]) as server:
        said = [client(server).chat.completions.create(model="m", messages=ASKED) for _ in range(3)]
    assert [s.choices[0].message.content for s in said] == ["one", "two", "two"]


def test_a_function_answers_by_what_was_asked() -> None:
    def script(body: dict[str, Any], number: int) -> Any:
        return f"{number}: {body['messages'][0]['content']}"

    with ScriptedEndpoint(script) as server:
        assert client(server).chat.completions.create(model="m", messages=ASKED).choices[0].message.content == "1: why?"


def test_a_failure_has_its_status_and_its_time() -> None:
    import openai

    script = [{"error": {"status": 429, "message": "slow down", "retry_after": 3}}]
    with ScriptedEndpoint(script) as server, pytest.raises(openai.RateLimitError, match="slow down") as caught:
        client(server).chat.completions.create(model="m", messages=ASKED)
    assert caught.value.response.headers["retry-after"] == "3"


def test_recordings_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "0002.response.json").write_text('{"error": {"status": 503, "message": "x"}}')
    (tmp_path / "0001.response.json").write_text(
        '{"content": null, "tool_calls": [{"name": "a", "arguments": {"x": 1}}, {"name": "b", "arguments": "{"}]}'
    )
    (tmp_path / "0001.request.json").write_text("{}")
    (tmp_path / "0010.response.json").write_text('{"content": "done"}')
    assert recorded(tmp_path) == [
        Say(None, [("a", {"x": 1}), ("b", "{")]),
        Refuse(503, "x", None),
        Say("done", []),
    ]


@pytest.mark.parametrize("said", [{}, {"error": "x"}, None, 3, ["x"]])
def test_what_is_no_answer_is_refused(said: Any) -> None:
    with pytest.raises(ValueError, match="no answer"):
        answer(said)


def test_many_speak_at_once() -> None:
    found: list[str] = []
    with ScriptedEndpoint(lambda body, _: body["messages"][0]["content"]) as server:

        def ask(word: str) -> None:
            asked: list[Any] = [{"role": "user", "content": word}]
            found.append(client(server).chat.completions.create(model="m", messages=asked).choices[0].message.content)

        threads = [threading.Thread(target=ask, args=(f"w{i}",)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len(server.requests) == 8
    assert sorted(found) == [f"w{i}" for i in range(8)]


def test_addresses_that_fail_are_given_where_the_script_begins_with_them() -> None:
    for kind, start in (("tls", "https://127.0.0.1:"), ("unknown-host", "http://no-such-host"), ("busy", "http://127")):
        with ScriptedEndpoint([Fault(kind), Say("x")]) as server:
            assert server.url.startswith(start) and server.url.endswith("/v1")
