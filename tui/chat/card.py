"""A call of a tool as a card: what it is, with which arguments, how it stands, what it found; it opens to its output.

It knows no tool: title and risk come from the declaration, the rest from the events.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from ...agent.core.types import Call, ToolResult
from ..text import paragraph, said

OUTPUT = 20_000  # characters of a tool's output that a card opens to
ARGUMENTS = 200
# Each outcome with its mark, its word and its style: the word alone tells it.
OUTCOMES = {
    "finding": ("!", "found", "$warning"),
    "clean": ("-", "clean", "$success"),
    "not_applicable": (" ", "nothing there", "$text-muted"),
    "not_allowed": ("x", "refused", "$error"),
    "failed": ("x", "could not check", "$error"),
}
RUNNING = (">", "running", "$accent")


@dataclass(slots=True)
class Made:
    """A call and what became of it, `result` None while it runs."""

    call: Call
    began: float = field(default_factory=time.monotonic)
    result: ToolResult | None = None
    seconds: float = 0.0

    @property
    def title(self) -> str:
        """The tool's title, else its name."""
        from ...agent.tools.tool import all_tools

        known = all_tools().get(self.call.tool)
        return known.title.rstrip(".") if known else self.call.tool

    def state(self) -> tuple[str, str, str]:
        """Mark, word and style of how it stands."""
        return OUTCOMES.get(self.result.outcome, RUNNING) if self.result else RUNNING

    def head(self) -> Content:
        """What there is to know of it while it is closed."""
        return Content("\n").join(part for part in (self.line(), self.summary()) if part.plain)

    def line(self) -> Content:
        """The card in one line."""
        mark, word, style = self.state()
        name = self.call.tool.replace("_", "-")
        arguments = ", ".join(f"{k}={v!r}" for k, v in self.call.args.items() if not k.startswith("__"))
        took = f"{self.seconds:.1f} s" if self.result else ""
        parts: list[Content] = [Content.styled(f"{mark} ", style), said(name, "bold")]
        if arguments:
            parts.append(said(f"({arguments})", "$text-muted", ARGUMENTS))
        parts.append(Content.styled(f"  {word}", style))
        if took:
            parts.append(Content.styled(f"  {took}", "$text-muted"))
        return Content.assemble(*parts)

    def summary(self) -> Content:
        """What it found; while it runs, why it was called."""
        return said(
            self.result.summary if self.result else self.call.why if self.call.why != "recall" else "", limit=600
        )

    def body(self) -> Content:
        """What the card opens to: what the tool is for, and its output."""
        from ...agent.tools.tool import all_tools

        known = all_tools().get(self.call.tool)
        risk = f"  (risk: {known.risk.value})" if known else ""
        parts = [said(f"{self.title}{risk}", "$text-muted")]
        if self.call.why and self.call.why != "recall":
            parts.append(said(f"why: {self.call.why}", "$text-muted"))
        text = self.result.text.strip() if self.result else "still running"
        parts.append(paragraph(text or "no output", limit=OUTPUT))
        return Content("\n").join(parts)


class Card(Vertical, can_focus=True):
    """One call. Enter, space or a click opens and closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space", "open", "Open or close")]
    DEFAULT_CSS = """
    Card { height: auto; padding: 0 1; border-left: blank; }
    Card:focus { border-left: thick $accent; background: $boost; }
    Card .card-summary { padding: 0 0 0 4; }
    Card .card-body { display: none; padding: 0 0 0 4; }
    Card.-open .card-body { display: block; }
    """

    def __init__(self, made: Made) -> None:
        super().__init__()
        self.made = made
        self._head, self._body = Static("", classes="card-head"), Static("", classes="card-body", markup=False)
        self._summary = Static("", classes="card-summary")  # by itself: a long one keeps its margin where it wraps

    def compose(self) -> ComposeResult:
        yield from (self._head, self._summary, self._body)

    def on_mount(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Draw it anew: its call has gone on."""
        found = self.made.summary()
        self._head.update(self.made.line())
        self._summary.update(found)
        self._summary.display = bool(found.plain)
        if self.has_class("-open"):
            self._body.update(self.made.body())

    def unfold(self, wanted: bool) -> None:
        """Show its output, or the head alone."""
        self.set_class(wanted, "-open")
        if wanted:
            self._body.update(self.made.body())

    def action_open(self) -> None:
        self.unfold(not self.has_class("-open"))

    def on_click(self) -> None:
        self.action_open()
