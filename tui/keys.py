"""The keys that work wherever the focus is: one table, from which the screen binds them and the help lists them.

Each has a second key where terminals or multiplexers keep the first for themselves. None needs more than a plain
terminal sends over ssh.
"""

from __future__ import annotations

from dataclasses import dataclass

from textual.binding import Binding


@dataclass(frozen=True, slots=True)
class GlobalKey:
    """A key of the whole chat.

    Attributes:
        keys: what is pressed, in the words of Textual; the first is shown.
        action: the method of the screen, or of the application (`app.`), without `action_`.
        word: one or two words for the footer.
        about: a line for the help.
        rank: place in the footer, the most useful first; 0: only in the help.
        priority: also where the part that has the focus uses the key itself.
    """

    keys: tuple[str, ...]
    action: str
    word: str
    about: str
    rank: int = 0
    priority: bool = True

    @property
    def bindings(self) -> list[Binding]:
        """One for each of its keys; the first is shown in the footer, if the key is at all."""
        return [
            Binding(k, self.action, self.word, show=bool(self.rank) and k == self.keys[0], priority=self.priority)
            for k in self.keys
        ]


GLOBAL_KEYS = (
    GlobalKey(("f1",), "app.help", "help", "this help", rank=1),
    GlobalKey(("ctrl+p",), "app.command_palette", "palette", "find a command by its words", rank=2),
    GlobalKey(("escape",), "stop", "stop", "close what is open, take back a waiting question, or stop the answer",
              rank=3, priority=False),
    GlobalKey(("f2", "ctrl+e"), "panel('evidence')", "evidence", "the evidence: each line with its file and number",
              rank=4),
    GlobalKey(("f3", "ctrl+y"), "panel('hypotheses')", "hypotheses", "the causes that were weighed, and how they stood",
              rank=5),
    GlobalKey(("f4", "ctrl+g"), "panel('curves')", "curves", "loss, gradient norm, memory, speed around the event",
              rank=6),
    GlobalKey(("f5", "ctrl+r"), "panel('ranks')", "ranks", "what each rank did, and which broke first", rank=7),
    GlobalKey(("f6", "ctrl+d"), "panel('repairs')", "repairs", "patches as diffs, to apply or take back", rank=8),
    GlobalKey(("ctrl+q",), "app.quit", "quit", "end; the session is kept and can be gone on with", rank=9),
    GlobalKey(("tab",), "app.focus_next", "next part", "go to the next part of the screen", priority=False),
    GlobalKey(("shift+tab",), "app.focus_previous", "part before", "go to the part before", priority=False),
    GlobalKey(("pageup",), "page(-1)", "page up", "the conversation, a page up", priority=False),
    GlobalKey(("pagedown",), "page(1)", "page down", "the conversation, a page down", priority=False),
    GlobalKey(("ctrl+c",), "screen.copy_text", "copy", "copy what is selected", priority=False),
    GlobalKey(("ctrl+o",), "fold", "fold", "open or fold the cards of the checks"),
    GlobalKey(("ctrl+b",), "aside", "views", "hide or show the views beside the conversation"),
    GlobalKey(("ctrl+t",), "app.next_theme", "theme", "the next theme: dark, light, high contrast"),
)  # fmt: skip


def bindings() -> list[Binding]:
    """What the screen of the chat binds."""
    return [b for key in GLOBAL_KEYS for b in key.bindings]


_WORDS = {
    "escape": "esc", "question_mark": "?", "slash": "/", "full_stop": ".", "comma": ",", "minus": "-", "plus": "+",
    "pageup": "page up", "pagedown": "page down", "left_square_bracket": "[", "right_square_bracket": "]",
    "exclamation_mark": "!", "greater_than_sign": ">", "less_than_sign": "<", "colon": ":", "semicolon": ";",
    "asterisk": "*", "equals_sign": "=", "number_sign": "#", "at": "@", "underscore": "_",
}  # fmt: skip


def spelt(key: str) -> str:
    """A key as people write it: `ctrl+p`, `esc`, `?`, `page up`."""
    *held, last = key.split("+") if len(key) > 1 else [key]
    return "+".join([*held, _WORDS.get(last, last)])


def short(key: str) -> str:
    """The same for the footer: `^p`, `esc`."""
    return spelt(key).replace("ctrl+", "^").replace("page ", "pg")
