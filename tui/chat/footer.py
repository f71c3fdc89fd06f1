"""One line with the keys that are of use where the focus is. What has no room is left out: F1 lists all of them."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from textual.app import RenderResult
from textual.content import Content
from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget

from ..keys import GLOBAL_KEYS, short

_ALWAYS = 2  # the first ranks have their room before all others
_GAP = "  "


class KeyLine(Widget):
    """The footer: the keys of the part that has the focus, then those of everywhere by their rank, help at the end.

    Attributes:
        busy: an answer is under way: what stops it is shown.
    """

    DEFAULT_CSS = """
    KeyLine { height: 1; dock: bottom; background: $footer-background; color: $text-muted; padding: 0 1; }
    """
    ALLOW_SELECT = False
    busy = reactive(False)

    def on_mount(self) -> None:
        """Follow the focus."""
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.refresh())

    def render(self) -> RenderResult:
        """As many as fit, never a part of one."""
        return line(list(offered(self.screen, self.busy)), self.content_size.width)


def offered(screen: Screen, busy: bool = False) -> Iterator[tuple[str, str, int]]:
    """Key, words and rank (0: of the part that has the focus) of what is shown at the moment."""
    seen: set[str] = set()
    for key, active in screen.active_bindings.items():
        binding, of_part = active.binding, active.node not in (screen, screen.app)
        if of_part and binding.show and binding.description and active.enabled and binding.action not in seen:
            seen.add(binding.action)
            yield binding.key_display or short(key), binding.description, 0
    for one in GLOBAL_KEYS:
        if one.rank and one.keys[0] in screen.active_bindings and (busy or one.action != "stop"):
            yield short(one.keys[0]), one.word, one.rank


def line(keys: list[tuple[str, str, int]], width: int) -> Content:
    """The line for a width."""
    order = sorted(range(len(keys)), key=lambda i: (not 0 < keys[i][2] <= _ALWAYS, keys[i][2], i))
    fits, room = set[int](), width + len(_GAP)
    for i in order:
        needs = cell_len(f"{keys[i][0]} {keys[i][1]}{_GAP}")
        if needs <= room:
            fits.add(i)
            room -= needs
    own = [i for i in range(len(keys)) if i in fits and not keys[i][2]]
    rest = sorted((i for i in fits if keys[i][2] > _ALWAYS), key=lambda i: keys[i][2])
    last = sorted((i for i in fits if 0 < keys[i][2] <= _ALWAYS), key=lambda i: -keys[i][2])
    parts = [
        Content.assemble((keys[i][0], "bold $footer-key-foreground"), " ", keys[i][1]) for i in [*own, *rest, *last]
    ]
    return Content(_GAP).join(parts)
