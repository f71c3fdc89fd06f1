"""The first screen where no run was named: earlier diagnoses, runs near here, and what can be asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, OptionList, Static

from .examples import rows as examples
from .line import StartLine
from .looking import look
from .messages import Opened
from .places import PlaceList
from .recent_list import RecentList
from .recent_rows import details
from .rows import Rows, shown

if TYPE_CHECKING:
    from ...agent.chat.recent_places import Around, Meant, Place

SILENT = 3.0  # seconds after which a folder that does not answer is told
_HINT = "a folder or a file to open, or a question"


class StartScreen(Screen[None]):
    """Posts `Opened` for whatever is chosen, and stays until the application leaves it.

    Args:
        state: the state folder; the usual one where none is given.
        here: where relative paths begin and runs are looked for; the current folder where none is given.
        clock: gives the time that ages are counted from.
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012 - as its base has it
    AUTO_FOCUS = "#line"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "to_line", "to the line", show=True),
    ]
    DEFAULT_CSS = """
    StartScreen { layout: vertical; }
    StartScreen #top { height: auto; padding: 0 1; background: $panel; }
    StartScreen #prompt { height: 1; }
    StartScreen #prompt Static { width: 2; color: $text-accent; text-style: bold; }
    StartScreen #line, StartScreen #line:focus { width: 1fr; background: $panel; background-tint: $foreground 0%; }
    StartScreen #hint { color: $text-muted; height: 1; padding: 0 0 0 2; text-wrap: nowrap; text-overflow: ellipsis; }
    StartScreen #lists { height: 1fr; }
    StartScreen .heading { height: 1; padding: 0 1; text-style: bold; text-wrap: nowrap; text-overflow: ellipsis; }
    StartScreen .part { height: 1fr; }
    StartScreen .part Rows { margin: 0 1; }
    StartScreen.-narrow #lists { layout: vertical; }
    StartScreen.-narrow #side { height: 6fr; }
    StartScreen.-narrow #earlier { height: 5fr; }
    StartScreen.-wide #lists { layout: horizontal; padding: 1 0; }
    StartScreen.-wide #earlier { width: 3fr; }
    StartScreen.-wide #side { width: 2fr; }
    StartScreen #details { height: 2; padding: 0 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(
        self, state: Path | None = None, here: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__()
        self._state = state
        self._here = here or _current()
        self._clock = clock
        self._typing = 0  # counts changes of the line; an answer to an earlier one is dropped
        self._seen = False
        self._near = f"Runs near {self._here}"
        self._entering: int | None = None  # the change of the line whose enter waits for the disk

    def compose(self) -> ComposeResult:
        with Vertical(id="top"):
            with Horizontal(id="prompt"):
                yield Static("> ", markup=False)
                yield StartLine(_HINT)
            yield Static("", id="hint", markup=False)
        with Vertical(id="lists"):
            with Vertical(id="earlier", classes="part"):
                yield Static(Content("Earlier diagnoses"), id="recent-heading", classes="heading")
                yield RecentList(self._told_recent, self._clock)
            with Vertical(id="side"):
                with Vertical(classes="part"):
                    yield Static(Content("Runs near here"), id="places-heading", classes="heading")
                    yield PlaceList(self._here)
                with Vertical(classes="part"):
                    yield Static(Content("What can be asked"), classes="heading")
                    yield Rows(id="examples")
        yield Static("", id="details", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#examples", Rows).fill(examples())
        self._hint(Content.styled("enter opens or asks; down: the lists", ""))
        look(self, lambda: self._usable(), self._read, self.tell)
        self.set_timer(SILENT, self._silent)

    def tell(self, trouble: str) -> None:
        """Show on one line why something could not be opened or read."""
        self._hint(shown(f"! {trouble}", "$text-error"))

    def _usable(self) -> Path:
        from ...agent.chat.recent import usual_state

        return self._state or usual_state()

    def _read(self, state: Path) -> None:
        self.query_one(RecentList).read(state)
        look(self, lambda: self._around(state), self._found_around, self._not_found)

    def _around(self, state: Path) -> Around:
        """On another thread."""
        from ...agent.chat.recent_places import look_around

        known = frozenset(p.stem for p in (state / "reports").glob("*.json"))
        return look_around(self._here, known)

    def _found_around(self, around: Around) -> None:
        self._seen = True
        more = ", not all of it was looked at" if around.more else ""
        self._near = f"Runs near {self._here} ({len(around.runs):,}{more})"
        nothing = "none seen: type a path, tab completes it"
        self.query_one(PlaceList).show_runs(around.runs, self._clock(), nothing)
        if around.reports:
            self.query_one(RecentList).add(around.reports)

    def _not_found(self, why: str) -> None:
        self._seen = True
        self._near = f"! {why} ({self._here})"
        self._heading(self._near)

    def _silent(self) -> None:
        if not self._seen:
            self._heading(f"! {self._here} does not answer yet")

    def _heading(self, text: str) -> None:
        self.query_one("#places-heading", Static).update(shown(text))

    @on(PlaceList.Turned)
    def _turned(self, event: PlaceList.Turned) -> None:
        self._heading(event.heading or self._near)

    def _told_recent(self, text: str) -> None:
        self.query_one("#recent-heading", Static).update(shown(f"Earlier diagnoses ({text})"))

    def _hint(self, text: Content) -> None:
        self.query_one("#hint", Static).update(text)

    # The line.

    @on(StartLine.Changed)
    def _typed(self, event: StartLine.Changed) -> None:
        self._typing += 1
        number, text, here = self._typing, event.value, self._here
        self._told_of_cursor()
        if not text.strip():
            self.query_one(PlaceList).back_to_runs()
            self._hint(Content("enter opens or asks; down: the lists"))
            return

        def work() -> tuple[int, str, Meant, list[Place]]:
            from ...agent.chat.recent_places import completions, looks_like_path, meant

            path = looks_like_path(text) or (len(text) > 1 and not text.split()[1:])
            return number, text, meant(text, here), completions(text, here) if path else []

        look(self, work, self._understood, lambda why: None)

    def _understood(self, found: tuple[int, str, Meant, list[Place]]) -> None:
        number, text, meant, places = found
        if number != self._typing:
            return
        from ...agent.chat.recent_places import looks_like_path

        if places or looks_like_path(text):
            self.query_one(PlaceList).show_entries(text, places)
        else:
            self.query_one(PlaceList).back_to_runs()
        if meant.kind == "path":
            self._hint(shown(f"enter opens {meant.path}"))
        elif meant.kind == "no path":
            self._hint(shown(f"{meant.why}; tab completes" if places else meant.why))
        elif places:
            self._hint(Content("tab completes the path; enter asks this as a question"))
        else:
            self._hint(Content("enter asks this without a run; down: choose the run that it is about"))

    @on(StartLine.Complete)
    def _complete(self) -> None:
        line, here = self.query_one(StartLine), self._here
        number, text = self._typing, line.value

        def work() -> tuple[int, str]:
            from ...agent.chat.recent_places import completions, shared

            places = completions(text, here)
            return number, shared(places, text) if places else ""

        look(self, work, self._completed, self.tell)

    def _completed(self, found: tuple[int, str]) -> None:
        number, text = found
        line = self.query_one(StartLine)
        if number == self._typing and text and text != line.value:
            line.value = text
            line.cursor_position = len(text)
        elif number == self._typing:
            self._go_to("places" if text else "")

    @on(StartLine.Submitted)
    def _entered(self, event: StartLine.Submitted) -> None:
        number, text, here = self._typing, event.value, self._here

        def work() -> tuple[int, str, Meant]:
            from ...agent.chat.recent_places import meant

            return number, text.strip(), meant(text, here)

        look(self, work, self._enter, self.tell)
        self._entering = number
        self.set_timer(SILENT, lambda: self._still(number))

    def _still(self, number: int) -> None:
        if self._entering == number:
            self.tell("the file system does not answer yet; type another path, or a question")

    def _enter(self, found: tuple[int, str, Meant]) -> None:
        number, text, meant = found
        self._entering = None
        if number != self._typing:
            return
        if meant.path:
            self._open(meant.path)
        elif meant.kind == "no path":
            self.tell(meant.why)
        elif meant.kind == "question":
            self.post_message(Opened(question=text))
        else:
            self._go_to("recent")

    # The lists.

    @on(StartLine.Leave)
    def _down(self) -> None:
        text = self.query_one(StartLine).value
        self._go_to("places" if text.strip() else "recent")

    def _go_to(self, name: str) -> None:
        """Put the focus on a list; on the next part where none is named."""
        if name:
            self.query_one(f"#{name}", Rows).focus()
        else:
            self.focus_next()

    def action_to_line(self) -> None:
        self.query_one(StartLine).focus()

    def on_key(self, event: events.Key) -> None:
        """What is typed while a list has the focus goes to the line."""
        line = self.query_one(StartLine)
        if isinstance(self.focused, Rows) and event.is_printable and event.character:
            line.focus()
            line.insert_text_at_cursor(event.character)
            event.stop()

    @on(PlaceList.Into)
    def _into(self, event: PlaceList.Into) -> None:
        line = self.query_one(StartLine)
        line.value = event.text
        line.cursor_position = len(line.value)

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        asked = self._question()
        if event.option_list.id == "examples":
            self._take_example()
        elif event.option_list.id == "places" and (path := self.query_one(PlaceList).path):
            self._open(path, asked)
        elif entry := self.query_one(RecentList).entry if event.option_list.id == "recent" else None:
            if not entry.opens:
                self.tell(f"{entry.file or entry.session} is {entry.status}: diagnose the run again")
            else:
                by: dict[str, Any] = {"report": entry.file} if entry.file else {"session": entry.session}
                self.post_message(Opened(**by, question=asked))

    def _open(self, path: Path, question: str = "") -> None:
        """Ask for a run, or for a report that a job left there."""
        left = path.name == "doctor-report.json"
        self.post_message(Opened(report=path, question=question) if left else Opened(path=path, question=question))

    def _question(self) -> str:
        """What stands on the line, where it is no path, nor the beginning of one."""
        from ...agent.chat.recent_places import looks_like_path

        text = self.query_one(StartLine).value.strip()
        return "" if looks_like_path(text) or not (" " in text or "?" in text) else text

    def _take_example(self) -> None:
        line = self.query_one(StartLine)
        line.value = self.query_one("#examples", Rows).key or ""
        line.cursor_position = len(line.value)
        line.focus()

    @on(OptionList.OptionHighlighted)
    @on(events.DescendantFocus)
    def _told_of_cursor(self) -> None:
        below = self.query_one("#details", Static)
        focus = getattr(self.focused, "id", "")
        idle = focus == "line" and not self.query_one(StartLine).value
        if (idle or focus == "recent") and (entry := self.query_one(RecentList).entry):
            below.update(details(entry, self._clock()))
        elif focus == "places" and (path := self.query_one(PlaceList).path):
            below.update(Content("\n").join([shown(str(path)), Content("enter opens it, right looks into it")]))
        elif focus == "examples":
            below.update(Content("enter puts it on the line, where it can be changed"))
        else:
            below.update("")


def _current() -> Path:
    """The current folder; the root where it was deleted."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")
