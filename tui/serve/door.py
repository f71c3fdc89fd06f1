"""Who is let in: a token in the first address, a cookie from then on, and only under the names that we serve at.

Whoever is let in reads the run and may apply patches, so pages of other sites must not get in through the user's own
browser: a name that resolves to this machine (DNS rebinding) is refused by the Host header, a script of another origin
by the Origin of the websocket.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from aiohttp import web

REFUSED = "403: open the address that doctor printed, token and all\n"
_SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# `sandbox` without allow-popups: a link in a log line opens nothing. xterm.js writes its own style elements.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; img-src 'self' data:; "
    "connect-src 'self' ws://{host}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "sandbox allow-scripts allow-same-origin"
)

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what is bound to this host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(slots=True)
class Door:
    """Checks every request before anything else sees it.

    Attributes:
        host: what the server is bound to.
        token: the secret in the address; the cookie holds another, so that the address stays the only place of this.
    """

    host: str
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    name: str = field(default_factory=lambda: f"doctor-{secrets.token_hex(4)}")  # cookies know no ports

    async def check(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        """Answer a request that may come in; send any other away without a word about what there is."""
        host = request.headers.get("Host", "")
        if not self._is_ours(host):
            return self._refuse()
        shown = request.query.get("token")
        if request.path == "/" and request.method == "GET" and shown is not None:
            return self._enter() if same(shown, self.token) else self._refuse()
        if not same(request.cookies.get(self.name, ""), self.cookie):
            return self._refuse()
        if not self._origin_fits(request, host):
            return self._refuse()
        try:
            return await answer(request)
        except web.HTTPException as e:
            return web.Response(status=e.status, text=f"{e.status}: {e.reason}\n")

    async def seal(self, request: web.Request, response: web.StreamResponse) -> None:
        """Put on each answer what keeps a browser from doing anything else with it."""
        response.headers.update(_SECURITY)
        host = request.headers.get("Host", "")
        response.headers["Content-Security-Policy"] = _POLICY.format(host=host if self._is_ours(host) else "127.0.0.1")
        response.headers.pop("Server", None)

    def _enter(self) -> web.Response:
        """Give the cookie and send the browser on, so that the token leaves its address bar."""
        answer = web.Response(status=303, headers={"Location": "/"})
        answer.set_cookie(self.name, self.cookie, httponly=True, samesite="Strict", path="/")
        return answer

    def _refuse(self) -> web.Response:
        return web.Response(status=403, text=REFUSED)

    def _is_ours(self, header: str) -> bool:
        """Whether a Host header names us. Any port: `ssh -L` forwards from another one."""
        try:
            parts = urlsplit(f"//{header}")
            name = parts.hostname or ""
            _ = parts.port
        except ValueError:
            return False
        if not header or header != parts.netloc or parts.username is not None:
            return False
        if is_loopback(name):
            return True
        if is_loopback(self.host):
            return False
        return _is_address(name) or name in {self.host.lower(), socket.gethostname().lower()}

    def _origin_fits(self, request: web.Request, host: str) -> bool:
        """A websocket must come from our own page; where a browser tells an origin elsewhere, so must that."""
        origin = request.headers.get("Origin")
        if origin is None:
            return request.path != "/ws"
        return origin == f"http://{host}"


def same(given: str, secret: str) -> bool:
    """Compare in a time that tells nothing of where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
