"""The evidence of a diagnosis: found as it runs, then what the report cites and all the rest, to be searched."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from ...agent.core.events import Ranked, SessionStarted, ToolFinished
from ...agent.telling.outline import place
from ..messages import OpenEvidence, OpenFile
from ..start.line import InertInput
from ..text import paragraph, said
from .evidence_list import EvidenceList
from .evidence_rows import Entry, about, entries, fact, identity, whole
from .panel import Panel

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from ...agent.chat.talk import Conversation
    from ...agent.core.events import Event
    from ...agent.core.report import CitedEvidence, Report

_WHOLE = 1_500  # characters of the selected piece; the file behind it has all
_REFILL = 0.2  # seconds between two drawings of a list that grows


class EvidencePanel(Panel):
    """Every piece of evidence with its place; enter opens the file there."""

    NAME: ClassVar[str] = "evidence"
    KEY: ClassVar[str] = "f2,ctrl+e"
    ABOUT: ClassVar[str] = "Evidence: every line that was found, with its file and line; enter opens it"
    DEFAULT_CSS = """
    EvidencePanel { height: 1fr; }
    EvidencePanel > Static { height: 1; padding: 0 1; color: $text-muted; }
    EvidencePanel > #evidence-columns { color: $text-muted; padding: 0; text-style: underline; }
    EvidencePanel > Input { height: 1; border: none; padding: 0 1; display: none; background: $panel; }
    EvidencePanel > Input.-open { display: block; }
    EvidencePanel > VerticalScroll { height: 7; border-top: solid $panel; padding: 0 1; }
    EvidencePanel > VerticalScroll:focus { border-top: solid $accent; }
    EvidencePanel > VerticalScroll > Static { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter"),
        Binding("c", "copy", "Copy"),
        Binding("escape", "unfilter", "All rows", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._all: list[Entry] = []
        self._known: dict[tuple[object, ...], Entry] = {}
        self._final = False  # a report is shown; events are of the next question
        self._asked = False  # whether a drawing is under way
        self._head = Static("", id="evidence-head")
        self._columns = Static("", id="evidence-columns")
        self._list = EvidenceList()
        self._words = InertInput(placeholder="key, file, rank or text; enter keeps, esc shows all", compact=True)
        self._detail = Static("")

    def compose(self) -> ComposeResult:
        """Head, columns, list, filter line, the selected piece in full."""
        yield self._head
        yield self._words
        yield self._columns
        yield self._list
        with VerticalScroll():
            yield self._detail

    def on_mount(self) -> None:
        """Draw what came before the panel was on the screen."""
        self._draw()

    def on_resize(self) -> None:
        """The names of the columns stand above them."""
        self.call_after_refresh(self._name_columns)

    def begin(self, talk: Conversation) -> None:
        """Forget the run before."""
        self._all, self._known, self._final = [], {}, False
        if self.is_mounted and self._words.value:
            self._words.value = ""
        if talk.diagnosis is not None:
            self.show(talk.diagnosis)
        else:
            self._draw()

    def see(self, event: Event) -> None:
        """Evidence as tools find it; its ids as soon as hypotheses cite it."""
        if self._final:  # a report is looked at; the next one comes whole
            return
        if isinstance(event, SessionStarted):
            self._all, self._known = [], {}
        elif isinstance(event, ToolFinished):
            self._take([fact(e) for e in event.result.evidence], cited=False)
        elif isinstance(event, Ranked):
            self._take([fact(e) for e in event.evidence], cited=True)

    def show(self, report: Report) -> None:
        """All the evidence of a report, the cited first."""
        current = self._list.current
        self._all, self._final = entries(report), True
        self._known = {}
        self._draw(current.fact.id if current else "")

    def enter(self) -> None:
        """To the list."""
        self._list.focus()

    def action_filter(self) -> None:
        """Open the line to type in what is looked for."""
        self._words.add_class("-open")
        self._words.focus()

    def filter(self, words: str) -> None:
        """Only the rows that match, as if the words had been typed."""
        self._words.add_class("-open")
        self._words.value = words
        self._list.focus()

    def action_unfilter(self) -> None:
        """Close it; every row again."""
        self._words.remove_class("-open")
        self._words.value = ""
        self._list.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Escape is this panel's only while a filter is open; else it stops what runs."""
        return self._words.has_class("-open") if action == "unfilter" else True

    def action_copy(self) -> None:
        """Place and text of the selected row, inert, to the clipboard."""
        if (entry := self._list.current) is None:
            return
        e = entry.fact
        lines = [said(f"{e.id} {place(e)}".strip()).plain, paragraph(whole(e), limit=8_000).plain]
        self.app.copy_to_clipboard("\n".join(lines))
        self.notify(said(f"copied {e.id or place(e)}").plain, markup=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        event.stop()
        self._draw(self._list.current.fact.id if self._list.current else "")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter; back to the rows."""
        event.stop()
        if not event.value.strip():
            self.action_unfilter()
        self._list.focus()

    def on_evidence_list_selected(self, event: EvidenceList.Selected) -> None:
        """Show it in full."""
        event.stop()
        self._tell(event.entry)

    def on_evidence_list_opened(self, event: EvidenceList.Opened) -> None:
        """Ask the screen for its file; what has no id yet is opened by its place."""
        event.stop()
        e = event.entry.fact
        if e.id:
            self.post_message(OpenEvidence(e.id))
        elif e.file and e.line:
            self.post_message(OpenFile(e.file, e.line))
        else:
            self.notify("it can be opened as soon as the diagnosis has numbered it", markup=False)

    def _take(self, found: list[CitedEvidence], cited: bool) -> None:
        for e in found:
            entry = self._known.get(identity(e))
            if entry is None:
                self._known[identity(e)] = entry = Entry(e)
                self._all.append(entry)
            elif e.id and not entry.fact.id:
                entry.fact, entry.searched = e, ""
            entry.cited = entry.cited or cited
        if self.is_mounted and not self._asked:
            self._asked = True
            self.set_timer(_REFILL, self._drawn_again)

    def _drawn_again(self) -> None:
        self._asked = False
        self._draw(cursor=self._list.cursor)

    def _draw(self, keep: str = "", cursor: int = 0) -> None:
        """Fill the list; the cursor stays on the piece that it was on."""
        if not self.is_mounted:
            return
        words = self._words.value.lower().split()
        rows = [e for e in self._all if all(w in e.haystack for w in words)] if words else self._all
        at = next((n for n, e in enumerate(rows) if keep and e.fact.id == keep), cursor)
        self._list.fill(list(rows), at)
        cited = sum(e.cited for e in self._all)
        shown = f"{len(rows):,} of {len(self._all):,} match" if words else f"{len(rows):,} pieces of evidence"
        marked = f", {cited:,} cited (*)" if cited else ""
        going = "" if self._final or not self._all else ", the diagnosis goes on"
        nothing = "no evidence yet: ask why the run failed" if not self._all else f"{shown}{marked}{going}"
        self._head.update(Content(nothing))
        self._name_columns()
        if not rows:
            self._tell(None)

    def _name_columns(self) -> None:
        width = self._list.size.width or self.size.width
        self._columns.update(Content(self._list.heading(width) if self._list.rows else ""))

    def _tell(self, entry: Entry | None) -> None:
        if entry is None:
            self._detail.update(Content("nothing matches; esc shows all rows" if self._all else ""))
            return
        e = entry.fact
        head = said(f"{e.id or 'not numbered yet'}  {place(e)}", "bold", 400)
        more = "" if e.kind != "line" or not e.cut else "\n(the line is longer: enter opens it)"
        self._detail.update(
            Content("\n").join([head, said(about(e), "$text-muted", 600), paragraph(whole(e) + more, limit=_WHOLE)])
        )
