"""A run as if one of its settings were another: what "what if" is answered from. Nothing is written.

wanted = named_change(workspace, "bf16", "true")     -> Change("bf16", True, ...)
reading = changed(read_settings(workspace), wanted)  -> Settings as they would then be read
Supposed(workspace, reading)                         -> a workspace whose settings are these
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ...core.errors import ToolError
from ..run.files import LINE_LIMIT, Line, RunFile
from ..run.workspace import Workspace
from .settings import Place, Setting, Settings, put_where_decided, read_lines, read_settings
from .settings_map import Canonical, normal, parse, settings_map

T = TypeVar("T")
_FACTOR = re.compile(r"^(?:(half|halved?|double[d]?)|([x*/])\s*(\d+(?:\.\d+)?))$", re.IGNORECASE)
_OFF = ("off", "unset", "none", "remove", "removed", "disabled", "false", "no")
MOST = 1e15  # no number of any setting comes near
_DERIVED = ("models",)  # readings of a workspace that settings enter


@dataclass(frozen=True, slots=True)
class Change:
    """One setting changed.

    `before` is what holds now (None where nothing is set, or where files disagree); `all` the canonical settings
    that change with it, itself included: a precision is two switches in many frameworks.
    """

    name: str
    before: Any
    after: Any
    all: dict[str, Any] = field(default_factory=dict)


def named_change(ws: Workspace, setting: str, value: str) -> Change:
    """The change that a setting and a value in anybody's spelling mean.

    Raises:
        ToolError: no such setting is known, or the value is none of its kind or range; with what is.
    """
    reading, known = read_settings(ws), settings_map()
    name, raw = _canonical(reading, setting, parse(value.strip()))
    kind = known.canonical[name]
    now, said = reading.value(name), value.strip()
    after = _relative(kind, now, said) if _FACTOR.match(said) else _fitting(kind, raw, said)
    usual = [known.default(name, framework) for framework in reading.frameworks]
    if after is not None and after not in usual and (why := _impossible(kind, after)):
        raise ToolError(f"{name} cannot be {said[:40]!r}: {why}")
    return Change(name, now, after, _together(reading, name, after))


def _canonical(reading: Settings, setting: str, value: Any) -> tuple[str, Any]:
    """The canonical name, and the value converted from the spelling's own unit and wording."""
    known, bare = settings_map(), normal(setting)
    bare = known.labels.get(bare, bare)
    if bare in known.canonical:
        return bare, value
    for framework in (*sorted(reading.frameworks), "env", ""):
        if found := known.resolve(framework, bare):
            return found[0].name, known.convert(found[0], value)
    close = difflib.get_close_matches(bare, known.canonical, n=3, cutoff=0.6)
    hint = f"; did you mean {', '.join(close)}?" if close else ""
    raise ToolError(f"no setting {setting[:80]!r} is known{hint}")


def _impossible(kind: Canonical, value: Any) -> str:
    """Why a value cannot be, with what is possible; empty where nothing speaks against it."""
    words = {v for v in kind.values.values() if isinstance(v, str)}
    if kind.type == "str" and len(words) > 1 and words >= set(kind.values.values()):
        return "" if value in words else f"possible are {', '.join(sorted(words))}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if not math.isfinite(value):
        return "it is no finite number"
    low, high = kind.low, kind.high
    if (low is None or value >= low) and (high is None or value <= high):
        return "" if abs(value) < MOST else "no setting is as large as that"
    if low is not None and high is not None:
        return f"possible is {_number(low)} to {_number(high)}"
    return f"possible is {_number(low)} or more" if low is not None else f"possible is {_number(high)} or less"


def _number(value: float | None) -> str:
    return f"{value:,.10g}".replace(",", " ") if value is not None else ""


def _fitting(kind: Canonical, value: Any, said: str) -> Any:
    """The value in the setting's own type and wording."""
    if not said:
        raise ToolError(f"{kind.name}: no value is given")
    if said.lower() in _OFF and kind.type not in ("bool", "str"):
        return None
    made = value
    if kind.values and isinstance(value, str | bool | int | float):
        made = kind.values.get(str(value).lower(), value)
    number = isinstance(made, int | float) and not isinstance(made, bool)
    if kind.type in ("int", "float", "seconds") and not number:
        raise ToolError(f"{kind.name} takes a number, not {said[:40]!r}")
    if kind.type == "int" and isinstance(made, float):
        if not made.is_integer():
            raise ToolError(f"{kind.name} takes a whole number, not {said[:40]!r}")
        return int(made)
    if kind.type == "bool" and not isinstance(made, bool):
        switched = {"on": True, "1": True, "true": True, "yes": True, "0": False} | dict.fromkeys(_OFF, False)
        if str(made).lower() not in switched:
            raise ToolError(f"{kind.name} is on or off, not {said[:40]!r}")
        return switched[str(made).lower()]
    return made


def _relative(kind: Canonical, now: Any, said: str) -> Any:
    """`half`, `double`, `x2`, `/4` of what is set now."""
    if not isinstance(now, int | float) or isinstance(now, bool):
        raise ToolError(f"{kind.name} has no one value in this run that could be taken {said[:20]!r}: name a value")
    m = _FACTOR.match(said)
    assert m is not None
    factor = (0.5 if m[1].lower().startswith("h") else 2.0) if m[1] else float(m[3])
    if not factor:
        raise ToolError(f"{kind.name} cannot be taken {said[:20]!r}: the factor must be above 0")
    if m[2] == "/":
        factor = 1 / factor
    return max(1, round(now * factor)) if isinstance(now, int) and kind.type == "int" else now * factor


def _together(reading: Settings, name: str, value: Any) -> dict[str, Any]:
    """What changes with a setting: what its value implies, and switches that say something else of the same."""
    known, out = settings_map(), {name: value}
    out |= known.implies.get(name, {}).get(str(value).lower(), {})
    present = {s.name for s in reading.all if not s.file.good}
    for other, by_value in known.implies.items():
        if other == name or other in out or other not in present:
            continue
        says = {raw: implied[name] for raw, implied in by_value.items() if name in implied}
        if "true" in says:  # a switch: on where it says the same, off where it says otherwise
            out[other] = says["true"] == value
    return out


def changed(reading: Settings, change: Change) -> Settings:
    """The settings as they would be read with the change made wherever the run sets them; `auto` stays as it is."""
    asked = {s.name for s in reading.all if s.name in change.all and not s.used and not s.file.good}
    told: set[str] = set()
    out: list[Setting] = []
    for s in reading.all:
        if s.name not in change.all or s.file.good or s.value == "auto":
            out.append(s)
            continue
        value = change.all[s.name]
        if value is None or (s.used and (s.name in asked or s.name in told)):
            continue  # what the log printed was the old value
        told.add(s.name)
        out.append(replace(s, value=value, used=False))
    for name, value in change.all.items():
        if name not in asked | told and value not in (None, False) and (made := _set(reading, name, value)):
            out.append(made)
    return replace(reading, all=out)


def _set(reading: Settings, name: str, value: Any) -> Setting | None:
    """A setting that the run does not have, in the first file that could; its line is 0, as it stands nowhere."""
    known = settings_map()
    own = [s for s in reading.sources if s.asks and not s.file.good]
    spelled = known.canonical[name].spelled
    source = next((s for s in own if known.owns(s.framework, spelled)), own[0] if own else None)
    if source is None:
        return None
    place = Place(source.format, "supposed", name, 0)
    return Setting(name, value, name, source.framework, source.file, Line(0, 0, b""), place, note="supposed")


class Supposed(Workspace):
    """The same run with other settings. Readings are shared, but for those that settings enter."""

    def __init__(self, ws: Workspace, settings: Settings) -> None:
        self.__dict__.update(ws.__dict__)
        self._actual = ws
        self._own: dict[Any, Any] = {"settings": settings}

    def memo(self, key: Any, make: Callable[[], T]) -> T:
        """The changed settings, and what is made of them, apart from the run's own."""
        if key != "settings" and key not in _DERIVED:
            return self._actual.memo(key, make)
        if key not in self._own:
            self._own[key] = make()
        return self._own[key]


# ----------
# A run as if some of its files had another text: what a patch is checked against. Nothing is written.
#
# reading = reread(read_settings(workspace), {file: text})     -> Settings as they would then be read
# Overlaid(workspace, reading, {file: text})                   -> a workspace in which these files read so


def numbered(text: str) -> list[Line]:
    """The lines of a text, as the reader of files would give them."""
    lines, offset = [], 0
    for number, row in enumerate(text.split("\n"), 1):
        data = row.encode()
        lines.append(Line(number, offset, data[:LINE_LIMIT], len(data) > LINE_LIMIT))
        offset += len(data) + 1
    return lines[:-1] if text.endswith("\n") or not text else lines


def reread(reading: Settings, texts: Mapping[RunFile, str]) -> Settings:
    """The settings with those of the given files read from other texts; the rest is taken as it was read."""
    names = {f.name for f in texts}
    made = Settings()
    at: dict[tuple[str, int], tuple[RunFile, Line]] = {
        (s.file.name, s.line.number): (s.file, s.line) for s in reading.all
    }
    for file, text in texts.items():
        rows = numbered(text)
        code = (
            reading.code.replaced(file.name, text) if reading.code is not None and file.name.endswith(".py") else None
        )
        read_lines(file, rows, made, code)
        at |= {(file.name, row.number): (file, row) for row in rows}
    put_where_decided(made, lambda name, number: at.get((name, number)))
    return replace(
        reading,
        all=[*(s for s in reading.all if s.file.name not in names), *made.all],
        open=[*(s for s in reading.open if s.file.name not in names), *made.open],
        sources=[*(s for s in reading.sources if s.file.name not in names), *made.sources],
        duplicates=[*(d for d in reading.duplicates if d[0].name not in names), *made.duplicates],
        problems=[*(p for p in reading.problems if p.partition(":")[0] not in names), *made.problems],
    )


class Overlaid(Supposed):
    """The same run with other texts. Readings are shared, but for those that settings enter."""

    def __init__(self, ws: Workspace, reading: Settings, texts: Mapping[RunFile, str]) -> None:
        super().__init__(ws, reading)
        self._texts = {f.name: text.encode() for f, text in texts.items()}

    def blocks(self, file: RunFile) -> Iterator[bytes]:
        """The other text where there is one."""
        return iter([self._texts[file.name]]) if file.name in self._texts else self._actual.blocks(file)

    def lines(self, file: RunFile) -> Iterator[Line]:
        """The lines of the other text where there is one."""
        if file.name in self._texts:
            return iter(numbered(self._texts[file.name].decode()))
        return self._actual.lines(file)
