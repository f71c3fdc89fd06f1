"""Recorded conversations with a model: kept as what it answered, replayed against today's evidence.

    <incident>.json   {"incident": ..., "answers": [{"content": ..., "tool_calls": [...]}, ...],
                       "cited": {"E12": "error.first train.log:13"}, "sizes": [bytes of each request]}

Evidence is numbered anew whenever a tool learns to see more, so what a recorded answer cites is kept as key and place,
and gets the number it has today when it is replayed. What is not there any more keeps its old number, which the gate
refuses unless it says the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..agent.core.errors import UsageError

_WHO = r"(?: (?:rank|attempt|variant|step) [^ |]+)*"
_LINE = re.compile(rf"^(E\d+ .*?) (\S+:\d+){_WHO}(?: \| |$)", re.MULTILINE)
_OTHER = re.compile(r"^(E\d+) ([\w.]+)(?:=.*?)? (\S+)", re.MULTILINE)
_NAMED = re.compile(r"(?:^|, )(E\d+) ([\w.]+)")
_ABSENT = re.compile(r"^(E\d+) (\S+): looked for, not there", re.MULTILINE)
_SETTING = re.compile(r"^((?:asked|used|other)\.[\w.-]+) = (.*)$", re.MULTILINE)
_VALUE = re.compile(r"(?:^|, )([^\[\]]*?) \[(E\d+)(?: at [^\]]*)?\]")
_ID = re.compile(r"\bE\d+\b")


@dataclass(frozen=True, slots=True)
class Exchange:
    """A recorded conversation about one incident."""

    incident: str
    answers: tuple[Mapping[str, Any], ...]
    cited: Mapping[str, str]
    sizes: tuple[int, ...] = ()

    def answer(self, request: Mapping[str, Any], number: int) -> Any:
        """The `number`-th answer (from 1) with today's evidence ids; after the last one, that one again."""
        said = self.answers[min(number, len(self.answers)) - 1]
        today = {place: i for i, place in shown(request).items()}
        new = {old: today.get(place, old) for old, place in self.cited.items()}
        calls = [{**c, "arguments": _renumbered(c["arguments"], new)} for c in said.get("tool_calls") or ()]
        return {**said, "tool_calls": calls}


def _renumbered(value: Any, new: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _ID.sub(lambda m: new.get(m[0], m[0]), value)
    if isinstance(value, Mapping):
        return {k: _renumbered(v, new) for k, v in value.items()}
    return [_renumbered(v, new) for v in value] if isinstance(value, list) else value


def shown(request: Mapping[str, Any]) -> dict[str, str]:
    """Every evidence id that a request shows, with key and place (or value) that name it whatever its number."""
    found: dict[str, str] = {}
    for message in request.get("messages", ()):
        text = message.get("content") or ""
        for m in _ABSENT.finditer(text):
            found.setdefault(m[1], f"{m[2]} absent")
        for m in _LINE.finditer(text):
            for named in _NAMED.finditer(m[1]):
                found.setdefault(named[1], f"{named[2]} {m[2]}")
        for m in _OTHER.finditer(text):
            found.setdefault(m[1], f"{m[2]} {m[3]}")
        for m in _SETTING.finditer(text):
            for v in _VALUE.finditer(m[2]):
                found.setdefault(v[2], f"settings.{m[1]} = {v[1]}")
    return found


def of_spool(spool: Path, incident: str) -> Exchange:
    """The conversation in a folder of `NNNN.request.json` and `NNNN.response.json`.

    Raises:
        UsageError: there is none.
    """
    requests = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(spool.glob("*.request.json"))]
    answers = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(spool.glob("*.response.json"))]
    if not answers or len(answers) < len(requests):
        raise UsageError(f"no whole conversation in {spool}")
    places: dict[str, str] = {}
    for request in requests:
        places |= shown(request)
    used = set(_ID.findall(json.dumps(answers)))
    sizes = [len(json.dumps(r, ensure_ascii=False, separators=(",", ":")).encode()) for r in requests]
    cited = {i: places[i] for i in sorted(used, key=lambda i: int(i[1:])) if i in places}
    return Exchange(incident, tuple(answers[: len(requests)]), cited, tuple(sizes))


def save(exchange: Exchange, folder: Path) -> Path:
    """Write an exchange as `<incident>.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{exchange.incident}.json"
    data = {
        "incident": exchange.incident, "sizes": exchange.sizes, "cited": exchange.cited, "answers": exchange.answers,
    }  # fmt: skip
    path.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return path


def load(folder: Path) -> dict[str, Exchange]:
    """Every exchange of a folder, by incident.

    Raises:
        UsageError: a file is none, or there is none.
    """
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            exchange = Exchange(data["incident"], tuple(data["answers"]), data["cited"], tuple(data.get("sizes", ())))
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise UsageError(f"{path}: no recorded exchange ({e})") from None
        found[exchange.incident] = exchange
    if not found:
        raise UsageError(f"no recorded exchange in {folder}")
    return found


def main() -> None:
    """Keep a conversation: `python -m traindoctor.evals.exchanges SPOOL INCIDENT FOLDER`."""
    import sys

    spool, incident, folder = sys.argv[1:]
    sys.stdout.write(f"{save(of_spool(Path(spool), incident), Path(folder))}\n")


if __name__ == "__main__":
    main()
