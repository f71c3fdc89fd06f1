"""The views beside the conversation: one at a time, each a key away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click
from textual.widgets import ContentSwitcher, Static

from ..keys import short
from ..panels.curves import CurvesPanel
from ..panels.evidence import EvidencePanel
from ..panels.hypotheses import HypothesesPanel
from ..panels.panel import Panel
from ..panels.ranks import RanksPanel
from ..panels.repairs import RepairsPanel

if TYPE_CHECKING:
    from ...agent.chat.talk import Conversation
    from ...agent.core.events import Event
    from ...agent.core.report import Report
    from ...agent.reading.run.workspace import Workspace

PANELS: tuple[type[Panel], ...] = (EvidencePanel, HypothesesPanel, CurvesPanel, RanksPanel, RepairsPanel)
NAMES = tuple(p.NAME for p in PANELS)


class Tabs(Static):
    """The names of the views with their keys, the one that is shown in brackets."""

    DEFAULT_CSS = """
    Tabs {
        height: 1; background: $surface; color: $text-muted; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(self) -> None:
        super().__init__("")
        self._places: list[tuple[int, str]] = []
        self._shown = ""

    def show(self, name: str) -> None:
        """Mark a view as the one that is shown."""
        self._shown = name
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        """All names with their keys; where there is no room, the key of the one that is shown alone."""
        rows = [self._texts(keys, blank) for keys, blank in ((True, " "), (False, " "), (False, ""))]
        texts = next((row for row in rows if sum(map(len, row)) <= self.size.width - 2), rows[-1])
        self._places, parts, at = [], [], 0
        for panel, text in zip(PANELS, texts, strict=True):
            parts.append(Content.styled(text, "bold $accent" if self._shown == panel.NAME else ""))
            at += len(text)
            self._places.append((at, panel.NAME))
        self.update(Content.assemble(*parts))

    def _texts(self, keys: bool, blank: str) -> list[str]:
        texts = []
        for panel in PANELS:
            key = short(panel.KEY.split(",")[0])
            shown = self._shown == panel.NAME
            word = f"{panel.NAME} {key}" if keys or shown else panel.NAME
            texts.append(f"[{word}]" if shown else f"{blank}{word} ")
        return texts

    def on_click(self, event: Click) -> None:
        name = next((n for end, n in self._places if event.x - 1 < end), "")
        if name:
            self.screen.query_one(Side).front(name)


class Side(Vertical):
    """All views, of which one is shown. Each is fed with every event, so that it is true when it comes to the front."""

    DEFAULT_CSS = """
    Side { width: 2fr; border-left: solid $panel; }
    Side ContentSwitcher { height: 1fr; }
    """

    def __init__(self) -> None:
        super().__init__(id="side")
        self._tabs = Tabs()

    def compose(self) -> ComposeResult:
        yield self._tabs
        with ContentSwitcher(initial=NAMES[0]):
            for kind in PANELS:
                panel = kind()
                panel.id = kind.NAME
                yield panel

    def on_mount(self) -> None:
        self._tabs.show(NAMES[0])

    @property
    def shown(self) -> str:
        """The name of the view that is shown."""
        return self.query_one(ContentSwitcher).current or NAMES[0]

    def front(self, name: str) -> Panel:
        """Bring a view to the front."""
        self.query_one(ContentSwitcher).current = name
        self._tabs.show(name)
        return self.query_one(f"#{name}", Panel)

    def panels(self) -> list[Panel]:
        """All views."""
        return [self.query_one(f"#{name}", Panel) for name in NAMES]

    def begin(self, talk: Conversation) -> None:
        """A run was opened."""
        for panel in self.panels():
            panel.begin(talk)

    def renew(self, workspace: Workspace) -> None:
        """The same run as its files are now."""
        for panel in self.panels():
            panel.renew(workspace)

    def see(self, event: Event) -> None:
        """An event of a diagnosis."""
        for panel in self.panels():
            panel.see(event)

    def show(self, report: Report) -> None:
        """The diagnosis that is looked at."""
        for panel in self.panels():
            panel.show(report)
