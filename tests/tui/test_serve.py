"""The chat in a browser: a real server, a real websocket; nobody without the token, nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import psutil
import pytest
from traindoctor.agent.core.errors import UsageError
from traindoctor.tui.serve.server import TABS, serve

APP = """\
import os, subprocess, sys
from textual.app import App
from textual.widgets import Label

class Hello(App):
    BINDINGS = [("c", "crash"), ("u", "links"), ("q", "quit")]
    def compose(self):
        yield Label(f"hello from {self.size.width} cells")
    def on_mount(self):
        subprocess.Popen(["sleep", "300"])
    def action_crash(self):
        os.write(2, b"\\x1b]52;c;AAAA\\x07boom\\n")
        os._exit(7)
    def action_links(self):
        self.open_url("http://example.invalid/")
        self.deliver_text(__file__)
        self.mount(Label("still here"))

Hello().run()
"""
SERVER = """\
import sys
from traindoctor.tui.serve.server import serve
serve([], port=0, tell=lambda line: print(line, file=sys.stderr, flush=True), command=[sys.executable, sys.argv[1]])
"""


class Served:
    """A server process and how to reach it."""

    def __init__(self, app: Path) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", SERVER, str(app)], stderr=subprocess.PIPE, text=True)
        assert self.process.stderr
        self.url = self.process.stderr.readline().strip()
        self.host = urlsplit(self.url).netloc
        self.base = f"http://{self.host}"

    def talk(self, story: Callable[[aiohttp.ClientSession], Awaitable[None]]) -> None:
        """Act as a browser with a fresh jar of cookies."""

        async def act() -> None:
            async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
                await story(browser)

        asyncio.run(asyncio.wait_for(act(), 60))

    async def line(self, browser: aiohttp.ClientSession, width: int = 60) -> aiohttp.ClientWebSocketResponse:
        """A tab of a browser that has the cookie."""
        return await browser.ws_connect(f"{self.base}/ws?width={width}&height=20", origin=self.base)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    app = tmp_path / "app.py"
    app.write_text(APP)
    server = Served(app)
    yield server
    for child in _family(server.process.pid):
        child.kill()
    server.process.kill()
    server.process.wait()


def _family(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


async def _drawn(line: aiohttp.ClientWebSocketResponse, words: bytes) -> bytes:
    """What was drawn, up to these words."""
    seen = b""
    while words not in seen:
        message = await line.receive(timeout=90)
        assert message.type is aiohttp.WSMsgType.BINARY, f"{message.type} {message.data!r}; drawn: {seen!r}"
        seen += message.data
    return seen


async def _status(browser: aiohttp.ClientSession, url: str, **headers: str) -> int:
    async with browser.get(url, headers=headers, allow_redirects=False) as answer:
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        return answer.status


ROUTES = ("/", "/ws", "/static/textual.js", "/static/", "/static/../server.py", "/download/x", "/nothing")


def test_nobody_gets_in_without_the_token_or_from_elsewhere(served: Served) -> None:
    async def story(browser: aiohttp.ClientSession) -> None:
        for path in (
            *ROUTES,
            "/?token=",
            "/?token=wrong",
            "/?token=%ff",
            f"/static/textual.js?{urlsplit(served.url).query}",
        ):
            assert await _status(browser, served.base + path) == 403, path
        assert await _status(browser, served.url, Host="evil.example:80") == 403, "a name that resolves to here"
        async with browser.get(served.url, allow_redirects=False) as answer:
            cookie = answer.headers["Set-Cookie"]
            assert (answer.status, answer.headers["Location"]) == (303, "/")
            assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "token" not in cookie
        async with browser.get(served.base + "/") as answer:
            page = await answer.text()
            assert answer.status == 200 and f"ws://{served.host}/ws" in page
            assert page.count("http") == 0 and page.count("//") == 1, "nothing is fetched from anywhere else"
            assert "allow-popups" not in answer.headers["Content-Security-Policy"]
        for name in ("textual.js", "xterm.css", "mono.ttf", "mono-italic.ttf"):
            assert f"/static/{name}" in page and await _status(browser, f"{served.base}/static/{name}") == 200
        for path in ROUTES[3:]:
            assert await _status(browser, served.base + path) == 404, path
        assert await _status(browser, served.base + "/", Host="localhost:9999") == 200, "through ssh -L"
        for host in ("evil.example", "127.0.0.1.evil.example", "user@127.0.0.1", "127.0.0.1:x", "[::1"):
            assert await _status(browser, served.base + "/", Host=host) == 403, host
        assert await _status(browser, served.base + "/static/textual.js", Origin="http://evil.example") == 403
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"https://{served.host}", None):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await browser.ws_connect(f"{served.base}/ws", origin=origin)
            assert refused.value.status == 403, origin
        assert not _family(served.process.pid), "none of this started a chat"

    served.talk(story)


def test_a_tab_is_a_process_of_its_own_and_nothing_is_left(served: Served) -> None:
    async def story(browser: aiohttp.ClientSession) -> None:
        await (await browser.get(served.url)).read()
        line = await served.line(browser)
        await _drawn(line, b"hello from 60 cells")
        for junk in ("", "[]", "[1]", '{"a": 1}', '["stdin", 1]', '["resize", {}]', '["resize", {"width": "x"}]'):
            await line.send_str(junk)
        await line.send_json(["stdin", "u"])
        assert b"example" not in await _drawn(line, b"still here"), "no address is opened, no file delivered"
        family = _family(served.process.pid)
        assert len(family) == 2, "the chat and what it started"
        await line.close()
        await _gone(family)

        line = await served.line(browser)
        await _drawn(line, b"hello")
        await line.send_json(["stdin", "c"])
        told = await _drawn(line, b"exit 7")
        assert b"boom" in told and b"\x1b]52" not in told, "what it said last is shown, inert"
        assert (await line.receive(timeout=90)).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)

        line = await served.line(browser)
        await _drawn(line, b"hello")
        family = _family(served.process.pid)
        served.process.send_signal(signal.SIGINT)
        await asyncio.to_thread(served.process.wait, 20)
        await _gone(family)
        assert served.process.returncode == 0 and served.process.stderr
        said = served.process.stderr.read()
        assert "token" not in said and "Traceback" not in said

    served.talk(story)


async def _gone(family: list[psutil.Process]) -> None:
    _, alive = await asyncio.to_thread(psutil.wait_procs, family, 20)
    assert not alive, "something still runs"


def test_so_many_tabs_and_no_more(tmp_path: Path) -> None:
    script = tmp_path / "mute.py"  # as good as a chat for counting, and at once there
    script.write_text("import sys, time\nsys.stdout.write('__GANGLION__\\n')\nsys.stdout.flush()\ntime.sleep(300)\n")
    server = Served(script)

    async def story(browser: aiohttp.ClientSession) -> None:
        await (await browser.get(server.url)).read()
        lines = [await server.line(browser) for _ in range(TABS)]
        await _drawn(await server.line(browser), b"close one")
        family = _family(server.process.pid)
        assert len(family) == TABS == len(lines)
        os.kill(server.process.pid, signal.SIGKILL)
        await _gone(family)  # also where the server could tell nobody

    try:
        server.talk(story)
    finally:
        server.process.kill()
        server.process.wait()


def test_where_it_does_not_serve_is_one_line() -> None:
    told: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for host, port, words in (
            ("0.0.0.0", 0, "--serve-anywhere"),
            ("192.0.2.7", 0, "apply patches"),
            ("127.0.0.1", taken.getsockname()[1], "in use"),
            ("127.0.0.1", 70000, "--port"),
        ):
            with pytest.raises(UsageError, match=words) as refused:
                serve([], host, port, tell=told.append)
            assert "\n" not in str(refused.value)
    assert not told, "no address is told that nobody serves"
