"""F1: every key, every command, what can be asked, what the marks mean. Typing looks among them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.dom import DOMNode
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Input, Static

from ..commands import COMMANDS, QUESTIONS, SlashCommand
from ..keys import GLOBAL_KEYS, spelt

MARKS = (
    ("!", "went wrong, or where it first did"),
    ("+", "speaks for a cause; a line that a patch puts in"),
    ("-", "speaks against a cause; a line that a patch takes out"),
    (">", "here: the line that is meant, or where you type"),
    ("E3, P1", "evidence and patches by their numbers: /evidence E3, /apply P1"),
    ("..", "more stands there than is shown"),
)


@dataclass(slots=True)
class Section:
    """Rows under a title: what to press, type or see, and what it means."""

    title: str
    rows: list[tuple[str, str]] = field(default_factory=list)

    def among(self, words: str) -> Section:
        """Only the rows that hold each of the words; all of them where the title does."""
        sought = words.lower().split()
        kept = [r for r in self.rows if all(w in f"{self.title} {r[0]} {r[1]}".lower() for w in sought)]
        return Section(self.title, kept)


def sections(screen: Screen) -> list[Section]:
    """What the help lists for a screen: a view that has the focus comes first; of the prompt people know the keys."""
    parts = _parts(screen)
    typing = bool(parts) and parts[0].title == "Keys: prompt"
    everywhere = Section("Keys everywhere", [(", ".join(map(spelt, g.keys)), g.about) for g in GLOBAL_KEYS])
    known = {k for g in GLOBAL_KEYS for k in g.keys}
    for node in (screen, screen.app):
        everywhere.rows += _rows((node,), known)
    return [
        *parts[: 0 if typing else 1],
        everywhere,
        Section("Commands", [(c.usage, _about(c)) for c in COMMANDS]),
        Section("What can be asked", list(QUESTIONS)),
        Section("What the marks mean", list(MARKS)),
        *parts[0 if typing else 1 :],
    ]


def _about(command: SlashCommand) -> str:
    also = f" (also {', '.join(f'/{a}' for a in command.aliases)})" if command.aliases else ""
    return f"{command.about}{also}{'   as in ' + command.example if command.needs else ''}"


def _parts(screen: Screen) -> list[Section]:
    """The keys of each part of the screen, of those that have any."""
    nodes: dict[str, list[DOMNode]] = {}
    focused = screen.focused
    first = [n for n in focused.ancestors_with_self if isinstance(n, Widget) and n is not screen] if focused else []
    for node in [*first, *screen.walk_children(Widget)]:
        of = nodes.setdefault(_part(node), [])
        if type(node) not in map(type, of):
            of.append(node)
    found = [Section(f"Keys: {name}", _rows(of, set())) for name, of in nodes.items()]
    return [s for s in found if s.rows]


def _part(node: DOMNode) -> str:
    """The word of the part that a widget belongs to."""
    for one in node.ancestors_with_self:
        if name := getattr(one, "NAME", ""):
            return str(name)
    return "".join(f" {c.lower()}" if c.isupper() else c for c in type(node).__name__).strip()


def _rows(nodes: Iterable[DOMNode], without: set[str]) -> list[tuple[str, str]]:
    """Keys and what they do; keys that do the same stand together."""
    keys: dict[str, list[str]] = {}
    for node in nodes:
        for key, binding in node._bindings:
            if key in without or (binding.system and binding.action == "help_quit"):
                continue
            words = binding.description or binding.tooltip or binding.action.partition("(")[0].replace("_", " ")
            known = keys.setdefault(words, [])
            if spelt(key) not in known:
                known.append(spelt(key))
    return [(", ".join(of), words) for words, of in keys.items()]


class HelpScreen(ModalScreen[None]):
    """The help of the screen below it."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > Vertical {
        width: 96%; max-width: 110; height: 92%; background: $surface; border: solid $border; padding: 0 1;
    }
    HelpScreen Input { border: none; height: 1; padding: 0; background: $surface; }
    HelpScreen Input:focus { border: none; }
    HelpScreen VerticalScroll { scrollbar-size-vertical: 1; background: $surface; }
    HelpScreen .help--hint { color: $text-muted; height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1", "close", "close"),
        Binding("up", "scroll(-1)", "up", show=False),
        Binding("down", "scroll(1)", "down", show=False),
        Binding("pageup", "scroll(-10)", "page up", show=False),
        Binding("pagedown", "scroll(10)", "page down", show=False),
    ]

    def __init__(self, found: list[Section], words: str = "") -> None:
        super().__init__()
        self.found = found
        self._input = Input(words, placeholder="type to search", compact=True)
        self._input.cursor_blink = False
        self._page = Static("", markup=False)
        self._scroll = VerticalScroll(self._page, can_focus=False)

    @classmethod
    def of(cls, screen: Screen, words: str = "") -> HelpScreen:
        """The help of a screen; to be made before it is pushed over it."""
        return cls(sections(screen), words)

    def compose(self) -> ComposeResult:
        """Search, page, hint."""
        hint = "up, down, page up, page down: scroll   esc: close"
        with Vertical():
            yield self._input
            yield self._scroll
            yield Static(hint, classes="help--hint", markup=False)

    def on_mount(self) -> None:
        """Typing searches at once."""
        self._input.focus()

    def on_resize(self) -> None:
        """Rows are wrapped for the width."""
        self.call_after_refresh(self._draw)

    def on_input_changed(self) -> None:
        """Look for what is typed."""
        self._draw()
        self._scroll.scroll_home(animate=False)

    def action_close(self) -> None:
        """Back to what was below."""
        self.dismiss()

    def action_scroll(self, by: int) -> None:
        """Move the page; the search keeps the keys."""
        step = by if abs(by) == 1 else (self._scroll.size.height - 1) * (1 if by > 0 else -1)
        self._scroll.scroll_relative(y=step, animate=False)

    def _draw(self) -> None:
        width = max(40, self._scroll.size.width - 1)  # the scrollbar comes and goes with what is found
        shown = [s for s in (one.among(self._input.value) for one in self.found) if s.rows]
        parts = [_drawn(s, width) for s in shown] or [
            Content(
                "nothing here has these words",
            )
        ]
        self._page.update(Content("\n\n").join(parts))


def _drawn(section: Section, width: int) -> Content:
    """A title and its rows in two columns; a long left one has a line of its own."""
    left = 26 if width >= 68 else width // 3
    lines = [Content.styled(section.title, "bold $accent")]
    for what, means in section.rows:
        wrapped = textwrap.wrap(means, max(20, width - left - 4)) or [""]
        if len(what) > left:
            lines.append(Content.styled(f"  {what}", "bold"))
            head = Content(" " * (left + 4))
        else:
            head = Content.styled(f"  {what.ljust(left)}  ", "bold")
        lines.append(head + Content(wrapped[0]))
        lines += [Content(" " * (left + 4) + more) for more in wrapped[1:]]
    return Content("\n").join(lines)
