"""Draw the pictures of docs/chat.md from the real program: `make pictures`, or `docs/pictures.py NAME ...`.

Each scene copies a recorded incident to `runs/exp42` in a folder of its own, starts the chat there with a state folder
that is new, and presses keys. Session ids and clocks stand still, so that a picture changes where the program does.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

FOLDER = Path(__file__).resolve().parent
PICTURES = FOLDER / "pictures"
EVALS = FOLDER.parent / "evals"
DEMO = EVALS / "demo" / "files"
SESSION = "20260304-041500-a1b2c3"
RUN = "runs/exp42"
_FONTS = re.compile(r"@font-face \{[^}]*\}\s*")
_SETTINGS = {"TEXTUAL_ANIMATIONS": "none", "TERM": "xterm-256color", "COLORTERM": "truecolor", "TZ": "UTC"}

# The folder that the pictures are drawn in, and what of the same length they show in its place.
_PLACE, _SHOWN_AS = "/tmp/doctor", "/home/u/experiments"

Story = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scene:
    """What a picture shows: the run, what is asked at once, what is done then, and how large the terminal is."""

    story: Story
    files: Path = DEMO
    question: str = "why did it die?"
    size: tuple[int, int] = (120, 36)
    named: bool = True
    held: str = ""
    watched: bool = False


def incident(name: str) -> Path:
    """The files of a recorded incident."""
    return EVALS / "incidents" / name / "files"


async def settled(pilot: Any, holds: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait until something holds.

    Raises:
        TimeoutError: it never did.
    """
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"it never came about\n{words(pilot)}")
        await pilot.pause(0.02)
    await pilot.pause()


def words(pilot: Any) -> str:
    """All that stands on the screen."""
    return "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())


def chat(pilot: Any) -> Any:
    """The screen of the conversation."""
    from traindoctor.tui.chat.screen import ChatScreen

    return next(s for s in pilot.app.screen_stack if isinstance(s, ChatScreen))


async def answered(pilot: Any) -> None:
    """Until the question is answered."""
    await settled(pilot, lambda: (talk := chat(pilot).talk) and talk.reports and chat(pilot).asking.now is None)


async def typed(pilot: Any, line: str) -> None:
    """Type a line and send it."""
    chat(pilot).prompt.load(line)
    chat(pilot).prompt.focus()
    await pilot.press("enter")


async def start(pilot: Any) -> None:
    await settled(pilot, lambda: "confirmed" in words(pilot) and "9 logs" in words(pilot))


async def under_way(pilot: Any) -> None:
    def waits() -> bool:
        checks = chat(pilot).transcript.checks
        return bool(checks) and len(checks.running()) == 1 and len(checks.made) > 20

    await settled(pilot, lambda: chat(pilot).talk and waits() and "running" in words(pilot))


async def evidence(pilot: Any) -> None:
    await answered(pilot)
    await pilot.press("f2", "enter")
    await settled(pilot, lambda: "cited here" in words(pilot))


async def change(pilot: Any) -> None:
    await answered(pilot)
    await typed(pilot, "/apply P1")
    await settled(pilot, lambda: "change ends here" in words(pilot))


async def curves(pilot: Any) -> None:
    await answered(pilot)
    await pilot.press("f4")
    await settled(pilot, lambda: "all readings" in words(pilot) and "grad norm" in words(pilot))


async def ranks(pilot: Any) -> None:
    await answered(pilot)
    await pilot.press("f5")
    await settled(pilot, lambda: "failed first" in words(pilot))


async def approval(pilot: Any) -> None:
    await settled(pilot, lambda: chat(pilot).talk)
    await typed(pilot, "/tool dump-stacks")
    await settled(pilot, lambda: "[n] no" in words(pilot))
    await settled(pilot, lambda: "No key counts yet" not in words(pilot))


SCENES: dict[str, Scene] = {
    "start": Scene(start, question="", named=False, size=(100, 30)),
    "under-way": Scene(under_way, held="xid_errors", size=(100, 30)),
    "answer": Scene(answered, size=(140, 40)),
    "narrow": Scene(answered, size=(80, 24)),
    "evidence": Scene(evidence),
    "curves": Scene(curves, incident("loss-spike-despite-max-grad-norm"), "why did the loss jump?", (140, 36)),
    "ranks": Scene(ranks, size=(140, 30)),
    "change": Scene(change, incident("dist-vlm-bucket-sizes-differ"), "why does it hang?", (100, 30)),
    "approval": Scene(approval, question="", size=(100, 30), watched=True),
}


def draw(name: str) -> str:
    """A picture as SVG, without the addresses of fonts that a viewer would fetch."""
    if name == "browser":
        taken = in_browser()
    else:
        with _place(SCENES[name]) as app:
            taken = asyncio.run(_played(app, SCENES[name]))
    neutral = re.sub(_PLACE + r"\w{8}", _SHOWN_AS, _FONTS.sub("", taken))
    return re.sub(r"terminal-\d+", f"terminal-{name}", neutral)


async def _played(app: Any, scene: Scene) -> str:
    async with app.run_test(size=scene.size) as pilot:
        await scene.story(pilot)
        await pilot.pause(0.1)
        await pilot.pause()
        taken = app.export_screenshot(title="doctor chat")
        if scene.held:
            await pilot.press("escape")
            await settled(pilot, lambda: chat(pilot).asking.now is None)
        return taken


@contextlib.contextmanager
def _place(scene: Scene) -> Iterator[Any]:
    """A folder with the run, a state folder, fixed ids and clocks; the program in it."""
    from traindoctor.agent.chat.talk import Wanted
    from traindoctor.agent.core.config import settle
    from traindoctor.agent.doors.commands.chat_command import ChatHouse
    from traindoctor.agent.session import graph
    from traindoctor.agent.session.store import usable_state
    from traindoctor.tui.app import DoctorApp

    real = graph.guarded

    def held(tool: Any, ws: Any, args: Any, seconds: float, stopped: Callable[[], bool]) -> Any:
        while tool.name == scene.held and not stopped():
            time.sleep(0.02)
        return real(tool, ws, args, seconds, stopped)

    still = SimpleNamespace(monotonic=lambda: 4.0)
    with (
        _in_a_folder(scene.files),
        _process(scene.watched) as pid,
        patch("socket.gethostname", lambda: "login1"),  # no node of the run: this machine is not in the picture
        patch("traindoctor.agent.session.session.new_session", lambda: SESSION),
        patch("traindoctor.tui.chat.activity.time", still),
        patch.object(graph, "guarded", held),
    ):
        state = usable_state()[0]
        house = ChatHouse(settle(), state, lambda _: None, "read")
        if not scene.named:
            _earlier(house)
        wanted = Wanted(paths=(RUN,), pids=(pid,) if pid else ())
        yield DoctorApp(house, state, wanted if scene.named else None, scene.question)


@contextlib.contextmanager
def _process(wanted: bool) -> Iterator[int]:
    """A process that a check could look at; 0 where none is wanted."""
    if not wanted:
        yield 0
        return
    with subprocess.Popen(["python", "-c", "import time; time.sleep(60)"], executable=sys.executable) as child:
        try:
            yield child.pid
        finally:
            child.kill()


@contextlib.contextmanager
def _in_a_folder(files: Path) -> Iterator[Path]:
    """A folder that holds nothing but the run; also the current one."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DOCTOR_", "OPENAI_")) and k != "NO_COLOR"}
    cache = {k: v for k, v in os.environ.items() if k == "DOCTOR_CACHE"}
    before = Path.cwd()
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="doctor") as folder:
        place, state = Path(folder) / "llm", Path(folder) / "state"
        shutil.copytree(files, place / RUN, copy_function=shutil.copyfile)
        settings = {**_SETTINGS, "DOCTOR_STATE": str(state), "DOCTOR_CONFIG": str(state / "config.toml")}
        with patch.dict(os.environ, {**kept, **cache, **settings}, clear=True):
            os.chdir(place)
            try:
                yield place
            finally:
                os.chdir(before)


def _earlier(house: Any) -> None:
    """Diagnoses of before, for the start screen."""
    from traindoctor.agent.chat.talk import Wanted

    shutil.copytree(incident("memory-llama31-alpaca-jumps"), "runs/exp41", copy_function=shutil.copyfile)
    for path, session, question, hours in (
        ("runs/exp41", "20260303-181500-d4e5f6", "out of memory at step 1181, why?", 10),
        (RUN, SESSION, "why did it die?", 2),
    ):
        with patch("traindoctor.agent.session.session.new_session", lambda session=session: session):
            for _ in house.open(Wanted(paths=(path,))).ask(question):
                pass
        then = time.time() - hours * 3600 - 60
        for file in (*Path(path).rglob("*"), *(house.state / "reports").glob(f"{session}*")):
            os.utime(file, (then, then))


def in_browser(size: tuple[int, int] = (100, 30)) -> str:
    """What a tab of `--serve` is sent over its websocket, drawn by a terminal emulator."""
    import pyte

    code = "from traindoctor.agent.doors.cli import main; raise SystemExit(main())"
    argv = [sys.executable, "-c", code, "chat", RUN, "--offline", "--ask", "why did it die?", "--serve", "--port", "0"]
    screen = pyte.Screen(*size)
    with _in_a_folder(DEMO), subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr
            asyncio.run(asyncio.wait_for(_received(server.stderr.readline().split()[-1], screen, size), 60))
        finally:
            server.terminate()
    return _drawn(screen, size)


async def _received(url: str, screen: Any, size: tuple[int, int]) -> None:
    """Feed the screen until the answer stands on it."""
    import aiohttp
    import pyte

    stream, base = pyte.ByteStream(screen), url.split("/?")[0].rstrip("/")
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        await (await browser.get(url)).read()
        line = await browser.ws_connect(f"{base}/ws?width={size[0]}&height={size[1]}", origin=base)
        while "What happened" not in "\n".join(screen.display):
            data = (await line.receive(timeout=30)).data
            if isinstance(data, bytes):
                stream.feed(data)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.5):  # what is still drawn then
                while isinstance(data := (await line.receive()).data, bytes):
                    stream.feed(data)


def _drawn(screen: Any, size: tuple[int, int]) -> str:
    """The cells of a terminal as SVG."""

    from rich.console import Console
    from rich.style import Style
    from rich.text import Text

    def colour(name: str) -> str | None:
        return None if name == "default" else f"#{name}" if re.fullmatch(r"[0-9a-f]{6}", name) else None

    console = Console(width=size[0], height=size[1], record=True, file=io.StringIO(), force_terminal=True)
    for y in range(size[1]):
        row = Text(no_wrap=True, end="\n")
        cells = [screen.buffer[y][x] for x in range(size[0])]
        for (fg, bg, bold, reverse), alike in groupby(cells, lambda c: (c.fg, c.bg, c.bold, c.reverse)):
            look = Style(color=colour(fg), bgcolor=colour(bg), bold=bold, reverse=reverse)
            row.append("".join(c.data for c in alike), look)
        console.print(row, overflow="crop", crop=True)
    return console.export_svg(title="doctor chat --serve: what the browser is sent")


NAMES = (*SCENES, "browser")

if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for wanted in sys.argv[1:] or NAMES:
        found = draw(wanted)
        (PICTURES / f"{wanted}.svg").write_text(found, encoding="utf-8")
        sys.stderr.write(f"wrote docs/pictures/{wanted}.svg, {len(found) // 1000} kB\n")
