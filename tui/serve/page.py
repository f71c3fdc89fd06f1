"""The page: a terminal and nothing else, with nothing fetched from anywhere but here."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

# The only files there are: of textual-serve's, which has xterm.js, its styles and a font.
FILES = {
    "textual.js": ("js/textual.js", "text/javascript"),
    "xterm.css": ("css/xterm.css", "text/css"),
    "mono.ttf": ("fonts/RobotoMono-VariableFont_wght.ttf", "font/ttf"),
    "mono-italic.ttf": ("fonts/RobotoMono-Italic-VariableFont_wght.ttf", "font/ttf"),
}

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>doctor</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/xterm.css">
<script src="/static/textual.js"></script>
<style>
@font-face { font-family: "Roboto Mono"; font-style: normal; font-weight: 100 700; src: url("/static/mono.ttf"); }
@font-face { font-family: "Roboto Mono"; font-style: italic; font-weight: 100 700;
  src: url("/static/mono-italic.ttf"); }
html, body { margin: 0; height: 100%; overflow: hidden; background: #121212; color: #e0e0e0;
  font: 16px "Roboto Mono", monospace; }
.textual-terminal { position: absolute; inset: 0; }
.bar { position: absolute; left: 0; right: 0; bottom: 0; padding: 8px 16px; background: #262626; z-index: 10; }
.bar a { color: inherit; }
#opening { z-index: 5; }
body.-first-byte #opening, body.-closed #opening { display: none; }
#ended { display: none; }
body.-closed #ended { display: block; }
</style>
</head>
<body>
<div id="terminal" class="textual-terminal" data-session-websocket-url="ws://@HOST@/ws" data-font-size="16"></div>
<div class="bar" id="opening">Opening doctor.</div>
<div class="bar" id="ended">This chat has ended. <a href="/">Begin again</a></div>
<noscript><div class="bar">The terminal needs JavaScript, of this page alone.</div></noscript>
</body>
</html>
"""


def page(host: str) -> str:
    """The page for a browser that asked at `host`, which the door has checked."""
    return _PAGE.replace("@HOST@", host)


def file(name: str) -> tuple[Path, str] | None:
    """Path and media type of a file of the page; None where there is none by that name."""
    spec = find_spec("textual_serve")
    if name not in FILES or spec is None or spec.origin is None:
        return None
    path, kind = FILES[name]
    return Path(spec.origin).parent / "static" / path, kind
