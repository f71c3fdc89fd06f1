"""What every view beside the conversation is: fed with the same events, shown the same report."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.containers import Vertical

if TYPE_CHECKING:
    from ...agent.chat.talk import Conversation
    from ...agent.core.events import Event
    from ...agent.core.report import Report
    from ...agent.reading.run.workspace import Workspace


class Panel(Vertical):
    """A view of the case. All its methods are called on the thread of the screen and must return at once.

    Attributes:
        NAME: its word: the tab, the slash command, the name of its picture.
        KEY: the key that shows it from anywhere.
    """

    NAME: ClassVar[str] = ""
    KEY: ClassVar[str] = ""
    ABOUT: ClassVar[str] = ""  # one line for help and palette

    def begin(self, talk: Conversation) -> None:
        """A run was opened: forget what was known of another. `talk.reports` may hold those of a session."""

    def renew(self, workspace: Workspace) -> None:
        """The same run, which goes on, as its files are now."""

    def see(self, event: Event) -> None:
        """An event of a diagnosis that is under way, in order."""

    def show(self, report: Report) -> None:
        """The report that is looked at now: the last diagnosis, not an answer to a follow-up."""

    def enter(self) -> None:
        """The panel was brought to the front by a key: put the focus where arrows and enter are of use."""
        self.focus()
