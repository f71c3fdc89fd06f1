"""Opens conversations as the options of `doctor chat` say: the run, the session, the model, the bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..store import STDIN

if TYPE_CHECKING:
    from ..config import Config
    from ..conversation.opening import Wanted
    from ..conversation.talk import Conversation
    from ..llm.settings import ModelSettings
    from ..workspace import Workspace


@dataclass(frozen=True, slots=True)
class ChatHouse:
    """See `conversation.opening.House`.

    Attributes:
        model: the settings of a model by its name; of the one that the user named where the name is empty.
    """

    config: Config
    state: Path
    model: Callable[[str], ModelSettings | None]
    allow: str

    def open(self, wanted: Wanted) -> Conversation:
        """The conversation that is wanted; the run of its session where none is named."""
        from ..conversation.talk import Conversation
        from ..types import Risk
        from .model import within_the_run

        if wanted.report:
            return self._of_report(wanted)
        session = self._session(wanted)
        ws = self._workspace(wanted, session)
        settings, told = within_the_run(self.model(""), ws.roots)
        return Conversation(ws, self.state, session, settings, told, Risk(self.allow)).recalled()

    def name_model(self, talk: Conversation, name: str) -> None:
        """Let another model plan; none where the name is empty."""
        from .model import within_the_run

        talk.model, told = within_the_run(self.model(name) if name else None, talk.workspace.roots)
        talk.notes = told

    def models(self) -> list[str]:
        """Profiles of the user's file."""
        return sorted(self.config.profiles)

    def _of_report(self, wanted: Wanted) -> Conversation:
        """A report that a job left beside its run, and that run. A question begins a session of its own."""
        from ..conversation.talk import Conversation
        from ..reported import report_of
        from ..types import Risk
        from .model import within_the_run

        report, path = report_of(wanted.report, self.state)
        folder = path.parent if path else Path()
        ws = self._workspace_of([str(folder)], wanted)
        settings, told = within_the_run(self.model(""), ws.roots)
        note = f"the report is that of {path}: whoever may write there may have made it"
        return Conversation(ws, self.state, None, settings, told, Risk(self.allow), [report], [note]).recalled()

    def _session(self, wanted: Wanted) -> str | None:
        """The session to go on with; None begins one.

        Raises:
            UsageError: there is none to go on with, or none by that id.
        """
        from ..store import checked_session, newest

        if wanted.session:
            return checked_session(self.state, wanted.session)
        if not wanted.resume:
            return None
        found = newest(self.state, path_of(wanted.paths[0]) if wanted.paths else None, left=True)
        if found is None:
            where = f" of {wanted.paths[0]}" if wanted.paths else ""
            raise UsageError(f"no session{where} to go on with", "leave --resume out to begin one")
        return found

    def _workspace(self, wanted: Wanted, session: str | None) -> Workspace:
        """The named run, else the one that the session is about, else none."""
        from ..store import is_kept, session_roots
        from ..workspace import Workspace

        paths, good = list(wanted.paths), list(wanted.good)
        if not paths and session is not None and is_kept(self.state, session):
            roots, healthy = session_roots(self.state, session, by="PATH")
            paths, good = [str(r) for r in roots], good or [str(r) for r in healthy]
        if not paths and not wanted.pids:
            return Workspace([], may_be_empty=True)
        return self._workspace_of(paths, wanted, good)

    def _workspace_of(self, paths: list[str], wanted: Wanted, good: list[str] | None = None) -> Workspace:
        from .material import workspace

        good = good or list(wanted.good)
        for name in (*paths, *good, *wanted.also):
            if name != STDIN and not path_of(name).exists():
                raise UsageError(f"no such path: {name}", "name a folder or a file")
        return workspace(paths or None, good, list(wanted.also), pids=list(wanted.pids))


class LaterHouse:
    """A house that is made when a run is opened, on the thread that opens it: to read the settings takes longer than
    to draw the screen.
    """

    def __init__(self, state: Path, made: Callable[[], ChatHouse]) -> None:
        self.state = state
        self._made = made

    @cached_property
    def _house(self) -> ChatHouse:
        return self._made()

    def open(self, wanted: Wanted) -> Conversation:
        """See `ChatHouse`."""
        return self._house.open(wanted)

    def name_model(self, talk: Conversation, name: str) -> None:
        """See `ChatHouse`."""
        self._house.name_model(talk, name)

    def models(self) -> list[str]:
        """See `ChatHouse`."""
        return self._house.models()


def path_of(name: str) -> Path:
    """A path as the user wrote it.

    Raises:
        UsageError: it can be none.
    """
    try:
        path = Path(name).expanduser()
    except RuntimeError:  # no such user
        raise UsageError(f"{name}: whose home is meant is not known", "write the folder out") from None
    if "\0" in name:
        raise UsageError(f"{name} names no file: it holds a NUL")
    return path
