"""The chunks of all sources, and the fingerprint that names an index of them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from .chunks import Chunk, split
from .places import Sources

FORMAT = "4"  # raise when chunking, tokens or what is stored changes
CARD_LINES, CARD_WIDTH = 4, 160  # example lines on a playbook's card, characters of each; all of them count as words
FRONT_LIMIT, DEEPEST = 256 << 10, 2000  # characters of front matter, brackets in it
_CAUSE = re.compile(r"^ {2}([a-z_]+\.[a-z0-9_]+):\s*(.+)$", re.MULTILINE)


def fingerprint(sources: Sources) -> str:
    """Names the content of the sources: 16 hex digits. Reads every file, parses none."""
    digest = hashlib.sha256(FORMAT.encode())
    for kind, path in sources.files():
        name = f"{path.parent.name}/{path.name}" if kind == "playbook" else path.name
        try:
            digest.update(f"\0{kind}\0{name}\0".encode(errors="replace") + path.read_bytes())
        except OSError:
            continue
    return digest.hexdigest()[:16]


def chunks(sources: Sources) -> list[Chunk]:
    """Every chunk of every source, in a stable order."""
    known = meanings(sources.playbooks)
    found: list[Chunk] = []
    for kind, path in sources.files():
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        found += _playbook(path, text, known) if kind == "playbook" else _document(path, text)
    return found


def _document(path: Path, text: str) -> list[Chunk]:
    """Passages of a user's document; front matter may bind it to a cause."""
    front, body = front_matter(text)
    cause = str(front["cause"]) if front.get("cause") else None
    return [Chunk(path.name, headings, passage, cause=cause, extra=cause or "") for headings, passage in split(body)]


def _playbook(path: Path, text: str, known: dict[str, str]) -> list[Chunk]:
    """A card of what the cause means and what logs print, then the passages of the body, all under its title.

    Broken front matter is another tool's complaint.
    """
    front, body = front_matter(text)
    title = str(front.get("title") or path.stem.replace("_", " "))
    cause = str(front["cause"]) if front.get("cause") else None
    slug = f"{path.parent.name}/{path.stem}"
    examples = [
        str(line)
        for signature in front.get("signatures") or []
        if isinstance(signature, dict) and not signature.get("harmless")
        for line in signature.get("matches") or []
    ]
    card = " ".join(filter(None, (known.get(cause or "", ""), *(_line(e) for e in examples[:CARD_LINES]))))
    extra = " ".join([cause or "", *examples[CARD_LINES:]])
    found = [Chunk(slug, [title], card or title, "playbook", cause, extra)]
    for headings, passage in split(body):
        headings = [title, *(h for h in headings if h != title)]
        found.append(Chunk(slug, headings, passage, "playbook", cause, cause or ""))
    return found


def _line(example: str) -> str:
    return example if len(example) <= CARD_WIDTH else example[:CARD_WIDTH].rsplit(" ", 1)[0]


def front_matter(text: str) -> tuple[dict[str, Any], str]:
    """The mapping between `---` lines at the start of a text, and the rest; an empty one where there is none."""
    if not text.startswith("---\n") or "\n---\n" not in text[4:]:
        return {}, text
    import yaml

    front, body = text[4:].split("\n---\n", 1)
    if len(front) > FRONT_LIMIT or front.count("[") + front.count("{") > DEEPEST:
        return {}, body  # the parser recurses in C: deep nesting ends the process
    try:
        data = yaml.load(front, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        data = None
    return (data if isinstance(data, dict) else {}), body


def meanings(folder: Path) -> dict[str, str]:
    """Cause id -> what is wrong, from `causes.yaml` (two-space indented `id: text` lines)."""
    try:
        return dict(_CAUSE.findall((folder / "causes.yaml").read_text(encoding="utf-8")))
    except OSError:
        return {}
