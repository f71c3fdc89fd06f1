"""`doctor chat --serve`: the chat in a browser of this machine, one process a tab."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from collections.abc import Callable, Sequence

from aiohttp import WSMsgType, web

from ...agent.core.errors import UsageError
from .door import Answer, Door, is_loopback
from .page import file, page
from .tab import Tab

TABS = 8  # each is a process with its own readings of the run
SMALLEST, LARGEST = 10, 1000  # of a screen, in cells
_FULL = f"{TABS} tabs are open already: close one, then reload this page"


def own_command(arguments: Sequence[str]) -> list[str]:
    """The command line of one tab: this program, not whatever `doctor` the folder or the path may hold."""
    main = "import sys; from traindoctor.agent.doors.cli import main; raise SystemExit(main(sys.argv[1:]))"
    return [sys.executable, "-P", "-c", main, "chat", *arguments]


def serve(
    arguments: Sequence[str],
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    anywhere: bool = False,
    tell: Callable[[str], None],
    command: Sequence[str] | None = None,
) -> int:
    """Serve until ctrl+c.

    Args:
        arguments: of `doctor chat`, for each tab.
        port: 0 takes any that is free.
        anywhere: also bind where other machines can reach it.
        tell: is given the address with its token, and what it means, a line each.
        command: what a tab runs instead of `doctor chat`.

    Raises:
        UsageError: the host is not this machine's own, or the port is taken.
    """
    if not is_loopback(host) and not anywhere:
        raise UsageError(
            f"{host} can be reached from other machines",
            "leave --host out and forward the port with ssh -L; --serve-anywhere serves there all the same: "
            "whoever has the address can read the run and apply patches",
        )
    listening = _bound(host, port)
    door = Door(host)
    name = f"[{host}]" if ":" in host else host
    tell(f"http://{name}:{listening.getsockname()[1]}/?token={door.token}")
    if not is_loopback(host):
        tell("Not encrypted, and open to other machines: whoever has this address can read the run and apply patches.")
    tell("Ctrl-C ends it and every chat in it.")
    asyncio.run(_serve(listening, door, list(command or own_command(arguments))))
    return 0


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        UsageError: there is no such host, or the port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=64)
    except (OSError, OverflowError) as e:
        why = (e.strerror if isinstance(e, OSError) else None) or "no such port"
        raise UsageError(f"cannot serve at {host} port {port}: {why}", "name another with --port; 0 takes any") from e


async def _serve(listening: socket.socket, door: Door, command: list[str]) -> None:
    over = asyncio.Event()
    for what in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(what, over.set)
    tabs = _Tabs(command)

    @web.middleware
    async def checked(request: web.Request, handler: Answer) -> web.StreamResponse:
        return await door.check(request, handler)

    app = web.Application(middlewares=[checked])
    app.add_routes([web.get("/", _page), web.get("/static/{name}", _file), web.get("/ws", tabs.open)])
    app.on_response_prepare.append(door.seal)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)  # a log of requests would hold the token
    await runner.setup()
    await web.SockSite(runner, listening).start()
    await over.wait()
    await tabs.close()
    await runner.cleanup()


async def _page(request: web.Request) -> web.Response:
    return web.Response(text=page(request.headers["Host"]), content_type="text/html")


async def _file(request: web.Request) -> web.StreamResponse:
    found = file(request.match_info["name"])
    if found is None:
        raise web.HTTPNotFound
    return web.FileResponse(found[0], headers={"Content-Type": found[1]})


class _Tabs:
    """The chats that are open."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._open: dict[Tab, web.WebSocketResponse] = {}

    async def open(self, request: web.Request) -> web.WebSocketResponse:
        """Hold one chat until the browser leaves or the child ends."""
        line = web.WebSocketResponse(heartbeat=15, max_msg_size=1 << 20)
        await line.prepare(request)
        if len(self._open) >= TABS:
            await _last_words(line, _FULL)
            return line
        tab = Tab(self._command, line.send_bytes)
        self._open[tab] = line
        size = (_cells(request.query.get("width"), 80), _cells(request.query.get("height"), 24))
        drawing = asyncio.create_task(self._draw(tab, line, *size))
        try:
            async for message in line:
                if message.type == WSMsgType.TEXT:
                    await _heed(tab, line, message.data)
        finally:
            await tab.close()
            await drawing
        return line

    async def _draw(self, tab: Tab, line: web.WebSocketResponse, width: int, height: int) -> None:
        try:
            trouble = await tab.run(width, height)
            await _last_words(line, trouble)
        finally:
            self._open.pop(tab, None)

    async def close(self) -> None:
        """End every child, then every connection."""
        await asyncio.gather(*(tab.close() for tab in self._open))
        await asyncio.gather(*(line.close() for line in list(self._open.values())))


async def _last_words(line: web.WebSocketResponse, trouble: str) -> None:
    """Say what went wrong on a cleared screen, and hang up."""
    if line.closed:
        return
    try:
        if trouble:
            await line.send_bytes(b"\x1b[?1049l\x1b[2J\x1b[H" + trouble.encode("utf-8", "replace") + b"\r\n")
        await line.close()
    except ConnectionError:
        return


async def _heed(tab: Tab, line: web.WebSocketResponse, text: str) -> None:
    """Do what the page asks; what is no such thing is passed over."""
    try:
        kind, *rest = json.loads(text)
        what = rest[0] if rest else None
        if kind == "stdin" and isinstance(what, str):
            await tab.type(what)
        elif kind == "resize" and isinstance(what, dict):
            await tab.tell(type="resize", width=_cells(what.get("width"), 80), height=_cells(what.get("height"), 24))
        elif kind in ("focus", "blur"):
            await tab.tell(type=kind)
        elif kind == "ping" and isinstance(what, str):
            await line.send_json(["pong", what[:40]])
    except (ValueError, TypeError, ConnectionError):
        return


def _cells(given: object, default: int) -> int:
    """A width or height that a screen can have."""
    try:
        return max(SMALLEST, min(LARGEST, int(str(given))))
    except ValueError:
        return default
