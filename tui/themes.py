"""How the chat looks: three themes of our own, those of Textual, and which one was chosen last.

All text of ours stands out from every ground by at least 4.5:1 (high contrast: 7:1), and nothing is told by colour
alone, so that each theme, NO_COLOR and a terminal with its own palette say the same.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from textual.app import App
from textual.theme import BUILTIN_THEMES, Theme

FILE = "chat.json"
LARGEST = 64_000  # bytes of what is remembered


def _theme(name: str, dark: bool, text: str, muted: str, grounds: tuple[str, str, str], accent: str, error: str,
           success: str, warning: str, chosen: str) -> Theme:  # fmt: skip
    background, surface, panel = grounds
    return Theme(
        name, primary=accent, secondary=muted, accent=accent, foreground=text, background=background, surface=surface,
        panel=panel, error=error, success=success, warning=warning, dark=dark, text_alpha=1.0,
        variables={
            "text": text, "text-muted": muted, "text-disabled": muted, "foreground-muted": muted,
            "text-primary": accent, "text-accent": accent, "text-secondary": muted, "text-error": error,
            "text-success": success, "text-warning": warning,
            "border": accent, "border-blurred": muted,
            "block-cursor-background": chosen, "block-cursor-foreground": text, "block-cursor-text-style": "bold",
            "block-cursor-blurred-background": panel, "block-cursor-blurred-foreground": text,
            "block-cursor-blurred-text-style": "none", "block-hover-background": panel,
            "input-selection-background": chosen, "input-selection-foreground": text,
            "input-cursor-background": text, "input-cursor-foreground": background,
            "screen-selection-background": chosen, "screen-selection-foreground": text,
            "footer-background": surface, "footer-foreground": text, "footer-key-foreground": accent,
            "footer-description-foreground": muted,
            "scrollbar": muted, "scrollbar-hover": text, "scrollbar-active": text, "scrollbar-background": surface,
            "scrollbar-background-hover": surface, "scrollbar-background-active": surface,
            "scrollbar-corner-color": surface,
            "link-color": accent, "link-background": "transparent", "link-style": "underline",
            "link-color-hover": background, "link-background-hover": accent,
            **{f"markdown-h{n}-color": accent if n < 3 else text for n in range(1, 7)},
            **{f"markdown-h{n}-background": "transparent" for n in range(1, 7)},
            "markdown-h1-text-style": "bold", "markdown-h2-text-style": "bold",
        },
    )  # fmt: skip


DARK = _theme(
    "doctor-dark", True, "#d6d9de", "#9aa1ab", ("#14171b", "#1a1e23", "#23282f"),
    accent="#7fb4e6", error="#f0867f", success="#83c492", warning="#dcb467", chosen="#2f4a66",
)  # fmt: skip
LIGHT = _theme(
    "doctor-light", False, "#1e2329", "#565e69", ("#fafaf8", "#f2f2ef", "#e8e8e4"),
    accent="#1b5a96", error="#a32a22", success="#246336", warning="#7a5200", chosen="#bcd5ee",
)  # fmt: skip
CONTRAST = _theme(
    "doctor-contrast", True, "#ffffff", "#d0d0d0", ("#000000", "#000000", "#1c1c1c"),
    accent="#5cd1ff", error="#ff9d94", success="#7dee8f", warning="#ffd75e", chosen="#00508f",
)  # fmt: skip

OURS = (DARK, LIGHT, CONTRAST)
_DEFAULT = DARK.name


def register(app: App[Any]) -> None:
    """Make our themes known to an application; before one of them is chosen."""
    for theme in OURS:
        app.register_theme(theme)


def names() -> list[str]:
    """Every theme that can be chosen: ours first, then those of Textual."""
    return [t.name for t in OURS] + sorted(BUILTIN_THEMES)


def named(word: str) -> str:
    """The theme that a word stands for: its name, or `dark`, `light`, `contrast` for ours; else empty."""
    known = names()
    return next((n for n in (word, f"doctor-{word}") if n in known), "")


def after(current: str) -> str:
    """The theme of ours that comes after another one."""
    ours = [t.name for t in OURS]
    return ours[(ours.index(current) + 1) % len(ours)] if current in ours else _DEFAULT


def remembered(state: Path | None) -> str:
    """The theme that was chosen last; the dark one where none was, or it is gone. Reads one small file."""
    return named(str(_kept(state).get("theme", ""))) or _DEFAULT


def remember(state: Path | None, name: str) -> None:
    """Keep a choice for later chats.

    Raises:
        OSError: the state folder cannot be written.
    """
    if state is None:
        return
    text = json.dumps({**_kept(state), "theme": name})
    with tempfile.NamedTemporaryFile("w", dir=state, prefix=f".{FILE}.", delete=False, encoding="utf-8") as f:
        try:
            f.write(text)  # a temporary file is its owner's alone (0600)
            f.flush()
            Path(f.name).replace(state / FILE)
        except OSError:
            Path(f.name).unlink(missing_ok=True)
            raise


def _kept(state: Path | None) -> dict[str, Any]:
    """What is remembered; nothing where it cannot be read or was damaged."""
    if state is None:
        return {}
    try:
        fd = os.open(state / FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as f:
            value = json.loads(f.read(LARGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
