"""A running job in the conversation: its line on top, its news, fresh readings for the views, a diagnosis."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...agent.chat.talk import Wanted
from ..live.arrival import Arrival
from ..live.follow import Follow
from ..live.strip import LiveStrip
from ..messages import Ask

if TYPE_CHECKING:
    from ...agent.chat.chat_following import Pulse
    from ...agent.chat.talk import Conversation
    from ...agent.reading.run.workspace import Workspace
    from .joined import JoinedScreen
    from .opening import Opening


class FollowingRun:
    """Follows the run of the conversation that is open, one at a time."""

    def __init__(self, screen: JoinedScreen, opening: Opening) -> None:
        self._screen, self._opening = screen, opening
        self._follow: Follow | None = None
        self._arrival: Arrival | None = None
        self._fresh: Workspace | None = None  # read while an answer was under way
        self.strip = LiveStrip(id="live")

    def await_run(self, wanted: Wanted, question: str = "") -> None:
        """Wait until a run is there that may not have begun yet, then open it and follow it. Returns at once."""
        self.stop()

        def there() -> None:
            self.stop()
            self._opening.begin(wanted, question, watch=True)

        names = ", ".join(wanted.paths)
        self._arrival = Arrival([Path(p).expanduser() for p in wanted.paths], there)
        self._arrival.start(self._screen.app)
        self.strip.show_awaited(names)
        self._screen.transcript.tell(f"waiting for {names}, which is opened once a file is in it; /watch off ends that")

    @property
    def awaits(self) -> bool:
        """Whether a run is waited for that is not there yet."""
        return self._arrival is not None

    def begin(self, talk: Conversation) -> None:
        """Begin to follow; the one before is left."""
        self.stop()
        if not talk.workspace.roots:
            self._screen.transcript.tell("there is no run to follow: /run PATH opens one", trouble=True)
            return
        self._follow = Follow(
            list(talk.workspace.roots),
            good=list(talk.workspace.good),
            on_pulse=self._pulse,
            on_told=self._screen.transcript.note,
            on_workspace=self._read,
            on_wants_diagnosis=self._diagnose,
        )
        self._follow.start(self._screen.app)
        self._screen.transcript.tell("following the run; /watch off ends that")

    def stop(self) -> None:
        """Follow no more."""
        for waits in (self._follow, self._arrival):
            if waits is not None:
                waits.stop()
        self._follow = self._arrival = self._fresh = None
        self.strip.show_pulse(None)

    def settle(self) -> None:
        """An answer is over: readings that came meanwhile are taken now."""
        if self._fresh is not None:
            self._read(self._fresh)

    def _pulse(self, pulse: Pulse) -> None:
        self.strip.show_pulse(pulse)

    def _read(self, workspace: Workspace) -> None:
        """Fresh readings of the same run; a diagnosis that is under way keeps those that it began with."""
        screen = self._screen
        if screen.talk is None:
            return
        if screen.asking.now is not None:
            self._fresh = workspace
            return
        self._fresh = None
        screen.talk.renew(workspace)
        screen.side.renew(workspace)

    def _diagnose(self, why: str) -> None:
        """Something went wrong with the job: the diagnosis begins by itself, once."""
        self._screen.post_message(Ask(f"What went wrong? {why}"))
