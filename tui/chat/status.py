"""The line on top: which run, how it stands, who plans, what it has cost and may still cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from textual.widgets import Static

from ...agent.core.events import Spent
from ..text import said

if TYPE_CHECKING:
    from ...agent.chat.talk import Conversation
    from ...agent.core.report import Report

_NAME, _SHORT = 48, 20  # characters of the run's name
_BAREST = 5  # each step leaves something out or says it shorter


class StatusLine(Static):
    """One line, never wrapped; the parts of least use fall away where it is narrow."""

    DEFAULT_CSS = """
    StatusLine {
        height: 1; background: $panel; color: $foreground; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(self) -> None:
        super().__init__("", id="status")
        self._talk: Conversation | None = None
        self._report: Report | None = None
        self._spent: Spent | None = None

    def begin(self, talk: Conversation) -> None:
        """A run was opened, or another model named."""
        self._talk, self._spent = talk, None
        self._report = talk.diagnosis
        self.renew()

    def spend(self, spent: Spent | None) -> None:
        """What the question under way has cost so far."""
        self._spent = spent
        self.renew()

    def show(self, report: Report) -> None:
        """The last diagnosis."""
        self._report = report
        self.renew()

    def on_resize(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Draw it anew."""
        if self._talk is None:
            self.update(Content("doctor"))
            return
        room = self.size.width - 2  # the padding
        parts, between = [""], ""
        for bare in range(_BAREST + 1):
            told = (self._run(bare), self._verdict(bare), self._planner(bare), self._session(bare))
            parts, between = [p for p in told if p], "  |  " if bare < 2 else " | "
            if len(between.join(parts)) <= room:
                break
        styled = [said(p, _style(n, p == self._talk.session)) for n, p in enumerate(parts)]
        self.update(Content(between).join(styled))

    def _run(self, bare: int) -> str:
        names = (
            ["/".join(r.absolute().parts[-2 if bare < 4 else -1 :]) for r in self._talk.workspace.roots]
            if self._talk
            else []
        )
        name = ", ".join(names) or "no run"
        good = " (with a good run)" if self._talk and self._talk.workspace.good else ""
        most = _NAME if bare < 4 else _SHORT
        return (name if len(name) <= most else f"...{name[-most:]}") + (good if bare < 3 else "")

    def _session(self, bare: int) -> str:
        return self._talk.session or "" if self._talk and not bare else ""

    def _verdict(self, bare: int) -> str:
        r = self._report
        if r is None or r.status == "answer":
            return ""
        state = next((run.state for run in r.runs if not run.good), "unknown")
        if bare == _BAREST:
            return str(r.root_cause.id)
        return f"{r.root_cause.id} {r.status}" + (f", {state}" if state != "unknown" and bare < 3 else "")

    def _planner(self, bare: int) -> str:
        model = self._talk.model if self._talk else None
        if model is None:
            return "offline" if bare else "no model: offline planner"
        s = self._spent or Spent(0, 0, 0, 0.0)
        name = model.model if len(model.model) <= _SHORT or bare < 2 else f"{model.model[:_SHORT]}..."
        told = [name if bare > 1 else f"model {name}"]
        if model.max_calls:
            told.append(f"{s.calls}/{model.max_calls} req" if bare > 1 else f"{s.calls} of {model.max_calls} requests")
        tokens, bound = _short(s.tokens_in + s.tokens_out), _short(model.max_tokens) if model.max_tokens else ""
        if bare < 3 or not model.max_calls:
            of = f"/{bound}" if bare > 1 else f" of {bound}"
            told.append(f"{tokens}{of * bool(bound)} {'tok' if bare > 1 else 'tokens'}")
        if s.cost is not None:
            told.append(f"cost {s.cost:.3f}{f' of {model.max_cost:g}' if model.max_cost else ''}")
        return ", ".join(told)


def _style(number: int, is_session: bool) -> str:
    return "$text-muted" if is_session else "" if number else "bold"


def _short(number: int) -> str:
    return f"{number / 1e6:.1f}M" if number >= 1e6 else f"{number / 1e3:.0f}k" if number >= 1e4 else f"{number:,}"
