"""One notice to one target: webhooks by our own POST, everything else by apprise, which only this module loads."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

SECONDS = 45.0  # for one delivery, whatever the server does
_CONNECT = 20.0
_OURS = {"json": "http", "jsons": "https", "http": "http", "https": "https"}


class NotTaken(Exception):
    """Nothing can ever be sent to this target: its URL is wrong."""


class NotSent(Exception):
    """It did not arrive this time; the message says why, without the URL."""


def deliver(url: str, notice: dict[str, Any]) -> None:
    """Send it now.

    Raises:
        NotTaken: the URL is wrong.
        NotSent: the server refused it or could not be reached in `SECONDS`.
    """
    with _within(SECONDS):
        try:
            found = service(url)
            if found is None:
                _post(url, notice)
            elif not found.notify(body=notice["text"], title=notice["subject"], body_format="text"):
                raise NotSent("the service did not take it")
        except (NotTaken, NotSent):
            raise
        except urllib.error.HTTPError as e:
            raise NotSent(f"HTTP {e.code}") from None
        except Exception as e:  # noqa: BLE001 - over a hundred services fail in their own ways; each is tried again
            raise NotSent(type(e).__name__) from None


def service(url: str) -> Any:
    """What apprise makes of a URL; None for a webhook of ours.

    `https://` addresses of services that apprise knows (of Slack, Discord and so on) are theirs, all others webhooks.

    Raises:
        NotTaken: it is neither.
    """
    scheme = url.partition("://")[0].lower()
    if scheme in ("json", "jsons", "http"):
        _target(url)
        return None
    import logging

    import apprise

    logging.getLogger("apprise").disabled = True  # its messages may hold URLs
    asset = apprise.AppriseAsset(
        app_id="doctor", app_desc="doctor", app_url="", image_url_logo=None, image_url_mask=None, async_mode=False,
        storage_mode=apprise.PersistentStoreMode.MEMORY, http_redirects=False, allow_templates=False,
        service_timeout=SECONDS,
    )  # fmt: skip
    one = apprise.Apprise(asset=asset)
    if one.add(url):
        return one
    if scheme != "https":
        raise NotTaken
    _target(url)
    return None


def _post(url: str, notice: dict[str, Any]) -> None:
    address, headers = _target(url)
    data = {name: notice.get(name) for name in ("schema", "subject", "text", "report")}
    request = urllib.request.Request(address, json.dumps(data).encode(), headers, method="POST")
    with urllib.request.build_opener(_NoRedirect).open(request, timeout=_CONNECT) as answer:
        answer.read(1)


def _target(url: str) -> tuple[str, dict[str, str]]:
    """Address and headers of a webhook: a user becomes basic authorization, `?+X-Name=value` a header of its own.

    Raises:
        NotTaken: it names no host, or a port that is none.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise NotTaken from None
    if not host:
        raise NotTaken
    headers = {"Content-Type": "application/json", "User-Agent": "doctor"}
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers["Authorization"] = f"Basic {b64encode(pair).decode()}"
    # A plus reads as a space in a query; the names of headers begin with it as they do for apprise.
    pairs = parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True)
    headers |= {k[1:]: v for k, v in pairs if k.startswith("+") and k[1:]}
    if any(c in text for pair in headers.items() for text in pair for c in "\r\n"):
        raise NotTaken
    rest = [(k, v) for k, v in pairs if not k.startswith("+")]
    query = urlencode(rest) if len(rest) < len(pairs) else parts.query
    where = f"[{host}]" if ":" in host else host
    return urlunsplit(
        (_OURS[parts.scheme.lower()], f"{where}:{port}" if port else where, parts.path or "/", query, "")
    ), headers


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """What a redirect names was not named by the user."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """End what a server draws out byte by byte. In the main thread of a process of its own alone."""

    def late(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again: a library may swallow the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
