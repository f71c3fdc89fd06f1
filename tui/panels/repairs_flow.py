"""Applying and taking back, from the wish to the word about it: worked out aside, shown, asked, written, told."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from textual.worker import WorkerCancelled, WorkerFailed

from ...agent.core.errors import DoctorError
from ..messages import Told
from .repairs import RepairsPanel

if TYPE_CHECKING:
    from textual.screen import Screen

    from ...agent.chat.offered_repairs import PreparedApply, PreparedUndo, Repairs, Written
    from ...agent.chat.talk import Conversation
    from ...agent.core.report import Report

_T = TypeVar("_T")
NOT_WRITTEN = "nothing was written"
_busy: WeakSet[Any] = WeakSet()  # screens with a change under way: two questions at once would cover each other


def begin_apply(screen: Screen[Any], talk: Conversation, report: Report, ids: Sequence[str]) -> None:
    """What a screen calls when it hears `ApplyPatches`. Returns at once."""
    _begin(screen, apply_patches(screen, talk, report, ids))


def begin_undo(screen: Screen[Any], talk: Conversation, ident: str = "") -> None:
    """What a screen calls when it hears `UndoApply`. Returns at once."""
    _begin(screen, undo_apply(screen, talk, ident))


def _begin(screen: Screen[Any], flow: Coroutine[Any, Any, None]) -> None:
    screen.run_worker(flow, group="repairs-flow", exit_on_error=False)


async def apply_patches(screen: Screen[Any], talk: Conversation, report: Report, ids: Sequence[str]) -> None:
    """Show what patches would write, ask, write, tell. Run it in a worker of the screen."""
    from ...agent.chat.offered_repairs import Repairs

    repairs = Repairs(talk)

    async def flow() -> None:
        for left in await _aside(screen, repairs.interrupted):
            if not await _taken_back(screen, repairs, left):
                _tell(screen, "an apply was interrupted and left files half done: it must be put back first", True)
                return
        change = await _aside(screen, lambda: repairs.prepare(report, ids))
        if change.already:
            _tell(screen, f"already applied: {', '.join(change.already)}")
        if not change.ids:
            if not change.already:
                _tell(screen, "these patches change nothing")
            return
        if not await _agreed(screen, change, "Write"):
            _tell(screen, NOT_WRITTEN)
            return
        done = await _aside(screen, lambda: repairs.carry_out(change))
        _told(screen, done)
        _tell(screen, f"take it back with u on the repair, or: doctor undo {done.ident}")

    await _one_at_a_time(screen, flow)


async def undo_apply(screen: Screen[Any], talk: Conversation, ident: str = "") -> None:
    """Show what taking an apply back changes, ask, put back, tell; the newest of this run where none is named."""
    from ...agent.chat.offered_repairs import Repairs

    async def flow() -> None:
        await _taken_back(screen, Repairs(talk), ident)

    await _one_at_a_time(screen, flow)


async def _taken_back(screen: Screen[Any], repairs: Repairs, ident: str) -> bool:
    change = await _aside(screen, lambda: repairs.prepare_undo(ident))
    if not await _agreed(screen, change, "Put back"):
        _tell(screen, NOT_WRITTEN)
        return False
    _told(screen, await _aside(screen, lambda: repairs.undo(change)))
    return True


async def _one_at_a_time(screen: Screen[Any], flow: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a flow; whatever goes wrong is a line."""
    if screen in _busy:
        _tell(screen, "another change is being prepared or asked about", True)
        return
    _busy.add(screen)
    try:
        await flow()
    except (DoctorError, OSError) as e:
        _tell(screen, str(e), True)
    except WorkerCancelled:
        _tell(screen, "stopped; `doctor undo --list` shows whether something was written", True)
    except Exception as e:  # noqa: BLE001 - a bug of ours must not end the conversation
        _tell(screen, f"bug in doctor: {type(e).__name__}: {e}", True)
    finally:
        _busy.discard(screen)
        for panel in screen.query(RepairsPanel):
            panel.look_again()


async def _aside(screen: Screen[Any], work: Callable[[], _T]) -> _T:
    """Do what touches the disk on a thread of its own; what it raises is raised here."""
    worker = screen.run_worker(work, group="repairs-disk", thread=True, exit_on_error=False)
    try:
        return await worker.wait()  # pyright: ignore[reportReturnType] - the result of a thread
    except WorkerFailed as e:
        raise e.error from None


async def _agreed(screen: Screen[Any], change: PreparedApply | PreparedUndo, verb: str) -> bool:
    from ..dialogs.change import ChangeDialog

    return bool(await screen.app.push_screen_wait(ChangeDialog(change, verb)))


def _told(screen: Screen[Any], done: Written) -> None:
    for line in done.lines:
        _tell(screen, line)


def _tell(screen: Screen[Any], text: str, trouble: bool = False) -> None:
    for panel in screen.query(RepairsPanel):
        panel.hear(text, trouble)
    screen.post_message(Told(text, trouble))
