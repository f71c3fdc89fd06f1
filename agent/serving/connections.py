"""Connections of a small server: so many at once, each for so long. Whoever only holds them keeps nobody else out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.web_protocol import RequestHandler

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
