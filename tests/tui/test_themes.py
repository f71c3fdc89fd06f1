"""Themes of our own: text that can be read on every ground, a choice that is remembered."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from textual.color import Color
from traindoctor.tui import themes

TEXTS = (
    "foreground", "text", "text-muted", "text-disabled", "foreground-muted", "accent", "error", "success", "warning",
    "primary", "text-accent", "text-error", "text-success", "text-warning", "text-primary", "footer-key-foreground",
    "footer-description-foreground", "link-color", "markdown-h1-color", "markdown-h4-color", "border-blurred",
)  # fmt: skip
GROUNDS = ("background", "surface", "panel")


def contrast(one: str, other: str) -> float:
    """WCAG 2: (lighter + 0.05) / (darker + 0.05) of the relative luminances."""

    def light(text: str) -> float:
        parts = (c / 255 for c in Color.parse(text).rgb)
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_computed_as_the_standard_says() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", themes.OURS, ids=lambda t: t.name)
def test_all_text_stands_out_from_every_ground(theme: themes.Theme) -> None:
    colours = theme.to_color_system().generate()
    least = 7.0 if theme is themes.CONTRAST else 4.5
    pairs = {f"{t} on {g}": contrast(colours[t], colours[g]) for t, g in product(TEXTS, GROUNDS)}
    for what in ("block-cursor", "input-selection", "screen-selection", "input-cursor"):
        pairs[what] = contrast(colours[f"{what}-foreground"], colours[f"{what}-background"])
    assert {k: round(v, 2) for k, v in pairs.items() if v < least} == {}


def test_a_choice_is_remembered_for_its_owner_alone_beside_what_else_is(tmp_path: Path) -> None:
    assert themes.remembered(tmp_path) == themes.remembered(None) == "doctor-dark"
    (tmp_path / themes.FILE).write_text('{"theme": "gone", "of a later version": [1]}')
    assert themes.remembered(tmp_path) == "doctor-dark"
    themes.remember(tmp_path, "doctor-light")
    assert themes.remembered(tmp_path) == "doctor-light"
    assert '"of a later version": [1]' in (tmp_path / themes.FILE).read_text()
    assert (tmp_path / themes.FILE).stat().st_mode & 0o777 == 0o600
    for damaged in ("[1]", "{", "", '{"theme": {}}', "[" * 5000):
        (tmp_path / themes.FILE).write_text(damaged)
        assert themes.remembered(tmp_path) == "doctor-dark"


def test_words_name_themes_and_a_key_goes_round_ours() -> None:
    assert themes.named("light") == themes.named("doctor-light") == "doctor-light"
    assert themes.named("nord") == "nord" and themes.named("ansi-dark") == "ansi-dark" and themes.named("no such") == ""
    seen = ["nord"]
    for _ in range(4):
        seen.append(themes.after(seen[-1]))
    assert seen == ["nord", "doctor-dark", "doctor-light", "doctor-contrast", "doctor-dark"]
