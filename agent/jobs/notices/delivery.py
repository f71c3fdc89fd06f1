"""One notice to one target: webhooks by our own POST, everything else by apprise, which only this module loads."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from ...core.errors import UsageError
from ...core.own_files import OddFile, small_file
from ...safety.fences import one_line

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


# ----------
# Where notices go: URLs that the user named, and what of such a URL may be shown. Most of them are secrets.
#
# There is no target unless one is named: by `--notify`, `DOCTOR_NOTIFY` (several with white space between them),
# `DOCTOR_NOTIFY_FILE` (one a line) or `notify` in the user's own config file. All of them together are used. `none`
# for a URL turns them off: on the command line all, in `DOCTOR_NOTIFY` all but those of the command line.

MOST = 20
NONE = "none"
FILE_LIMIT = 64 << 10
LONGEST = 4_000
CHECK_SECONDS = 30.0
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://(\S+)")
# Schemes whose host names a machine. In those of services it is often the token.
_WITH_HOST = frozenset(
    ("http", "https", "json", "jsons", "xml", "xmls", "form", "forms", "mailto", "mailtos", "gotify", "gotifys",
     "mmost", "mmosts", "rocket", "rockets", "matrix", "matrixs", "syslog", "rsyslog", "mqtt", "mqtts")
)  # fmt: skip


def settled(flags: Sequence[str] = ()) -> list[str]:
    """Every target that holds: those of the command line, the environment and the user's config file, once each.

    Raises:
        UsageError: one is no URL, there are too many, or the file cannot be read; no URL is shown.
    """
    found = dict.fromkeys(url for _, url in named(flags))
    if len(found) > MOST:
        raise UsageError(f"{len(found)} targets of notices: at most {MOST} are taken", "name a shared channel")
    return list(found)


def whom(flags: Sequence[str] = ()) -> tuple[list[str], str]:
    """Whom to tell of a failure. Never raises: a mistake in the settings must not cost a report, nor the others.

    Returns:
        What of `settled` can be used, and a line on what cannot.
    """
    try:
        return settled(flags), ""
    except UsageError as e:
        wrong = str(e)
    except Exception as e:  # noqa: BLE001 - settings that cannot be read
        wrong = type(e).__name__
    good: dict[str, None] = {}
    with suppress(UsageError, OSError):
        good = dict.fromkeys(url for _, url in _said(flags, forgiving=True) if _is_url(url))
    return list(good)[:MOST], f"notices: {wrong}"


def named(flags: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Who named a target, and its URL.

    Raises:
        UsageError: one is no URL, or the file that `DOCTOR_NOTIFY_FILE` names cannot be read.
    """
    said = _said(flags)
    check_form(said)
    return said


def check_form(said: Sequence[tuple[str, str]]) -> None:
    """Refuse what is no URL, without loading anything: also for whoever must stay small.

    Args:
        said: who named each target, and its URL.

    Raises:
        UsageError: one is no URL; it is not shown.
    """
    for origin, url in said:
        if not _is_url(url) and url != NONE:
            raise UsageError(
                f"{one_line(origin)}: a target of notices is not SCHEME://...",
                "https://, slack://, mailto:// and so on",
            )


def _is_url(text: str) -> bool:
    return len(text) <= LONGEST and _URL.fullmatch(text) is not None


def _said(flags: Sequence[str], forgiving: bool = False) -> list[tuple[str, str]]:
    """All that is named, in order.

    Raises:
        UsageError: a file cannot be read; `forgiving` leaves it out.
    """
    if NONE in flags:
        return []
    said = [("--notify", url) for url in flags]
    variable = os.environ.get("DOCTOR_NOTIFY", "").split()
    if NONE in variable:
        return said
    said += [("DOCTOR_NOTIFY", url) for url in variable]
    for further in (_in_file, _in_config):
        try:
            said += further()
        except UsageError:
            if not forgiving:
                raise
    return said


def _in_config() -> list[tuple[str, str]]:
    from ...core.config import config_file, settle

    stored = settle().notify
    return [(str(config_file()), url) for url in ([stored] if isinstance(stored, str) else stored) if url]


def _in_file() -> list[tuple[str, str]]:
    return [("DOCTOR_NOTIFY_FILE", url) for url in _of_file(os.environ.get("DOCTOR_NOTIFY_FILE", ""))]


def _of_file(path: str) -> list[str]:
    if not path:
        return []
    try:
        text = small_file(Path(path).expanduser(), FILE_LIMIT)[0].decode("utf-8", "replace")
    except OSError as e:
        raise UsageError(f"DOCTOR_NOTIFY_FILE: {one_line(path)}: {e.strerror}") from None
    except OddFile as e:
        raise UsageError(f"DOCTOR_NOTIFY_FILE: {one_line(path)} {e}") from None
    return [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def shown(url: str) -> str:
    """What may be told of a target: its scheme, and its host where that is no secret itself."""
    if (found := _URL.fullmatch(url)) is None:
        return "?"
    scheme = found[1].lower()
    host = re.split(r"[/?#]", found[2], maxsplit=1)[0].rpartition("@")[2]
    plain = scheme in _WITH_HOST and re.fullmatch(
        r"[A-Za-z0-9.-]{1,253}(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?", host
    )
    return f"{scheme}://{host}" if plain else f"{scheme}://..."


def checked(flags: Sequence[str] = ()) -> list[str]:
    """`settled`, each tried by the library that will send it: a mistyped URL is told before a job runs for days.

    That library is loaded in a child, so that whoever supervises a job stays small. Where the child itself fails,
    nothing is said: the check must not cost a job.

    Raises:
        UsageError: as `settled`, or nothing can be sent to one of them.
    """
    urls = settled(flags)
    if not urls:
        return urls
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "traindoctor.agent.jobs.notices.sender", "--check"],
            input=json.dumps(urls), capture_output=True, text=True, timeout=CHECK_SECONDS, check=False, cwd="/",
        )  # fmt: skip
        wrong = json.loads(done.stdout) if done.returncode == 0 else []
    except (OSError, ValueError, subprocess.SubprocessError):
        return urls
    if wrong:
        first = urls[wrong[0]]
        origin = next(who for who, url in named(flags) if url == first)
        raise UsageError(
            f"{one_line(origin)}: nothing can be sent to {shown(first)}", "docs/notices.md has the form of each kind"
        )
    return urls
