"""The HTTP server of `doctor serve`: on loopback, for Alertmanager's webhook, with its health and counts beside it."""

from __future__ import annotations

import asyncio
import hmac
import re
import signal
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import UsageError
from ...safety.fences import one_line
from .alerts import Alert, Elsewhere, Heard, Malformed, Places, alerts_of
from .triages import Tell, Triages

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.web_protocol import RequestHandler


# ----------
# Connections of a small server: so many at once, each for so long. Whoever only holds them keeps nobody else out.


MOST = 100
SECONDS = 20.0  # from the first byte to the last of one connection


def bounded(server: web.Server) -> Callable[[], asyncio.BaseProtocol]:
    """Makes the protocol of each connection; one too many ends the oldest, and time ends each."""
    held: deque[RequestHandler] = deque()

    def made() -> asyncio.BaseProtocol:
        handler = server()
        held.append(handler)
        if len(held) > MOST:
            _end(held.popleft())
        asyncio.get_running_loop().call_later(SECONDS, _end, handler)
        return handler

    return made


def _end(handler: RequestHandler) -> None:
    if handler.transport is not None:  # else it has ended by itself
        handler.transport.abort()


# ----------

LOOPBACK = ("127.0.0.1", "::1")
BODY = 1 << 20  # bytes
_READ_SECONDS = 8.0  # Alertmanager gives up after 10
# A page in a browser reaches loopback under a name of its own; only these names are ours.
_OURS = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::\d{1,5})?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the server listens, and who may talk to it. Without a token everybody on this machine may."""

    host: str
    port: int
    token: str = ""


class Server:
    """Hears alerts and queues triages."""

    def __init__(self, places: Places, heard: Heard, triages: Triages, tell: Tell, token: str) -> None:
        self._places, self._heard, self._triages, self._tell, self._token = places, heard, triages, tell, token
        self.counts: Counter[str] = Counter()

    def application(self) -> web.Application:
        """Its routes, behind the checks of who asks."""
        from aiohttp import web

        @web.middleware
        async def guarded(request: web.Request, handler: Callable[..., Any]) -> web.StreamResponse:
            try:
                self._check(request)
                answer = await handler(request)
            except web.HTTPException as e:
                e.force_close()
                raise
            answer.force_close()  # a connection is for one message: none is kept, and none has to be waited for
            return answer

        app = web.Application(client_max_size=BODY, middlewares=[guarded])
        app.router.add_post("/alertmanager", self._hear)
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/metrics", self._metrics)
        return app

    def _check(self, request: web.Request) -> None:
        from aiohttp import web

        if not _OURS.fullmatch(request.headers.get("Host", "")) or "Origin" in request.headers:
            raise web.HTTPForbidden(text="only programs of this machine are answered\n")
        given = request.headers.get("Authorization", "").encode("utf-8", "replace")
        known = hmac.compare_digest(given, f"Bearer {self._token}".encode())
        if self._token and request.method == "POST" and not known:
            self.counts["unauthorized"] += 1
            raise web.HTTPUnauthorized(text="the token is missing or wrong\n")

    async def _hear(self, request: web.Request) -> web.Response:
        from aiohttp import web

        if request.content_type != "application/json" or "Content-Encoding" in request.headers:
            raise web.HTTPUnsupportedMediaType(text="application/json is read, as it is\n")
        try:
            async with asyncio.timeout(_READ_SECONDS):
                alerts = alerts_of(await request.read())
        except TimeoutError:
            raise web.HTTPRequestTimeout(text="the message did not end\n") from None
        except Malformed as e:
            self.counts["malformed"] += 1
            self._tell({"event": "malformed", "why": one_line(str(e))})
            raise web.HTTPBadRequest(text=f"{one_line(str(e))}\n") from None
        took = [self._take(alert) for alert in alerts]
        self._heard.save()
        if not all(took):  # Alertmanager sends the message again; what was taken is known by then
            raise web.HTTPServiceUnavailable(text="too many runs wait\n", headers={"Retry-After": "60"})
        return web.Response(text="ok\n")

    def _take(self, alert: Alert) -> bool:
        """Queue what an alert names, if it is new. False where there is no place."""
        told = {"alert": one_line(alert.name)[:120]}
        if not alert.firing:
            self.counts["resolved"] += 1
            if self._heard.forget(alert.key):
                self._tell({"event": "resolved", **told})
            return True
        self.counts["firing"] += 1
        if self._heard.knows(alert.key):
            self.counts["repeated"] += 1
            return True
        try:
            run = self._places.of(alert)
        except Elsewhere as e:
            self._heard.keep(alert.key, "refused")
            self.counts["refused"] += 1
            self._tell({"event": "refused", **told, "why": one_line(str(e))})
            return True
        if self._triages.full(run):
            self.counts["turned_away"] += 1
            self._tell({"event": "turned away", **told, "run": one_line(run[-1]), "why": "too many runs wait"})
            return False
        self._triages.add(alert.key, run)
        self._tell({"event": "heard", **told, "run": one_line(run[-1])})
        return True

    async def _health(self, _: web.Request) -> web.Response:
        from aiohttp import web

        return web.json_response({"status": "ok", "waiting": self._triages.waiting})

    async def _metrics(self, _: web.Request) -> web.Response:
        from aiohttp import web

        names = ("firing", "repeated", "resolved", "refused", "turned_away", "malformed", "unauthorized")
        lines = ["# HELP doctor_alerts_total What was heard.", "# TYPE doctor_alerts_total counter"]
        lines += [f'doctor_alerts_total{{kind="{name}"}} {self.counts[name]}' for name in names]
        lines += ["# HELP doctor_triages_total Triages that ended.", "# TYPE doctor_triages_total counter"]
        lines += [f'doctor_triages_total{{outcome="{n}"}} {self._triages.counts[n]}' for n in ("done", "failed")]
        lines += ["# HELP doctor_triages_waiting Runs that wait.", "# TYPE doctor_triages_waiting gauge"]
        lines += [f"doctor_triages_waiting {self._triages.waiting}"]
        text = "\n".join([*lines, ""])
        return web.Response(body=text.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})


async def serve(places: Places, heard: Heard, where: Listening, tell: Tell, urls: list[str]) -> None:
    """Serve until SIGTERM or SIGINT; then children are ended too.

    Raises:
        UsageError: the port is taken.
    """
    from aiohttp import web

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, stop.set)
    triages = Triages(places, heard, tell, urls)
    for key, run in heard.waiting():
        triages.add(key, run)
    app = Server(places, heard, triages, tell, where.token).application()
    runner = web.AppRunner(
        app, access_log=None, shutdown_timeout=1.0, handle_signals=False, auto_decompress=False, lingering_time=2.0
    )
    await runner.setup()
    worker = listening = None
    try:
        assert runner.server is not None
        listening = await loop.create_server(bounded(runner.server), where.host, where.port)
        worker = asyncio.create_task(triages.work())
        port = listening.sockets[0].getsockname()[1]
        host = f"[{where.host}]" if ":" in where.host else where.host
        tell({"event": "listening", "url": f"http://{host}:{port}/alertmanager"})
        ended = asyncio.create_task(stop.wait())
        await asyncio.wait({ended, worker}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
    except OSError as e:
        raise UsageError(f"cannot listen on port {where.port}: {e.strerror}", "--port names another") from None
    finally:
        if listening is not None:
            listening.close()
        if worker is not None:
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await worker  # a fault of the worker's comes out here
        await runner.cleanup()
