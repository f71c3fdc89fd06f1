"""A page as two parsers see it, and what it may hold: only elements and attributes that are on this list."""

from __future__ import annotations

import base64
import hashlib
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

_COMMON = {"class", "id"}
ALLOWED: dict[str, set[str]] = {
    "html": {"lang"}, "head": set(), "style": set(), "br": set(), "hr": set(), "main": set(), "nav": set(),
    "meta": {"charset", "http-equiv", "content", "name"}, "a": {"href"}, "th": {"scope", *_COMMON},
    "svg": {"xmlns", "viewbox", "role", "aria-labelledby"}, "desc": {"id"},
    "path": {"class", "d"}, "line": {"class", "x1", "x2", "y1", "y2"},
    "rect": {"class", "x", "y", "width", "height"}, "text": {"class", "x", "y"},
    **dict.fromkeys(("title", "body", "header", "section", "footer", "article", "h1", "h2", "h3", "h4", "p", "span", "b", "strong", "code", "pre", "div", "ul", "ol", "li", "dl", "dt", "dd", "q", "small", "table", "tr", "td", "details", "summary", "figure", "figcaption"), _COMMON),
}  # fmt: skip


_INLINE = {"a", "b", "br", "code", "q", "small", "span", "strong"}


@dataclass
class Page(HTMLParser):
    """Elements with their attributes in order, and the text under each kind of element, as a browser takes them."""

    text: str
    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self.feed(self.text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in ("meta", "br", "hr"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"an instruction: {data}")

    def values(self, name: str) -> list[str]:
        """Values of one attribute, of all elements."""
        return [attributes[name] for _, attributes in self.elements if name in attributes]

    def said(self) -> str:
        """All text that a reader sees."""
        return "".join(text for tag, text in self.texts if tag not in ("style", "title", "desc"))

    def of_class(self, tree: ET.Element, name: str) -> list[str]:
        """The text of each element of a class, in the order of the page."""
        return ["".join(e.itertext()) for e in tree.iter() if name in (e.get("class") or "").split()]


def checked(text: str) -> tuple[Page, ET.Element]:
    """The page, after a look at everything that makes it safe.

    Returns: as a browser's parser and as an XML parser see it; the two agree on elements and attributes.
    """
    page, tree = Page(text), ET.fromstring(text)
    assert not page._open
    for tag, attributes in page.elements:
        assert tag in ALLOWED, f"<{tag}> is none of ours"
        assert set(attributes) <= ALLOWED[tag], f"<{tag} {sorted(attributes)}>"
    assert list(_names(tree)) == [(tag, sorted(attributes)) for tag, attributes in page.elements]
    for name in ("p", "h1", "h2", "h3", "h4", "small", "code", "pre"):  # a browser would close these before a block
        assert {e.tag for outer in tree.iter(name) for e in outer.iter()} <= {name, *_INLINE}
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    for link in page.values("href"):
        assert link[0] == "#" and link[1:] in ids, link
    for name in page.values("aria-labelledby"):
        assert set(name.split()) <= set(ids)
    style = [data for tag, data in page.texts if tag == "style"]
    digest = base64.b64encode(hashlib.sha256("".join(style).encode()).digest()).decode()
    policy = next(a["content"] for t, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in policy
    assert style[0].count("{") == style[0].count("}")
    assert "unsafe" not in policy and "url(" not in style[0] and "@import" not in style[0]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]", text)
    assert len(text.encode()) <= 3 << 20
    return page, tree


def _names(tree: ET.Element) -> Iterator[tuple[str, list[str]]]:
    for element in tree.iter():
        name = element.tag.rpartition("}")[2]
        attributes = [a.lower() for a in element.attrib] + (["xmlns"] if name == "svg" else [])
        yield name, sorted(attributes)


def drawings(tree: ET.Element) -> list[ET.Element]:
    """The plots of a page."""
    return [e for e in tree.iter() if e.tag.endswith("}svg")]


def points(path: str) -> list[tuple[float, float]]:
    """The corners of a path."""
    return [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path)]
