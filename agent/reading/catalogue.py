"""What the catalogues say of the terms a question names: Xid codes, words of the field, settings, versions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from .settings_map import Canonical, settings_map

KNOWLEDGE = Path(__file__).resolve().parent.parent.parent / "knowledge"
_XID = re.compile(r"\bxids?\s*(?:errors?|codes?|number)?\s*[:#(=]?\s*(\d{1,3})\b", re.IGNORECASE)
_NAME = re.compile(r"(?:--)?[A-Za-z]\w*(?:[-_.]\w+)+|(?<!\w)--\w+|\b[A-Z]{2,}\w*\b")
_FRAMEWORKS_TOLD = 9


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a catalogue: its file, the term, what it says, the playbook that goes further."""

    document: str
    term: str
    text: str
    see: str = ""


def entries(question: str) -> list[Entry]:
    """Every entry that the question names by its own term; none where it only comes near."""
    found = [*_xids(question), *_folklore(question), *_terms(question)]
    told = {e.term.casefold() for e in found}  # what does nothing, or is a word of the field, is no setting beside
    found += [e for e in _settings(question) if e.term.casefold() not in told]
    found += _versions(question)
    return list({(e.document, e.term): e for e in found}.values())


@cache
def _data(name: str) -> Any:
    text = (KNOWLEDGE / name).read_text(encoding="utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _xids(question: str) -> Iterator[Entry]:
    table = _data("xid.yaml")
    for code in dict.fromkeys(int(m[1]) for m in _XID.finditer(question)):
        entry = table["codes"].get(code)
        if entry is None:
            continue
        text = (
            f"Xid {code}: {entry['name']}. At once: {table['actions'][entry['action']]}. Afterwards: "
            f"{entry['investigate']}. Usually at fault: {entry['blame']}."
        )
        if entry.get("consequence"):
            text += " It follows another error and names no culprit on its own."
        if entry.get("cause"):
            text += f" What to do about it: playbook {entry['cause'].replace('.', '/')}."
        yield Entry("xid.yaml", f"Xid {code}", text, entry.get("cause", ""))


@cache
def _glossary() -> list[tuple[re.Pattern[str], Entry]]:
    return [
        (_spelled([term, *entry.get("also", ())]), Entry("glossary.yaml", term, _said(entry), entry.get("see", "")))
        for term, entry in _data("glossary.yaml").items()
    ]


def _said(entry: dict[str, Any]) -> str:
    return f"{entry['says']} More: playbook {entry['see']}." if "see" in entry else entry["says"]


def _spelled(names: list[str]) -> re.Pattern[str]:
    """Whole words; those written in capitals as they stand, the rest in any case and with a plural."""
    parts = [
        rf"(?<![\w-]){re.escape(n)}(?![\w-])" if n.isupper() else rf"(?<![\w-])(?i:{re.escape(n)}s?)(?![\w-])"
        for n in names
    ]
    return re.compile("|".join(parts))


def _terms(question: str) -> Iterator[Entry]:
    """Terms in the order the question names them; a term inside a longer one that was named too is left out."""
    hits = [(m.start(), -m.end(), entry) for pattern, entry in _glossary() for m in pattern.finditer(question)]
    end = -1
    for _start, stop, entry in sorted(hits, key=lambda h: h[:2]):
        if -stop > end:
            end = -stop
            yield entry


def _folklore(question: str) -> Iterator[Entry]:
    for name in dict.fromkeys(m[0] for m in _NAME.finditer(question)):
        for entry in _data("folklore.yaml"):
            if re.search(entry["spelled"], name.lstrip("-")):
                value = f" ({name} with a value like {entry['value']})" if "value" in entry else ""
                text = f"{name}: {entry['says']}{value}. What works: {entry['works']}. Looked up in: "
                yield Entry("folklore.yaml", name, text + "; ".join(entry["sources"]) + ".")
                break


def _settings(question: str) -> Iterator[Entry]:
    """A setting that the question names as a framework spells it, with its other spellings and defaults."""
    known = settings_map()
    for name in dict.fromkeys(m[0] for m in _NAME.finditer(question)):
        if found := known.resolve("", name.lstrip("-")):
            yield Entry("settings.yaml", name, _spellings(name, known.canonical[found[0].name]))


def _spellings(name: str, setting: Canonical) -> str:
    rows = []
    for framework, spelled in setting.spelled.items():
        if framework != "also":
            key = ".".join(spelled[0].segments).lstrip("=")
            default = f" (default {setting.default[framework]})" if setting.default.get(framework) is not None else ""
            rows.append(f"{framework} {key}{default}")
    lead = f"{name} sets {setting.name.replace('_', ' ')}."
    return f"{lead} Spelled by framework: {', '.join(rows[:_FRAMEWORKS_TOLD])}." if rows else lead


def _versions(question: str) -> Iterator[Entry]:
    """Known conflicts between packages that the question names together."""
    words = set(re.findall(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*", question.lower().replace("-", "_")))
    for fact in _data("compatibility.yaml")["conflicts"]:
        packages = fact.get("when", {})
        if len(packages) > 1 and set(packages) <= words:
            ranges = ", ".join(f"{name} {condition}" for name, condition in packages.items())
            yield Entry("compatibility.yaml", fact["id"], f"{ranges}: {fact['says']}. What to do: {fact['fix']}.")
