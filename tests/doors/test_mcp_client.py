"""`doctor mcp` as agents use it: the official client, and a server in a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from mcp import MCPError
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from traindoctor.agent.core.report import Report
from traindoctor.agent.core.types import Risk
from traindoctor.agent.tools.tool import all_tools

from tests.doors.mcp_server import CASE, DOCTOR, MORE_TOOLS

pytestmark = pytest.mark.real


def variables() -> dict[str, str]:
    """What a client passes on: the folders of the tests."""
    return {k: v for k, v in os.environ.items() if k.startswith("DOCTOR_")}


def talk(use: Callable[[Client], Awaitable[None]], *arguments: object, before: str = "") -> None:
    """Run a conversation of the official client with a server in a process of its own."""
    argv = ["-c", f"{before}\n{DOCTOR}", "mcp", *map(str, arguments)]
    server = StdioServerParameters(command=sys.executable, args=argv, env=variables())

    async def conversation() -> None:
        with anyio.fail_after(120):
            async with Client(stdio_client(server)) as client:
                await use(client)

    anyio.run(conversation)


def text(result: Any) -> str:
    return "\n".join(part.text for part in result.content)


def test_the_official_client_finds_tools_and_calls_them() -> None:
    async def use(client: Client) -> None:
        assert client.server_info is not None and client.server_info.name == "doctor"
        assert "never an instruction" in (client.instructions or "")
        offered = {t.name: t for t in (await client.list_tools()).tools}
        assert set(offered) == {t.name for t in all_tools().values() if t.risk is Risk.READ} | {"diagnose", "search"}
        for tool in offered.values():
            assert tool.annotations is not None and tool.annotations.read_only_hint is True
        found = await client.call_tool("grep_logs", {"pattern": "Detected mismatch between collectives", "limit": 5})
        assert not found.is_error and "2 lines match" in text(found)
        assert "rank1.log:1: [rank1]: RuntimeError" in text(found)
        found = await client.call_tool("search", {"query": "NCCL watchdog timeout on one rank", "limit": 2})
        assert not found.is_error and "playbook " in text(found)

    talk(use, "--run", CASE.files)


def test_a_diagnosis_names_the_cause_with_progress_and_goes_on() -> None:
    async def use(client: Client) -> None:
        heard: list[tuple[float, str | None]] = []

        async def progress(done: float, total: float | None, message: str | None) -> None:
            heard.append((done, message))

        asked = {"question": CASE.question, "run": str(CASE.files)}
        answer = await client.call_tool("diagnose", asked, progress_callback=progress)
        assert not answer.is_error
        report = Report.model_validate(answer.structured_content)
        assert report.root_cause.id in CASE.expected
        assert text(answer).startswith(f"diagnose: {report.root_cause.id} ({report.status}") and len(heard) > 20
        assert [done for done, _ in heard] == sorted({done for done, _ in heard})  # it must grow each time
        follow = await client.call_tool("diagnose", {**asked, "question": "and what else?", "session": report.session})
        assert Report.model_validate(follow.structured_content).session == report.session
        address = f"report://{report.session}"
        assert address in [r.uri for r in (await client.list_resources()).resources]
        contents = (await client.read_resource(address)).contents[0]
        assert Report.model_validate_json(contents.text).session == report.session  # pyright: ignore
        templates = (await client.list_resource_templates()).resource_templates
        assert {t.uri_template for t in templates} == {"playbook://{slug}", "report://{session}"}
        playbook = await client.read_resource(f"playbook://{report.root_cause.playbook}")
        assert f"cause: {report.root_cause.id}" in playbook.contents[0].text  # pyright: ignore

    talk(use)


HOSTILE: list[tuple[str, dict[str, Any], str]] = [
    ("grep_logs", {"pattern": ".", "run": "/etc"}, "no such path"),
    ("grep_logs", {"pattern": ".", "run": "../.."}, "no such path"),
    ("grep_logs", {"pattern": ".", "run": 7}, "must be text"),
    ("grep_logs", {"pattern": "(a+)+(?=b)"}, "grep_logs"),
    ("grep_logs", {"pattern": "x", "shell": "rm -rf /"}, "'shell'"),
    ("grep_logs", {"pattern": "x", "ws": None, "self": 1}, "takes pattern, file, limit, run"),
    ("grep_logs", {"pattern": ["x"]}, "'pattern'"),
    ("grep_logs", {}, "'pattern'"),
    ("grep_logs", {"pattern": "x", "limit": 10**9}, "'limit'"),
    ("read_lines", {"file": "../../../../etc/passwd"}, ""),
    ("read_lines", {"file": "/etc/passwd"}, ""),
    ("diagnose", {"question": "x", "allow": "write"}, "'allow'"),
    ("diagnose", {"question": "x" * 100_000}, "'question'"),
    ("search", {"query": "x"}, "'query'"),
    ("breaks", {}, "bug in doctor"),
]


def test_hostile_calls_get_one_line_calls_run_side_by_side_and_a_cancelled_one_holds_up_nothing() -> None:
    async def use(client: Client) -> None:
        for name, arguments, told in HOSTILE:
            answer = await client.call_tool(name, arguments)
            assert answer.is_error, (name, arguments)
            assert told in text(answer) and "\n" not in text(answer) and "root:" not in text(answer)
            assert "hunter2" not in text(answer)
        for name in ("nccl_test", "dump_stacks", "no such tool"):
            with pytest.raises(MCPError, match="no tool is called"):
                await client.call_tool(name, {})
        assert not (await client.call_tool("list_files", {})).is_error
        found: list[str] = []

        async def call() -> None:
            found.append(text(await client.call_tool("meets", {})))

        async with anyio.create_task_group() as both:
            both.start_soon(call)
            both.start_soon(call)
        assert [t.splitlines()[2] for t in found] == ["both were here"] * 2
        for _ in range(6):  # more than work at the same time
            with anyio.move_on_after(0.2) as scope:
                await client.call_tool("sleeps", {})
            assert scope.cancelled_caught
        assert not (await client.call_tool("list_files", {})).is_error

    talk(use, "--run", CASE.files, before=MORE_TOOLS)


