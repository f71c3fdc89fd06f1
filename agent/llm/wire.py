"""A request of messages and tools -> a turn: what leaves is redacted, what comes back is bounded, trouble has a name.

This is the only place where words of a run leave the machine for a model.
"""

from __future__ import annotations

import difflib
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..safety.redact import Redactor
from .client import LOOK_SECONDS, Client, Refusal, stopped
from .model_settings import ModelSettings
from .stream import Assembly
from .turns import Asked, ModelTrouble, Setback, Turn, refusal

RETRIES = 2
LONGEST_WAIT = 60.0
AGAIN = "\n[the answer broke off and is asked for again]\n"


class Wire:
    """The way to one model and back.

    Attributes:
        redactor: takes the secrets out of what is sent, and counts them.
        read_around: ids of evidence around which the redactor has read; kept here, as the redactor lives as long.
        lost: tokens in and out, guessed, of answers that broke off and were asked for again.
        backoff: seconds; twice that is waited before a second attempt, four times before a third, where the server
            names no time.
        stop: whether nobody wants the answer any more; asked several times a second while one is waited for.
    """

    backoff = 0.25

    def __init__(self, settings: ModelSettings, redactor: Redactor | None = None) -> None:
        self.settings = settings
        self.redactor = redactor or Redactor()
        self.lost = (0, 0)
        self.read_around: set[str] = set()
        self.stop: Callable[[], bool] = lambda: False
        self._client = Client(settings)
        self._untaken: set[str] = set()
        self._clean: dict[str, str] = {}

    def body(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        tool_choice: Any = None,
    ) -> dict[str, Any]:
        """The request as it is sent: every string of the messages without secrets, and able to be encoded.

        Raises:
            TypeError: a message holds something that is not plain data, such as bytes.
        """
        asked: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
        if self.settings.temperature is not None:
            asked["temperature"] = self.settings.temperature
        asked |= self.settings.extra_body
        asked |= {"model": self.settings.model, "messages": [self._redacted(m) for m in messages]}
        if tools:
            asked["tools"] = list(tools)
            if tool_choice is not None:
                asked["tool_choice"] = tool_choice
        if not asked["stream"]:
            asked.pop("stream_options", None)
        return {name: value for name, value in asked.items() if name not in self._untaken}

    def learn(self, text: str) -> None:
        """Let the redactor read a text that is not sent: a secret it finds there is taken out wherever it stands."""
        self.redactor.redact(text)
        self._clean.clear()

    def size(self, body: Mapping[str, Any]) -> int:
        """Bytes of a request as the client encodes it."""
        return len(json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))

    def send(self, body: Mapping[str, Any], *, until: float, token: Callable[[str], None]) -> Turn:
        """Send a request, again where that may help and there is time, and give the whole answer.

        Args:
            body: of `Wire.body`.
            until: when the answer is of no more use, in `time.monotonic()`.
            token: called with each piece of the answer's text as it comes; untrusted text.

        Raises:
            ModelTrouble: with what all attempts cost, as far as that is known; `stopped` soon after `stop` says so.
        """
        started, tries, cuts, lost = time.monotonic(), 0, 0, (0, 0)
        sent = {k: v for k, v in body.items() if k not in self._untaken}
        size = self.size(sent)
        self._client.check()
        while True:
            assembly = Assembly(self._client.asked(tuple(sent)), token)
            try:
                turn = self._once(sent, assembly, until)
            except Setback as e:
                if assembly.begun:
                    lost = (lost[0] + size // 4, lost[1] + assembly.begun // 4)
                if e.field:  # a field that this server does not take: not a failure, and remembered
                    self._untaken |= {e.field} | ({"stream_options"} if e.field == "stream" else set())
                    sent = {k: v for k, v in sent.items() if k not in self._untaken}
                    continue
                tries, cuts = tries + 1, cuts + (e.kind == "cut")
                delay = e.wait if e.wait is not None else self.backoff * 2**tries * random.uniform(0.75, 1.25)
                if delay > LONGEST_WAIT or time.monotonic() + delay >= until:
                    delay = None
                if not e.again or tries > RETRIES or cuts > 1 or delay is None:
                    raise ModelTrouble(e.kind, _told(e, tries), *lost) from None
                if assembly.begun:
                    token(AGAIN)
                self._wait(delay, lost)
                continue
            self.lost = (self.lost[0] + lost[0], self.lost[1] + lost[1])
            turn.tokens_in = turn.tokens_in or size // 4
            turn.seconds = time.monotonic() - started
            return turn

    def _wait(self, seconds: float, lost: tuple[int, int]) -> None:
        """Let time pass before another attempt."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self.stop():
                raise ModelTrouble("stopped", stopped().message, *lost)
            time.sleep(min(LOOK_SECONDS, left))

    def close(self) -> None:
        """Close the connections to the server."""
        self._client.close()

    def _once(self, body: Mapping[str, Any], assembly: Assembly, until: float) -> Turn:
        """One attempt; every way it can fail ends in a Setback."""
        asked = self._client.asked(tuple(body))
        left = until - time.monotonic()
        if left <= 0:
            raise Setback("timeout", "no time is left for an answer of the model")
        if self.stop():
            raise stopped()
        exchange = self._client.chat(body, self.settings.timeout)
        try:
            assembly.read(exchange.pieces(until, self.stop))
            return assembly.turn()
        except Refusal as e:
            raise self._refused(e, body, until) from None
        except TimeoutError:
            if assembly.complete:
                return assembly.turn()
            raise Setback("timeout", f"the model gave no whole answer within {left:.0f} s") from None
        except self._client.errors() as e:
            if assembly.complete:
                return assembly.turn()  # all was said before the connection broke
            raise broken(e, asked, self.settings.timeout, begun=assembly.heard) from None
        finally:
            exchange.leave()

    def _refused(self, answer: Refusal, body: Mapping[str, Any], until: float) -> Setback:
        head = answer.head
        told = refusal(head.status, head.headers, answer.body, self._client.asked(tuple(body)))
        if told.kind != "model" or head.status >= 500:
            return told
        names = [str(m.get("id", ""))[:80] for m in self._client.models(min(2.0, max(0.1, until - time.monotonic())))]
        alike = difflib.get_close_matches(self.settings.model, names[:1000], 8, 0)
        others = ", ".join(alike) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        asked = self._client.asked(tuple(body), f": it has {others}" if names else "")
        return refusal(head.status, head.headers, answer.body, asked)

    def _redacted(self, value: Any) -> Any:
        """The same data with every string redacted; within arguments that are JSON also what escapes would hide."""
        if isinstance(value, str):
            if value not in self._clean:
                self._clean[value] = self._cleaned(value)
            return self._clean[value]
        if isinstance(value, Mapping):
            return {self._redacted(str(k)): self._redacted(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self._redacted(v) for v in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        raise TypeError(f"a message holds {type(value).__name__}, which is not plain data")

    def _cleaned(self, text: str) -> str:
        clean = self.redactor.redact(text.encode("utf-8", "replace").decode())
        if clean[:1] in ("{", "[") and "\\" in clean:
            try:
                inner = json.loads(clean)
            except (ValueError, RecursionError):
                return clean
            within = self._redacted(inner)
            if within != inner:
                return json.dumps(within, ensure_ascii=False)
        return clean


def broken(error: BaseException, asked: Asked, seconds: float, begun: bool) -> Setback:
    """What an error of the HTTP client means; its own words are not shown, as they may hold what was sent."""
    chain, names = error, []
    while chain is not None and len(names) < 60:
        names += [c.__name__ for c in type(chain).__mro__] + [str(chain)[:300]]
        chain = chain.__cause__ or chain.__context__
    said = " ".join(names)
    host = asked.url.split("//")[-1].split("/")[0]
    if "DecodingError" in said:
        return Setback("garbled", "the server's compressed answer is damaged")
    if "ConnectTimeout" in said:
        return Setback("connection", f"no connection to {host} in time: is the address right, and reachable from here?")
    if "TimeoutException" in said or "APITimeoutError" in said:
        if begun:
            return Setback("timeout", f"the model fell silent in the middle of its answer for {seconds:g} s")
        return Setback("timeout", f"the model said nothing for {seconds:g} s: `timeout` is how long to wait")
    if begun:
        return Setback("cut", "the connection broke within the answer", again=True)
    if "SSL" in said or "CERTIFICATE" in said:
        return Setback("connection", f"no encrypted connection to {host}: is it http:// or https://, and known here?")
    if any(w in said for w in ("gaierror", "Name or service", "name resolution", "nodename", "No address")):
        return Setback("connection", f"no machine is known by the name in {host}: look at `base_url`", again=True)
    if "refused" in said:
        return Setback("connection", f"nothing listens at {host}: is the server started?", again=True)
    if "LocalProtocolError" in said or "InvalidURL" in said or "UnicodeEncodeError" in said:
        return Setback("connection", "the address, a header or the key holds characters that cannot be sent")
    return Setback("connection", f"the connection to {host} broke before an answer came", again=True)


def _told(setback: Setback, tries: int) -> str:
    wait = f"; it asks to wait {setback.wait:g} s" if setback.wait and setback.again else ""
    times = f"; asked {tries} times" if tries > 1 and setback.again else ""
    return setback.message + wait + times
