"""Values of settings: what a piece of text means, within bounds."""

from __future__ import annotations

import math
import re
from enum import Enum
from typing import Any, Final

VALUE_CAP = 2000  # characters of one value that are kept
DIGITS = 40  # an integer with more digits is kept as text: Python refuses to print what it parsed
LIST_CAP = 200


class _Unset(Enum):
    TOKEN = 0


UNSET: Final = _Unset.TOKEN
_TRUE, _FALSE = {"true", "yes", "on"}, {"false", "no", "off"}
_NONE = {"none", "null", "~", ""}
_INT = re.compile(rf"[+-]?\d[\d_]{{0,{DIGITS}}}\Z")
_FLOAT = re.compile(r"[+-]?(?:\d[\d_]{0,60}\.?\d{0,60}|\.\d{1,60})(?:[eE][+-]?\d{1,4})?\Z")
_SPECIAL = {".nan": math.nan, "nan": math.nan, ".inf": math.inf, "inf": math.inf, "-inf": -math.inf,
            "-.inf": -math.inf, "infinity": math.inf, "-infinity": -math.inf}  # fmt: skip
_GRES = re.compile(r"(?:gpu:)?(?:[\w.-]+:)?(\d+)(?:\(.*\))?\Z")
_CLOCK = re.compile(r"(\d+):(\d\d)(?::(\d\d))?\Z")


def parse(text: str, quoted: bool = False) -> Any:
    """A scalar as the plain formats mean it: bool, int, float, None or text. Quoted text stays text."""
    text = text.strip() if not quoted else text
    if quoted or len(text) > 100:
        return text[:VALUE_CAP]
    low = text.lower()
    if low in _NONE:
        return None
    if low in ("true", "false"):
        return low == "true"
    if _INT.match(text):
        return int(text.replace("_", ""))
    if low in _SPECIAL:
        return _SPECIAL[low]
    if _FLOAT.match(text):
        return float(text.replace("_", ""))
    return text


def as_type(value: Any, kind: str) -> Any:
    """A value in a canonical type where it fits, otherwise unchanged (so that a wrong type can be seen)."""
    if value is None or value is UNSET:
        return None
    if kind == "bool":
        return _as_bool(value)
    if kind in ("int", "float", "seconds"):
        return _as_number(value, kind)
    if kind == "list":
        return _as_list(value)
    return value if isinstance(value, bool | int | float) else (value if isinstance(value, list) else str(value))


def _as_bool(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    low = str(value).strip().lower()
    if low in _TRUE | {"1", "1.0"}:
        return True
    if low in _FALSE | {"0", "0.0", "none"}:
        return False
    return value


def _as_number(value: Any, kind: str) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        value = parse(value)
        if isinstance(value, str):
            return _odd_number(value, kind)
    if isinstance(value, float) and kind != "float" and value.is_integer() and abs(value) < 1e18:
        return int(value)
    return float(value) if kind == "float" and isinstance(value, int) and abs(value) < 1e18 else value


def _odd_number(text: str, kind: str) -> Any:
    """`gpu:a100:8` is eight; `00:30:00` is half an hour."""
    if kind == "seconds" and (m := _CLOCK.match(text)):
        return int(m[1]) * (3600 if m[3] else 60) + int(m[2]) * (60 if m[3] else 1) + int(m[3] or 0)
    if kind == "int" and text.startswith("gpu:") and (m := _GRES.match(text)):
        return int(m[1])
    return text


def _as_list(value: Any) -> Any:
    if isinstance(value, list):
        return value[:LIST_CAP]
    text = str(value).strip()
    if "," in text:
        return [part.strip(" '\"") for part in text.strip("[]()").split(",")[:LIST_CAP] if part.strip(" '\"")]
    return [text.strip("[]() '\"")] if text.strip("[]() '\"") else []
