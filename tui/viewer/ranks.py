"""The list of all ranks that have a log, to jump to one at the same moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from ..text import said

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from ...agent.telling.views.other_ranks import Name, Peer


class RankList(ModalScreen["Name | None"]):
    """Choose a rank; gives its name, None where nobody was chosen."""

    DEFAULT_CSS = """
    RankList { align: center middle; }
    RankList > Vertical { width: 70; max-width: 90%; height: auto; max-height: 80%; background: $surface;
        border: solid $accent; }
    RankList Static { padding: 0 1; color: $text-muted; }
    RankList OptionList { height: auto; max-height: 30; border: none; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss(None)", "Back")]

    def __init__(self, peers: list[Peer], here: Name | None) -> None:
        super().__init__()
        self._peers, self._here = peers, here

    def compose(self) -> ComposeResult:
        """A rank a line, with the file it wrote to."""
        with Vertical():
            yield Static(Content(f"{len(self._peers):,} ranks; enter shows the same moment"))
            width = max((len(p.title) for p in self._peers), default=0)
            options = [
                Option(said(f"{'>' if p.name == self._here else ' '} {p.title:<{width}}  {p.file.name}", limit=300))
                for p in self._peers
            ]
            yield OptionList(*options, compact=True)
            yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Begin at the rank that is shown."""
        here = next((n for n, p in enumerate(self._peers) if p.name == self._here), 0)
        self.query_one(OptionList).highlighted = here

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """That rank."""
        self.dismiss(self._peers[event.option_index].name)
