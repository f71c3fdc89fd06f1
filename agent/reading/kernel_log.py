"""Kernel lines about NVIDIA devices: Xid and SXid codes, and cards that fell off the bus with or without a code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from ..playbook import KNOWLEDGE

XID = re.compile(r"Xid\s?\((?P<pci>(?:PCI:)?[0-9a-fA-F:.]+)\)[^\n]{0,20}?: (?P<code>\d{1,3})\b(?P<rest>.*)")
SXID = re.compile(r"SXid\s?\((?P<pci>(?:PCI:)?[0-9a-fA-F:.]+)\)[^\n]{0,20}?: (?P<code>\d{4,6})\b")
XID_WORDS = re.compile(r"\bXid\s?(?:error|code|event)?\s?[:=#]?\s?(?P<code>\d{1,3})\b(?!\.\d)")
OFF_THE_BUS = re.compile(r"(?:NVRM: |Xid \(|nvidia).{0,160}fallen off the bus|GPU is lost\b|GPU_IS_LOST", re.IGNORECASE)
CARD = re.compile(r"NVRM:.{0,20}NVIDIA GPU (?P<pci>[0-9a-fA-F:.]+)|NVRM: GPU (?:at PCI:)?(?P<other>[0-9a-fA-F:.]+)")
KERNEL = re.compile(r"NVRM:|^\$? ?(?:sudo )?(?:dmesg|journalctl)\b|^\[\s*\d+\.\d{6}\]|\bkernel: ")
_WORDS = re.compile(r"NVRM|S?Xid|fallen off|GPU.is.lost", re.IGNORECASE)
SEARCHED = re.compile(r"(?:dmesg|journalctl|kern\.log|/var/log/\S+)[^\n]*grep[^\n]*xid", re.IGNORECASE)
NVLINK5 = re.compile(r"^,?\s*(?P<unit>[A-Z]\w*(?:/\w+)?)\s+(?P<severity>(?:Link )?Fatal|Non-?fatal)\b", re.IGNORECASE)
RECOVERY = re.compile(r"recovery action changed.{0,40}to (?:0x\w+ )?\(?([\w ]+)\)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Xid:
    """One code on one device; `known` is the catalogue's entry, None for codes it does not hold.

    `nonfatal`: an event of an NVLink unit that the driver got over (codes 144 to 150 say which).
    """

    code: int
    pci: str
    known: dict[str, Any] | None
    nonfatal: bool = False


@cache
def catalogue() -> dict[int, dict[str, Any]]:
    """Entry by code: name, action (a sentence), bucket, investigate, blame, consequence, cause."""
    text = (KNOWLEDGE / "xid.yaml").read_text(encoding="utf-8")
    data = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    entries = dict(data["codes"])
    for span in data["ranges"]:
        shared = {k: v for k, v in span.items() if k not in {"from", "to"}}
        entries |= {code: shared for code in range(span["from"], span["to"] + 1) if code not in entries}
    return {
        code: {**entry, "bucket": entry["action"], "action": data["actions"][entry["action"]]}
        for code, entry in entries.items()
    }


def xid_of(text: str) -> Xid | None:
    """The Xid a kernel line (or a monitoring line that quotes one) states."""
    if "sxid" in text.lower():
        return None
    if m := XID.search(text):
        event = NVLINK5.match(m["rest"])
        mild = event is not None and event["severity"].lower().startswith("non")
        return Xid(int(m["code"]), m["pci"], catalogue().get(int(m["code"])), mild)
    m = XID_WORDS.search(text)
    return Xid(int(m["code"]), "", catalogue().get(int(m["code"]))) if m else None


def culprit(codes: list[Xid]) -> Xid | None:
    """Which of many codes is to blame: the first that does not merely follow another.

    A fault of the hardware that asks for an action goes before one of the application: the application cannot take a
    card off the bus, a sick card can make it fail. Where all follow another, a fault of the hardware still counts
    (a remapped row names the memory); a cleanup alone blames nobody, nor does an event the driver got over.
    """
    own = [x for x in codes if not (x.known or {}).get("consequence") and not x.nonfatal]
    sick = [x for x in own if x.known and x.known["blame"] == "hardware" and x.known["bucket"] != "IGNORE"]
    marks = [x for x in codes if x.known and x.known["blame"] == "hardware" and not x.nonfatal]
    return next(iter(sick or own or marks), None)


def begin(text: str) -> int | None:
    """Where in a line the kernel's words begin."""
    m = _WORDS.search(text)
    return m.start() if m else None
