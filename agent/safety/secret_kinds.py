"""The table of `knowledge/secrets.yaml`, compiled, and how a value is judged that only its name makes a secret."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import re2

from ..core.errors import KnowledgeError
from ..core.own_files import KNOWLEDGE, read_table

TABLE = KNOWLEDGE / "secrets.yaml"
AGAIN = 8
_RUN = re.compile(rb"[A-Za-z0-9]+")
_IN_CODE = re.compile(rb"^[$~/.@%<{*]|[\[({]|://")
_NUMBERED = re.compile(rb"[A-Za-z]+\d{1,6}$")
_PARTS = re.compile(rb"[A-Z]+|[a-z]+|[0-9]+")
_PRINTED = re.compile(rb"[ -~]+")
_UUID = re.compile(rb"(?i)(?:[a-z]{1,4}-)?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of secret.

    Attributes:
        token: whether a secret of this kind tells itself by its form, wherever it stands.
        pattern: of re2, over bytes; the secret is the group that took part. `open`: the same, whatever stands behind.
        judge: whether a value that matched is a secret after all.
        unless: what must not stand in the match before the secret; None for nothing.
        long: whether it goes over many lines.
        length: bytes of a secret of this kind, where all are as long; otherwise 0.
    """

    name: str
    token: bool
    pattern: Any
    open: Any
    judge: Callable[[bytes], bool]
    unless: Any = None
    long: bool = False
    length: int = 0

    def matches(self, data: bytes, start: int, end: int, *, glued: bool = False) -> Iterator[tuple[int, int]]:
        """Start and end of each secret of this kind between two offsets.

        With `glued`, other text may be glued to its end. What was refused is looked at once more from within, as
        long as that costs no more than going over everything a few times.
        """
        at, pattern, left = start, self.open if glued else self.pattern, AGAIN * (end - start)
        while at < end and (match := pattern.search(data, at, end)):
            first, last = match.span(match.lastindex or 0)
            if self.judge(data[first:last]) and not (self.unless and self.unless.search(data[match.start() : first])):
                yield first, last
                at = max(last, at + 1)
            else:
                left -= last - first
                at = max(match.start() + 1, first if left > 0 else last, at + 1)

    def whole(self, secret: bytes) -> bool:
        """Whether these bytes by themselves are a secret of this kind."""
        return any(span == (0, len(secret)) for span in self.matches(secret, 0, len(secret)))


@dataclass(frozen=True, slots=True)
class Kinds:
    """All kinds, the more telling first.

    Attributes:
        any: finds where some kind may match, `tokens` where one does by its form.
        broken: finds where a secret may go on over a line's end; `encoded`: base64 that may hold a token.
    """

    rows: tuple[Kind, ...]
    any: Any
    tokens: Any
    broken: Any
    encoded: Any


@cache
def kinds() -> Kinds:
    """The compiled table. Raises KnowledgeError for a row that is none."""
    table = read_table(TABLE)
    table["macros"]["starts"] = "|".join(re.escape(start) for start in table["starts"])
    rows, patterns = [], []
    for part in ("tokens", "placed"):
        for row in table[part]:
            text = _filled(row["pattern"], table["macros"])
            patterns.append((part == "tokens", text))
            try:
                judge = JUDGES[row.get("check", "")]
                unless = compiled(f"(?i){row['unless']}") if "unless" in row else None
                ways = compiled(text), compiled(_open(text))
                more = row.get("long", False), row.get("length", 0)
                rows.append(Kind(row["kind"], part == "tokens", *ways, judge, unless, *more))
            except (re2.error, KeyError) as trouble:
                raise KnowledgeError(f"secrets.yaml: {row['kind']}: {trouble}") from None
    return Kinds(
        tuple(rows),
        compiled("|".join(f"(?:{_open(text)})" for _, text in patterns)),
        compiled("|".join(f"(?:{text})" for token, text in patterns if token)),
        compiled(_filled(table["broken"], table["macros"])),
        compiled(rf"[A-Za-z0-9+/_-]*?(?:{'|'.join(sorted(_encoded(table['starts'])))})[A-Za-z0-9+/_-]{{12,}}={{0,2}}"),
    )


def _open(pattern: str) -> str:
    """The pattern whatever stands behind."""
    return pattern.removesuffix(r"\b").removesuffix("(?:[^A-Za-z0-9+/=]|$)")


def _encoded(starts: list[str]) -> set[str]:
    """What base64 prints for these, whatever stands before: the characters that depend on nothing else."""
    found = set()
    for start in starts:
        for before in range(3):
            text = base64.b64encode(b"\0" * before + start.encode() + b"\0\0\0").decode()
            first, last = -(-before * 8 // 6), (before + len(start)) * 8 // 6
            found.add(re.escape(text[first:last]))
            found.add(re.escape(text[first:last].translate(str.maketrans("+/", "-_"))))
    return found


def _filled(pattern: str, macros: dict[str, str]) -> str:
    for _ in range(3):
        for name, text in macros.items():
            pattern = pattern.replace("{{" + name + "}}", text)
    return pattern


@cache
def compiled(pattern: str) -> Any:
    """A pattern of re2 over bytes. Raises re2.error."""
    options = re2.Options()
    options.max_mem = 256 << 20
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1  # bytes as they are, whatever a run prints
    return re2.compile(pattern.encode(), options)


def drawn(value: bytes, least: int = 10) -> bool:
    """Whether a value looks drawn at random: a run of at least so many letters and digits, much mixed."""
    longest = max(_RUN.findall(value), key=len, default=b"")
    changes = len(_PARTS.findall(longest)) - 1
    return len(longest) >= least and changes >= 3 and changes >= len(longest) // 12


def goes_on(rest: bytes) -> bool:
    """Whether what begins the next line reads like the rest of a secret rather than like a word."""
    mixed = rest.isalnum() and len(rest) >= 8 and not rest.isdigit() and not rest.isalpha()
    return drawn(rest, least=6) or (mixed and not _NUMBERED.match(rest))


def unfinished(part: bytes, whole: bytes) -> bool:
    """Whether this part of a value is one of which more is known to come: a UUID has all its groups."""
    return _UUID.match(whole) is not None and _UUID.match(part) is None


@cache
def _harmless() -> Any:
    table = read_table(TABLE)
    return compiled("(?i)^(?:" + "|".join(f"(?:{text})" for text in table["harmless"]) + ")$")


@lru_cache(maxsize=4096)
def _value(value: bytes) -> bool:
    """Not a number, a name in code, a path, a blank or a word about secrets."""
    value = value.strip(b" \t\"'`,;:").rstrip(b".")
    if len(value) < 4:
        return False
    if value.startswith(b"/") and drawn(value, 20) and b"." not in value:
        return True  # base64 may begin like a path
    return not _harmless().search(value) or (drawn(value) and not _IN_CODE.search(value))


def _random(value: bytes) -> bool:
    return len(value) >= 16 and _value(value) and (drawn(value) or _UUID.match(value) is not None)


def _flag(value: bytes) -> bool:
    return _value(value) and len(_PARTS.findall(value)) > 1 and len(value) >= 6 and value.lower() != value.upper()


def _query(value: bytes) -> bool:
    return _value(value) and (len(_PARTS.findall(value)) > 2 or b"%" in value)


def _userinfo(value: bytes) -> bool:
    return value.isdigit() or (len(value) > 0 and not _harmless().search(value))


def _three(value: bytes) -> bool:
    return all(any(low <= c <= high for c in value) for low, high in (b"AZ", b"az", b"09")) and drawn(value, 6)


def _userpass(value: bytes) -> bool:
    try:
        held = base64.b64decode(value + b"=" * (-len(value) % 4))
    except (binascii.Error, ValueError):
        return False
    told = _PRINTED.match(held)  # what a next line glued to it holds, is anything
    return told is not None and b":" in told[0] and (told.end() == len(held) or told.end() >= 8)


JUDGES: dict[str, Callable[[bytes], bool]] = {
    "": lambda _: True,
    "value": _value,
    "random": _random,
    "flag": _flag,
    "query": _query,
    "userinfo": _userinfo,
    "three": _three,
    "userpass": _userpass,
}
