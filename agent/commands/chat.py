"""`doctor chat`: a conversation about a run, on the whole terminal, a line at a time, or in a browser."""

from __future__ import annotations

import gc
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from . import options

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..conversation.opening import Wanted
    from ..llm.settings import ModelSettings
    from .house import ChatHouse
    from .output import Form

_FOLDERS = ("DOCTOR_STATE", "DOCTOR_CACHE")  # variables that any value is right for, read where they are used


def chat(
    path: Annotated[
        list[str] | None,
        typer.Argument(help="Folder or file of the run.", show_default="the start screen, or the session's"),
    ] = None,
    session: options.Session = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the newest session (of PATH, if given).")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow the run while it goes on.")] = False,
    ask: Annotated[str | None, typer.Option("--ask", help="Ask this at once.", metavar="QUESTION")] = None,
    good: options.Good = None,
    also: options.Also = None,
    pid: options.Pid = None,
    model: options.Model = None,
    offline: options.Offline = False,
    base_url: options.BaseUrl = None,
    max_calls: options.MaxCalls = None,
    max_tokens: options.MaxTokens = None,
    max_seconds: options.MaxSeconds = None,
    max_cost: options.MaxCost = None,
    allow: options.AllowRisk = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="No screen: one question a line, one fact a line; for screen readers.")
    ] = False,
    quiet: options.Quiet = False,
    serve: Annotated[bool, typer.Option("--serve", help="In a browser of this machine instead.")] = False,
    host: Annotated[str, typer.Option("--host", help="Address that --serve binds to.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port of --serve; 0: any that is free.", min=0, max=65535)] = 8000,
    anywhere: Annotated[
        bool, typer.Option("--serve-anywhere", help="Let --host be one that other machines reach.")
    ] = False,
) -> int:
    """Talk about a run, on the whole terminal; without one, and with --plain, a line at a time."""
    from ..conversation.opening import Wanted

    if serve:
        return _in_browser(host, port, anywhere)
    if path and "-" in path:
        raise UsageError("a chat reads questions from the terminal or standard input, not a log", "name a folder")
    given = {"model": model, "base_url": base_url, "max_calls": max_calls, "max_tokens": max_tokens,
             "max_seconds": max_seconds, "max_cost": max_cost}  # fmt: skip
    house = partial(_house, given, offline, allow)
    wanted = Wanted(
        tuple(path or ()), tuple(good or ()), tuple(also or ()), tuple(pid or ()), session or "", resume
    )  # fmt: skip
    if not plain and _has_screen():
        at_once = any(v is not None for v in given.values()) or _something_set()
        return _on_screen(house, at_once, wanted, ask or "", watch)
    if watch:
        raise UsageError("--watch needs a terminal to draw on", "`doctor triage` looks at a run once")
    from . import output

    return _in_lines(house(), wanted, ask, output.form(plain=plain), quiet)


def _house(given: dict[str, Any], offline: bool, allow: str | None) -> ChatHouse:
    """Who opens conversations, by the settings and the options that stand above them.

    Raises:
        UsageError: one of them is wrong: told before a screen covers it.
    """
    from ..config import settle
    from ..store import usable_state
    from .house import ChatHouse
    from .model import model_settings

    config = settle()

    def named(name: str) -> ModelSettings | None:
        return model_settings(config, **{**given, "model": name or given["model"]}, offline=offline and not name)

    named("")
    return ChatHouse(config, usable_state()[0], named, allow or config.allow)


def _something_set() -> bool:
    """Whether a file or a variable sets anything: then it may be wrong, and may say where sessions are kept."""
    if any(name.startswith("DOCTOR_") and name not in _FOLDERS for name in os.environ):
        return True
    named = os.environ.get("XDG_CONFIG_HOME")
    return os.path.lexists((Path(named) if named else Path.home() / ".config") / "traindoctor")


def _in_browser(host: str, port: int, anywhere: bool) -> int:
    """Serve the same command line, without what is about serving, to each tab."""
    from ...tui.serve.server import serve

    def tell(line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    return serve(_without_serving(sys.argv[sys.argv.index("chat") + 1 :]), host, port, anywhere=anywhere, tell=tell)


def _without_serving(arguments: list[str]) -> list[str]:
    """The arguments of `doctor chat` less those that say how it is served."""
    kept, given = [], iter(arguments)
    for word in given:
        if word in ("--host", "--port"):
            next(given, None)
        elif word not in ("--serve", "--serve-anywhere") and not word.startswith(("--host=", "--port=")):
            kept.append(word)
    return kept


def _has_screen() -> bool:
    """Whether there is a terminal that can be drawn on and somebody at it, or a browser behind it."""
    if os.environ.get("TEXTUAL_DRIVER"):
        return True
    streams = (sys.stdin, sys.stdout)
    return all(s is not None and s.isatty() for s in streams) and os.environ.get("TERM", "") not in ("", "dumb")


def _in_lines(house: ChatHouse, wanted: Wanted, ask: str | None, form: Form, quiet: bool) -> int:
    """A conversation a line at a time; about this folder where nothing is named."""
    from dataclasses import replace

    from .chat_lines import hold

    named = wanted.paths or wanted.session or wanted.resume or wanted.pids
    return hold(house.open(wanted if named else replace(wanted, paths=(".",))), form, quiet, ask)


def _on_screen(house: Callable[[], ChatHouse], at_once: bool, wanted: Wanted, ask: str, watch: bool) -> int:
    """The chat on the whole terminal; the start screen where nothing is named.

    Args:
        at_once: what is set may be wrong, and is looked at before the screen is drawn.
    """
    from ..conversation.opening import Wanted as Nothing
    from ..store import usable_state
    from .chat_lines import leave
    from .house import LaterHouse

    for name in (*(() if watch else wanted.paths), *wanted.good):  # a run that is followed may begin later
        _check_path(name)
    if watch and not wanted.paths:
        raise UsageError("--watch follows a run", "name its folder")
    gc.disable()  # all that is made until the screen is drawn is kept anyway; then the app sees to it
    try:
        opens: ChatHouse | LaterHouse = house() if at_once else LaterHouse(usable_state()[0], house)
        from ...tui.app import DoctorApp

        app = DoctorApp(opens, opens.state, None if wanted == Nothing() else wanted, ask, watch)
        code = app.run() or app.return_code or 0
    finally:
        gc.enable()
    if app.last_words:
        sys.stderr.write(f"{app.last_words}\n")
    leave(code)
    return code


def _check_path(name: str) -> None:
    """Say before the screen is drawn what is plainly not there.

    Raises:
        UsageError: it is not.
    """
    from .house import path_of

    path = path_of(name)
    if not os.path.lexists(path):
        raise UsageError(f"no such path: {name}", "name a folder or a file")
