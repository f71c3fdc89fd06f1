"""The repairs of the report: what each changes, its diff, its commands, and what of them is applied already."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static
from textual.worker import Worker, WorkerState

from ...agent.core.errors import DoctorError
from ...agent.safety.fences import inert, one_line
from ..messages import ApplyPatches, OpenFile, Told, UndoApply
from ..repairs_rows import Drawn, RowsView
from ..text import said
from .panel import Panel
from .repairs_story import Block, blocks

if TYPE_CHECKING:
    from ...agent.chat.offered_repairs import Offer, Standing
    from ...agent.chat.talk import Conversation
    from ...agent.core.report import Report

NOTHING = "No diagnosis yet. What can be repaired stands here, with what would change."
NO_REPAIR = "The report names no repair."


class RepairsPanel(Panel, can_focus=True):
    """A list of repairs with a cursor (`>`). It writes nothing: it asks the screen to show a change and ask."""

    NAME = "repairs"
    KEY = "f6,ctrl+d"
    ABOUT = "the repairs: diffs, commands, apply and undo"
    DEFAULT_CSS = """
    RepairsPanel {
        & > #repairs-head { height: auto; color: $text-muted; padding: 0 1; }
        & > #repairs-head.-trouble { color: $error; text-style: bold; }
        & > #repairs-rows { padding: 0 0 0 1; }
        & > #repairs-told { height: auto; max-height: 4; padding: 0 1; text-style: bold; display: none; }
        & > #repairs-told.-any { display: block; }
        &:focus > #repairs-head { color: $foreground; text-style: bold; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "pick(-1)", "Repair before", show=False),
        Binding("down", "pick(1)", "Next repair", show=False),
        Binding("enter,a", "apply", "Apply"),
        Binding("u", "undo", "Take back"),
        Binding("o", "open", "Open file"),
        Binding("c", "copy", "Copy command"),
        Binding("d", "copy_diff", "Copy diff", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("home", "edge(-1)", "First repair", show=False),
        Binding("end", "edge(1)", "Last repair", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._talk: Conversation | None = None
        self._report: Report | None = None
        self._offers: list[Offer] = []
        self._blocks: list[Block] = []
        self._picked = 0
        self._turn = 0  # what a worker brings for an earlier one is dropped

    def compose(self) -> ComposeResult:
        """A line about all of it, and the repairs."""
        yield Static(said(NOTHING), id="repairs-head")
        yield RowsView(id="repairs-rows")
        yield Static(id="repairs-told")

    def begin(self, talk: Conversation) -> None:
        """Another run: nothing is known of its repairs."""
        self._talk, self._report = talk, None
        self._offers, self._blocks, self._picked = [], [], 0
        self._turn += 1
        self._head(NOTHING)
        self.hear("")
        self.query_one(RowsView).put([])

    def show(self, report: Report) -> None:
        """Its repairs at once; what is applied of them as soon as the disk has told."""
        from ...agent.chat.offered_repairs import Standing, offers

        same = self._report is not None and self._report.session == report.session
        self._report = report
        self._turn += 1
        try:
            self._offers = offers(report)
        except DoctorError as e:
            self._offers, self._blocks = [], []
            self.query_one(RowsView).put([])
            self._head(f"! {e}", trouble=True)
            return
        self._picked = self._picked if same else 0
        self._fill(Standing())
        self.look_again()

    def look_again(self) -> None:
        """Ask the disk anew what is applied: after a change was written or taken back."""
        from ...agent.chat.offered_repairs import Repairs

        talk, report = self._talk, self._report
        if talk is None or report is None:
            return
        self.run_worker(
            lambda: Repairs(talk).standing(report), name=str(self._turn), group="repairs-standing",
            thread=True, exclusive=True, exit_on_error=False,
        )  # fmt: skip

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """What the disk told, if it is still about the report that is shown."""
        worker = event.worker
        if worker.group != "repairs-standing":
            return
        event.stop()
        if worker.name != str(self._turn):
            return
        if event.state is WorkerState.SUCCESS and worker.result is not None:
            self._fill(worker.result)
        elif event.state is WorkerState.ERROR:
            known = isinstance(worker.error, DoctorError | OSError)
            self._head(f"! what is applied is not known: {'' if known else 'bug in doctor: '}{worker.error}", True)

    def _fill(self, standing: Standing) -> None:
        self._blocks = blocks(self._offers, standing)
        self._picked = max(0, min(self._picked, len(self._blocks) - 1))
        patched = sum(1 for o in self._offers if o.patches)
        count = len(self._offers)
        many = f"{count} repair{'s' * (count > 1)}, {patched} with patches" if count else NO_REPAIR
        applied = sum(1 for b in self._blocks if b.undo)
        foreign = "  ! from a report that was not made here" if standing.foreign and patched else ""
        self._head(f"{many}{f', {applied} applied' if applied else ''}{foreign}")
        self._draw()

    def _head(self, text: str, trouble: bool = False) -> None:
        head = self.query_one("#repairs-head", Static)
        head.set_class(trouble, "-trouble")
        head.update(said(text))

    def _draw(self) -> None:
        rows: list[Drawn] = []
        for number, block in enumerate(self._blocks):
            rows += [Drawn("note", "", 0, number - 1)] * bool(number)
            first, *rest = block.rows
            here = number == self._picked
            rows.append(
                Drawn("picked", f"> {first.text}", 0, number) if here else Drawn("title", first.text, 2, number)
            )
            rows += [Drawn(row.kind, row.text, row.indent, number) for row in rest]
        self.query_one(RowsView).put(rows)

    def action_pick(self, way: int) -> None:
        """Go to the repair before or after."""
        self._go_to(self._picked + way)

    def action_edge(self, way: int) -> None:
        """Go to the first or the last one."""
        self._go_to(len(self._blocks) - 1 if way > 0 else 0)

    def _go_to(self, number: int) -> None:
        self.hear("")
        if self._blocks:
            self._picked = max(0, min(number, len(self._blocks) - 1))
            self._draw()
            view = self.query_one(RowsView)
            view.scroll_to(y=view.start_of(self._picked), animate=False)

    def action_page(self, way: int) -> None:
        """Read on within a long diff."""
        view = self.query_one(RowsView)
        view.scroll_relative(y=way * max(1, view.size.height - 1), animate=False)

    @property
    def _block(self) -> Block | None:
        return self._blocks[self._picked] if self._blocks else None

    def action_apply(self) -> None:
        """Ask for the patches of the repair."""
        if block := self._block:
            if block.ids:
                self.post_message(ApplyPatches(list(block.ids)))
            else:
                self._tell("this has no patch to apply" + ("; c copies its command" if block.commands else ""))

    def action_undo(self) -> None:
        """Ask to take back what was applied of the repair."""
        if block := self._block:
            if block.undo:
                self.post_message(UndoApply(block.undo))
            else:
                self._tell("nothing of this repair is applied")

    def action_open(self) -> None:
        """Open the file that the repair changes."""
        if block := self._block:
            if block.file:
                self.post_message(OpenFile(block.file, block.line))
            else:
                self._tell("this repair names no file")

    def action_copy(self) -> None:
        """Copy the commands of the repair; where it has none its diff, or what is to be put in by hand."""
        if block := self._block:
            if block.commands:
                self._copy("\n".join(one_line(c) for c in block.commands), "command", len(block.commands))
            elif block.by_hand and not block.diff:
                self._copy(inert(block.by_hand.replace("\r\n", "\n")), "text that is put in by hand", 1)
            else:
                self.action_copy_diff()

    def action_copy_diff(self) -> None:
        """Copy the patches of the repair as the report has them, with what nobody sees written out."""
        if block := self._block:
            if block.diff:
                self._copy(inert(block.diff.replace("\r\n", "\n")), "diff", 1)
            else:
                self._tell("there is nothing to copy here")

    def _copy(self, text: str, what: str, count: int) -> None:
        self.app.copy_to_clipboard(text)
        self._tell(f"copied: {text}" if what == "command" and count == 1 else f"copied the {what}{'s' * (count > 1)}")

    def _tell(self, text: str) -> None:
        self.hear(text)
        self.post_message(Told(text))

    def hear(self, text: str, trouble: bool = False) -> None:
        """A line for the conversation, shown here too where this view covers it; an empty one takes it away."""
        line = self.query_one("#repairs-told", Static)
        line.set_class(bool(text) and self.screen.has_class("-narrow"), "-any")
        line.update(said(f"{'! ' * trouble}{text}"))

    @on(RowsView.Moved)
    def _moved(self, event: RowsView.Moved) -> None:
        event.stop()
