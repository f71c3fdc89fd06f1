"""The planner that asks a model, on the same state as the offline one, which takes over wherever the model fails."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from ..core.events import Event, Token
from ..core.types import Call, Hypothesis
from ..safety.fences import harmless
from ..verdict.planner import Diagnosis, Offline, Step, View
from ..verdict.ranking import rank
from . import conclusion, dialogue, framing, model_calls
from .brief import evidence_by_id, first_message, fresh_results, question
from .framing import Room, room
from .model_settings import ModelSettings
from .turns import ModelTrouble, Turn
from .wire import Wire

# ----------
# The bounds of one question: requests, tokens, seconds, cost.


NEARLY = 0.85  # share of tokens, seconds or cost from which the next answer must conclude


def cost(settings: ModelSettings, tokens_in: int, tokens_out: int) -> float | None:
    """What so many tokens cost, None where a price is missing."""
    if settings.price_in is None or settings.price_out is None:
        return None
    return (tokens_in * settings.price_in + tokens_out * settings.price_out) / 1e6


class Limits:
    """What a question has cost so far and may still cost. One request may run over, never two."""

    def __init__(self, settings: ModelSettings, spent: Mapping[str, float]) -> None:
        self._settings = settings
        self._before = spent
        self.added: dict[str, float] = {"calls": 0, "in": 0, "out": 0, "seconds": 0.0}

    def add(self, calls: int, tokens_in: int, tokens_out: int, seconds: float) -> None:
        """Count a request."""
        for name, n in (("calls", calls), ("in", tokens_in), ("out", tokens_out), ("seconds", seconds)):
            self.added[name] += n

    def _spent(self, name: str) -> float:
        return self._before.get(name, 0) + self.added[name]

    def _shares(self) -> list[tuple[str, float]]:
        s = self._settings
        paid = cost(s, int(self._spent("in")), int(self._spent("out")))
        return [
            (f"{bound:g} {what}", spent / bound)
            for what, spent, bound in (
                ("tokens", self._spent("in") + self._spent("out"), s.max_tokens),
                ("seconds", self._spent("seconds"), s.max_seconds),
                ("of cost", paid or 0.0, s.max_cost if paid is not None else 0.0),
            )
            if bound
        ]

    def reached(self) -> str:
        """The bound that is reached, in words; empty when there is room for another request."""
        most = self._settings.max_calls
        if most and self._spent("calls") >= most:
            return f"{most} requests"
        return next((what for what, share in self._shares() if share >= 1), "")

    def is_last(self) -> bool:
        """Whether the next answer must be the conclusion."""
        most = self._settings.max_calls
        return bool(most and self._spent("calls") >= most - 1) or any(share >= NEARLY for _, share in self._shares())

    def until(self) -> float:
        """`time.monotonic()` at which a request must be given up."""
        most = self._settings.max_seconds
        return time.monotonic() + (max(0.0, most - self._spent("seconds")) if most else 86_400.0)


# ----------

ANSWERS = 40  # in one step, where no limit is set
NARROW = 7_000  # bytes that even a request after an overflow needs
SCANT = 8_192  # tokens: with less, the first message holds little more than the ranking
_ID, _SPAN = re.compile(r"\bE\d+\b"), re.compile(r"\bE(\d+) to E(\d+)\b")
_TAKEN_OUT = re.compile(r"<SECRET:[\w-]+:\d+>")
PATIENCE = 2  # answers in a row that cannot be used, before the evidence alone concludes


class Model:
    """Renders the state, asks the model, reads its calls or its diagnosis.

    The offline planner ranks beside it, and concludes from the same state when the model cannot be had, gives nothing
    usable, or the limits of the question are reached.
    """

    def __init__(
        self,
        settings: ModelSettings,
        tell: Callable[[Event], None] = lambda event: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """`stop` is asked while an answer is waited for: whether nobody wants it any more."""
        self._settings = settings
        self._tell = tell
        self._wire = Wire(settings)
        self._wire.stop = stop
        self._offline = Offline()

    def next(self, view: View) -> Step:
        if dialogue.is_off(view.dialogue, view.turn):
            return self._offline.next(view)
        talk = _Talk(self._settings, self._wire, self._tell, view)
        try:
            return talk.step()
        except ModelTrouble as trouble:
            talk.limits.add(0, trouble.tokens_in, trouble.tokens_out, 0.0)
            return talk.given_up(trouble.message, self._offline)

    def close(self) -> None:
        """Close the connections to the server."""
        self._wire.close()

    def first_request(self, view: View) -> dict[str, Any]:
        """What would be sent first, exactly. Nothing is sent, and the server is not asked for its window."""
        talk = _Talk(self._settings, self._wire, self._tell, view)
        talk.open(self._settings.window)
        return talk.request(last=talk.limits.is_last())


class Showing:
    """A planner that writes the first request down and ends there. Nothing is sent.

    Attributes:
        request: the body of that request.
    """

    def __init__(self, settings: ModelSettings) -> None:
        self._model = Model(settings)
        self.request: dict[str, Any] = {}

    def next(self, view: View) -> Step:
        self.request = self._model.first_request(view)
        return Step(diagnosis=Diagnosis(None, []))

    def close(self) -> None:
        """Nothing was opened."""
        self._model.close()


class _Talk:
    """One step of the conversation: what it adds to the dialogue, and what it spends."""

    def __init__(
        self, settings: ModelSettings, wire: Wire, tell: Callable[[Event], None], view: View
    ) -> None:  # fmt: skip
        self.settings, self.wire, self.view, self._tell = settings, wire, view, tell
        self.ranked: list[Hypothesis] = rank(view.playbooks, view.facts, view.sounds)
        self.limits = Limits(settings, view.spent)
        self.added: list[dict[str, Any]] = []
        self._redacted = 0
        self.degraded: list[str] = []
        self._lost = wire.lost
        self._unusable = 0
        self._was_last = False
        self._overflowed = any(e["is"] == "narrow" for e in view.dialogue)

    @property
    def entries(self) -> list[Any]:
        return [*self.view.dialogue, *self.added]

    @property
    def room(self) -> Room:
        made = dialogue.setup(self.entries)
        return room(made["window"] if made else 0)

    # --- the course of a step

    def step(self) -> Step:
        """Go on until there is something to run, a diagnosis, or trouble."""
        if (pending := self._pending()) is not None:
            self.added.append({"is": "concluded"})
            return self._concluded(pending)
        if not dialogue.is_open(self.view.dialogue, self.view.turn):
            self.open(self._window())
        elif self.view.rejections and not any(e.get("rejected") == self.view.turn for e in self.view.dialogue):
            if self.limits.reached():
                return self._concluded(self._last_conclusion())
            self._say(
                framing.again("rejected", reasons=harmless("\n".join(f"- {r}" for r in self.view.rejections[:12])))
            )
            self.added[-1]["rejected"] = self.view.turn
        for _ in range(ANSWERS):
            if why := self.limits.reached():
                raise ModelTrouble("stopped", f"stopped at the limit of {why}")
            turn = self._ask()
            try:
                found = self._read(turn)
            except (ValueError, TypeError, RecursionError, OverflowError) as e:
                # whatever an answer holds, it must not cost the report
                raise ModelTrouble("garbled", f"gave an answer that cannot be read ({type(e).__name__})") from e
            if found is not None:
                return found
        raise ModelTrouble("stopped", f"stopped after {ANSWERS} answers without a check to run")

    def open(self, window: int) -> None:
        """Settle tools and room once a session, and put the question."""
        if dialogue.setup(self.entries) is None:
            tools = framing.chosen(self.view, self.ranked, room(window))
            self.added.append({"is": "setup", "tools": tools, "window": window})
        if any(e["is"] == "user" for e in self.view.dialogue):
            text = self._follow_up()
        else:
            for _, body in islice(self.view.texts(), 64):
                self.wire.learn(body)
            spare = self.room.first - self.wire.size(self.request(last=False)) - 160
            text = first_message(self.view, self.ranked, self.room, max(1_500, spare))
            if self.view.earlier:
                told = self.view.earlier
                text += f"\n\nEarlier verdict: {told['root_cause']['id']} ({told['status']})"
        self._say(text, opens=True)

    def request(self, *, last: bool, most: int = 1 << 40) -> dict[str, Any]:
        """The body of the next request."""
        made = dialogue.setup(self.entries) or {"tools": []}
        plain = any(e["is"] == "plain" for e in self.entries)
        tools = [] if plain else framing.schemas(made["tools"], self.room)
        behind = [{"role": "user", "content": framing.again("last")}] if last else []
        choice = {"type": "function", "function": {"name": framing.DIAGNOSIS}} if last and not plain else None
        beside = self.wire.size(self.wire.body(behind, tools, choice))
        said = dialogue.messages(self.view, self.entries, self.room, most, beside)
        return self.wire.body([*said, *behind], tools, choice)

    def _ask(self) -> Turn:
        last = self._was_last = self.limits.is_last()
        began = time.monotonic()
        most = max(self.room.shortened // 2, NARROW) if self._overflowed else 1 << 40
        body = self.request(last=last, most=most)
        if self._learn(body):
            body = self.request(last=last, most=most)
        self._redacted = len(set(_TAKEN_OUT.findall(json.dumps(body["messages"]))))
        try:
            turn = self.wire.send(body, until=self.limits.until(), token=lambda t: self._tell(Token(t)))
        except ModelTrouble as trouble:
            self.limits.add(1, trouble.tokens_in, trouble.tokens_out, time.monotonic() - began)
            again = not self.limits.reached()
            if again and trouble.kind == "overflow" and not self._overflowed:
                self._overflowed = True
                self.added.append({"is": "narrow"})
                return self._ask()
            if again and trouble.kind == "tools" and not any(e["is"] == "plain" for e in self.entries):
                self.added.append({"is": "plain"})
                self._say(framing.again("plain", schema=framing.schemas([], self.room)[-1]["function"]["parameters"]))
                return self._ask()
            trouble.tokens_in = trouble.tokens_out = 0
            raise
        self.limits.add(1, turn.tokens_in, turn.tokens_out, time.monotonic() - began)
        return turn

    def _learn(self, body: Mapping[str, Any]) -> bool:
        """Let the redactor read what stands around the lines that are to leave. Whether there was anything new."""
        text = json.dumps(body["messages"])
        ids = {m[0] for m in _ID.finditer(text)}
        for m in _SPAN.finditer(text):
            ids |= {f"E{n}" for n in range(int(m[1]), min(int(m[2]), int(m[1]) + 400) + 1)}
        ids -= self.wire.read_around
        self.wire.read_around |= ids
        known = evidence_by_id(self.view)
        for around in self.view.nearby([known[i] for i in ids if i in known]):
            self.wire.learn(around)
        return bool(ids)

    def _read(self, turn: Turn) -> Step | None:
        """What an answer comes to; None when the model must be asked again."""
        heard = model_calls.heard(turn, self.view, self.entries, self.room, last=self._was_last)
        self.added += heard.entries
        if heard.conclusion is not None:
            if heard.conclusion.cause == framing.ANSWER and not self._may_answer():
                return self._again("answer")
            return self._conclude(heard.conclusion)
        if heard.calls:
            self._unusable = 0
            return self._step(calls=heard.calls)
        if heard.unusable:
            return self._again(heard.unusable, **heard.values)
        return None

    def _again(self, name: str, /, **values: object) -> None:
        self._unusable += 1
        text = framing.again(name, **values)
        if self._unusable > PATIENCE or self.limits.reached():
            often = f"{self._unusable} times in a row" if self._unusable > 1 else "within its limits"
            raise ModelTrouble("garbled", f"gave no usable answer {often} ({name})")
        if name not in ("arguments", "unknown"):  # those stand in the answers to the calls
            self._say(text)

    # --- conclusions

    def _conclude(self, found: conclusion.Conclusion) -> Step:
        known = evidence_by_id(self.view), self.view.names, self.view.roots
        model = self.settings.model
        beyond = conclusion.cut(found, *known)[:8]
        self.degraded += [f"model {model}: {told} left out of its diagnosis" for told in beyond]
        to_read = [c for c in conclusion.places_to_read(found, *known) if c.identity not in self.view.done]
        if to_read:
            self.added.append({"is": "pending", "turn": self.view.turn, "said": found.model_dump()})
            return self._step(calls=to_read)
        return self._concluded(found)

    def _concluded(self, found: conclusion.Conclusion) -> Step:
        known = evidence_by_id(self.view), self.view.names, self.view.roots
        return self._step(diagnosis=conclusion.diagnosis(found, self.ranked, *known))

    def _pending(self) -> conclusion.Conclusion | None:
        last = self.view.dialogue[-1] if self.view.dialogue else None
        if last is None or last["is"] != "pending" or last["turn"] != self.view.turn:
            return None
        return conclusion.Conclusion.model_validate(last["said"])

    def _last_conclusion(self) -> conclusion.Conclusion:
        """The conclusion that was rejected, when no request is left to correct it."""
        for e in reversed(self.view.dialogue):
            for c in e.get("calls", []) if e["is"] == "model" else []:
                if c["name"] == framing.DIAGNOSIS and (found := conclusion.parsed(c["arguments"]).conclusion):
                    return found
        raise ModelTrouble("stopped", "no request was left to correct its diagnosis")

    def _may_answer(self) -> bool:
        return bool(self.view.intent) or self.view.turn > 1 or not self.view.diagnosable

    # --- small things

    def _follow_up(self) -> str:
        """The next question of a session, with the answers of the calls that were made for it."""
        asked = {e["identity"] for e in self.view.dialogue if e["is"] == "result"}
        since = range(self._results_before() + 1, len(self.view.results) + 1)
        calls = {n: Call(c["tool"], c["args"]).identity for n in since if (c := self.view.results[n - 1]["call"])}
        lines = [f"Next question: {question(self.view, self.room)}"]
        if fresh := [n for n, identity in calls.items() if identity not in asked]:
            lines.append(fresh_results(self.view, fresh, self.room))
        if self.view.earlier:
            told = self.view.earlier
            lines.append(f"Verdict so far: {told['root_cause']['id']} ({told['status']}).")
        lines.append("Evidence and calls above still hold. Use tools for what they do not say.")
        return "\n".join(lines)

    def _results_before(self) -> int:
        """How many results there were when the question before was put or answered."""
        return max((e.get("results", 0) for e in self.view.dialogue), default=0)

    def _window(self) -> int:
        made = dialogue.setup(self.entries)
        if made is not None:
            return int(made["window"])
        if self.settings.window:
            return self.settings.window
        from .client import context_window

        window, known = context_window(self.settings)
        if 0 < window < SCANT:
            self.degraded.append(f"model {self.settings.model}: reads only {window} tokens ({known}); much is left out")
        return window

    def _say(self, text: str, *, opens: bool = False) -> None:
        told = {"opens": opens, "turn": self.view.turn, "results": len(self.view.results)}
        self.added.append({"is": "user", "text": text, **told})

    def _step(self, calls: list[Call] | None = None, diagnosis: Diagnosis | None = None) -> Step:
        return Step(calls or [], diagnosis, self.added, self._spent(), self.degraded)

    def _spent(self) -> dict[str, float]:
        redacted = max(0, self._redacted - int(self.view.spent.get("redacted", 0)))  # of the last request: it holds all
        lost = [now - before for now, before in zip(self.wire.lost, self._lost, strict=True)]
        spent = self.limits.added
        return {**spent, "in": spent["in"] + lost[0], "out": spent["out"] + lost[1], "redacted": redacted}

    def given_up(self, why: str, offline: Offline) -> Step:
        """The offline planner's step from here on, with the reason for the report."""
        step = offline.next(self.view)
        told = f"model {self.settings.model}: {why}; concluded from the evidence without it"
        off = {"is": "off", "turn": self.view.turn, "why": why}
        kept = [e for e in self.added if e["is"] == "setup"]  # half a dialogue cannot be gone on with
        return Step(step.calls, step.diagnosis, [*kept, off], self._spent(), [*self.degraded, told])
