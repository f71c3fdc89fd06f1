"""The door to the page: any text comes out as text, in both parsers, and nothing else comes out."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traindoctor.agent.telling.page.page_markup import clipped, idents, is_ident, joined, linked, number, shown, tag

from tests.telling.page.parsed import Page

ANY = st.text(st.characters(), max_size=60) | st.text(st.sampled_from("<>&\"'`=/ \x00\x1b\ufffe\u202e]]-!?#;E1[],"))


@given(ANY, ANY)
def test_any_text_stays_text(inside: str, attribute: str) -> None:
    page = tag("p", inside, class_=attribute).text
    element = ET.fromstring(page)
    assert (element.tag, set(element.attrib), len(element)) == ("p", {"class"}, 0)
    assert (element.text or "") == shown(inside)
    parsed = Page(page)
    assert [e[0] for e in parsed.elements] == ["p"] and "".join(t for _, t in parsed.texts) == shown(inside)
    page.encode("utf-8")


@given(ANY)
def test_what_is_shown_is_shown_once(text: str) -> None:
    assert shown(shown(text)) == shown(text)


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "\u202egnp.exe", "a\u00adb", "\U000e0041", "\ud800", "\x00", "a\rb", "\ufffe", "\u2028"]
)
def test_what_cannot_be_seen_is_made_visible(text: str) -> None:
    assert "\\" in shown(text) and shown(text).isascii()


def test_elements_nest_and_nothing_is_escaped_twice() -> None:
    assert joined(tag("b", "a<b"), " & ").text == "<b>a&lt;b</b> &amp; "
    assert tag("p", tag("b", "x"), None, "y", id=None, class_="z").text == '<p class="z"><b>x</b>y</p>'
    assert tag("meta", name="a").text == '<meta name="a" />'


@given(st.floats(-1e6, 1e6))
def test_coordinates_are_short_and_near(value: float) -> None:
    assert math.isclose(float(number(value)), value, abs_tol=0.0051) and "e" not in number(value)


def test_clipping_says_exactly_what_is_missing() -> None:
    assert clipped("abc", 3) == "abc" and clipped("a" * 5_003, 3) == "aaa ... (5,000 more characters)"


@given(ANY, st.sets(st.sampled_from(["E1", "E12", "E3"])))
def test_links_lead_only_to_what_is_there(text: str, known: set[str]) -> None:
    for made in (linked(text, known), idents(text, known)):
        root = ET.fromstring(f"<p>{made.text}</p>")
        assert "".join(root.itertext()) == shown(text)
        assert {a.get("href") for a in root.iter("a")} <= {f"#{k}" for k in known}


def test_citations_are_linked() -> None:
    made = linked("It fell. [E1, E2 and 3 more] E1", {"E1"}).text
    assert made == 'It fell. <span class="cites">[<a href="#E1">E1</a>, E2 and 3 more]</span> E1'
    assert is_ident("E12") and not is_ident("E1 onclick=x") and not is_ident("plot1")
