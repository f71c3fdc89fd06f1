"""The one door to the page: text becomes inert and escaped here, elements are made by name from code alone.

What comes out is both HTML and well-formed XML, so that a strict parser can check all of it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...safety.fences import inert, one_line

# Beside what `sanitize` takes: halves of characters, what XML does not allow, marks that show nothing.
_UNSEEN = re.compile("[\ud800-\udfff\ufffe\uffff\u00ad\u180e\ufff9-\ufffb\U000e0000-\U000e007f]")
_VOID = frozenset(("meta", "br", "hr"))


@dataclass(frozen=True, slots=True)
class Html:
    """A piece of the page that is safe as it stands. Only `tag`, `raw` and `joined` make it."""

    text: str


def shown(text: str) -> str:
    """Text for the page, not escaped yet: whatever is invisible or steers its neighbours is made visible."""
    return _UNSEEN.sub(lambda m: m[0].encode("unicode_escape", "surrogatepass").decode(), inert(text))


def clipped(text: str, limit: int) -> str:
    """The start of a text, and how many characters were left out."""
    more = len(text) - limit
    return text if more <= 0 else f"{text[:limit]} ... ({more:,} more characters)"


def tag(name: str, /, *inside: Html | str | None, **attributes: str | float | None) -> Html:
    """An element.

    Args:
        name: of the element, a word of our own.
        inside: elements and texts; None is left out.
        attributes: a trailing underscore is dropped and others become hyphens (`class_`, `aria_label`); None is left
            out, a number gets two decimals at most.
    """
    named = "".join(f' {_name(n)}="{_value(v)}"' for n, v in attributes.items() if v is not None)
    if name in _VOID:
        return Html(f"<{name}{named} />")
    return Html(f"<{name}{named}>{joined(*inside).text}</{name}>")


def joined(*pieces: Html | str | None, between: str = "") -> Html:
    """Pieces one after the other; strings are escaped."""
    parts = [p.text if isinstance(p, Html) else html.escape(shown(p)) for p in pieces if p is not None]
    return Html(html.escape(between).join(parts))


def within(pieces: Sequence[Html], budget: int) -> tuple[list[Html], int]:
    """The pieces from the first on that fit into so many bytes, and how many are left out."""
    kept = []
    for piece in pieces:
        budget -= len(piece.text.encode())
        if budget < 0:
            break
        kept.append(piece)
    return kept, len(pieces) - len(kept)


def raw(text: str) -> Html:
    """A text of our own that is markup already; never anything of a run or a report."""
    return Html(text)


def number(value: float) -> str:
    """A coordinate with two decimals at most."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _name(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    return html.escape(shown(one_line(value))) if isinstance(value, str) else number(value)


# ----------
# The style of the page: one block, allowed by its own hash; light, dark, narrow and printed.

STYLE = """
:root{color-scheme:light dark;--ink:#1f2328;--soft:#5b636d;--line:#d5d9de;--paper:#fff;--card:#f6f7f9;
--accent:#b93a0a;--tint:#fdefe7;--add:#e3f4e6;--del:#fbe5e3;
--s0:#1d4ed8;--s1:#0f766e;--s2:#7c3aed;--s3:#7a5108;--s4:#b0135f;--s5:#47556a;
--mono:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;--sans:system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
@media (prefers-color-scheme:dark){:root{--ink:#e3e6ea;--soft:#9aa3ad;--line:#3a4048;--paper:#15181c;--card:#1d2126;
--accent:#ff9a62;--tint:#3a2418;--add:#173020;--del:#3c1f1d;
--s0:#7fa8ff;--s1:#4fc7ba;--s2:#bb9bff;--s3:#d9ac58;--s4:#f58bbd;--s5:#a9b7c9}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:70rem;padding:1.2rem 1rem 4rem;background:var(--paper);color:var(--ink);
font:1rem/1.5 var(--sans);overflow-wrap:anywhere}
h1{font-size:1.7rem;line-height:1.25;margin:.3rem 0 .8rem}
h2{font-size:1.2rem;margin:2.4rem 0 .6rem;padding-top:.5rem;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:0 0 .4rem}
h4{font-size:.95rem;margin:.6rem 0 .3rem}
p{margin:.4rem 0}
a{color:var(--accent)}
ul,ol{margin:.3rem 0;padding-left:1.3rem}
ul.plain{list-style:none;padding-left:0}
ul.plain li{margin:.35rem 0}
small{display:block;font-size:.85rem}
small,.note,.who,footer{color:var(--soft)}
header{border-left:.35rem solid var(--accent);padding:.2rem 0 .2rem 1rem}
.status{display:inline-block;border:1px solid var(--accent);color:var(--accent);border-radius:1rem;
padding:0 .7rem;font-weight:600}
.status.confirmed{background:var(--accent);color:var(--paper)}
.status.healthy,.status.answer{border-color:var(--soft);color:var(--ink)}
.status.hypothesis,.status.insufficient-evidence{border-style:dashed}
dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.15rem 1rem;margin:.4rem 0}
dt{color:var(--soft)}
dd{margin:0}
dd ul{padding-left:0;list-style:none;margin:0}
nav{margin:1rem 0 0;font-size:.9rem}
nav a{margin-right:1rem;white-space:nowrap}
article{background:var(--card);border:1px solid var(--line);border-radius:.4rem;padding:.7rem .9rem;margin:.7rem 0}
code,.lines,.diff,.cmd,.said{font-family:var(--mono);font-size:.85rem;unicode-bidi:isolate}
.facts{list-style:none;padding:0;margin:0 0 .4rem}
b:target,th:target{background:var(--tint);outline:2px solid var(--accent)}
.lines,.diff,.cmd{background:var(--paper);border:1px solid var(--line);border-radius:.3rem;padding:.4rem .5rem;
margin:.4rem 0;overflow-x:auto;direction:ltr;text-align:left;line-height:1.45}
.row,.diff div{white-space:pre-wrap;min-height:1.45em;unicode-bidi:isolate}
.no,.hit{color:var(--soft);user-select:none;white-space:pre}
.cited{background:var(--tint);box-shadow:inset .2rem 0 var(--accent)}
.cited .said{font-weight:600}
.cited .hit{color:var(--accent)}
.cmd{white-space:pre-wrap;user-select:all}
.cmd::before{content:"$ ";color:var(--soft)}
.cmd.text::before{content:none}
.add{background:var(--add)}
.del{background:var(--del)}
.hunk{color:var(--soft)}
.patch{border-top:1px dashed var(--line);margin-top:.6rem}
.warn{color:var(--accent);font-weight:600}
.chain{list-style:none;padding-left:1rem;border-left:2px solid var(--line)}
.chain li{margin:.5rem 0;position:relative}
.chain li::before{content:"";position:absolute;left:-1.4rem;top:.45rem;width:.7rem;height:.7rem;border-radius:50%;
background:var(--soft)}
.chain .cause::before,.chain .trigger::before{background:var(--accent)}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.88rem;width:100%}
th,td{text-align:left;vertical-align:top;padding:.25rem .6rem .25rem 0;border-bottom:1px solid var(--line)}
th{font-weight:600;white-space:nowrap}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1.4rem 1.5rem}
figure{margin:0;max-width:40rem}
.plot{overflow-x:auto}
svg{width:100%;min-width:21rem;height:auto;display:block}
svg text{font:12px var(--sans);fill:var(--ink)}
svg .tick{fill:var(--soft)}
svg .end{text-anchor:end}
svg .middle{text-anchor:middle}
.grid{stroke:var(--line);stroke-width:1}
.axis{stroke:var(--soft);stroke-width:1}
.curve{fill:none;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round;stroke:var(--s0)}
.curve.s1{stroke:var(--s1)}
.curve.s2{stroke:var(--s2)}
.curve.s3{stroke:var(--s3)}
.curve.s4{stroke:var(--s4)}
.curve.s5{stroke:var(--s5)}
.curve.good,.curve.median{stroke:var(--soft)}
.curve.good{stroke-dasharray:5 3}
.curve.small{stroke:var(--soft);stroke-width:1}
.band{fill:var(--soft);fill-opacity:.25;stroke:none}
.part{fill:var(--soft);fill-opacity:.18}
svg .label.s0{fill:var(--s0)}
svg .label.s1{fill:var(--s1)}
svg .label.s2{fill:var(--s2)}
svg .label.s3{fill:var(--s3)}
svg .label.s4{fill:var(--s4)}
svg .label.s5{fill:var(--s5)}
svg .label.good,svg .label.median{fill:var(--soft)}
.gap{fill:var(--accent);fill-opacity:.18}
.mark{stroke:var(--accent);stroke-width:1.3}
.mark.anomaly{stroke-dasharray:3 3}
svg .gapname,svg .markname{fill:var(--accent)}
svg .markname.failure{font-weight:600}
@media (max-width:34rem){body{padding:.8rem .7rem 3rem}h1{font-size:1.35rem}dl{grid-template-columns:minmax(0,1fr)}
dt{margin-top:.3rem}th{white-space:normal}}
@media print{:root{color-scheme:light}nav{display:none}body{max-width:none;padding:0;font-size:.85rem}
article,figure,.row{break-inside:avoid}h2,h3{break-after:avoid}.lines,.diff{overflow:visible}
details::details-content{content-visibility:visible}}
"""

_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'"


# ----------
# Mentions of evidence in a sentence as links within the page, where the page has that evidence.

_IDENT = re.compile(r"\bE\d{1,9}\b")
_GROUP = re.compile(r"\[E\d{1,9}(?:, E\d{1,9})*(?: and \d+ more)?\]")


def linked(text: str, known: Collection[str]) -> Html:
    """A text with its citations in brackets (`[E1, E2 and 3 more]`) linked."""
    parts: list[Html | str] = []
    at = 0
    for group in _GROUP.finditer(text):
        parts += [text[at : group.start()], tag("span", idents(group[0], known), class_="cites")]
        at = group.end()
    return joined(*parts, text[at:])


def idents(text: str, known: Collection[str]) -> Html:
    """A text of ids with each that the page has linked."""
    parts: list[Html | str] = []
    at = 0
    for found in _IDENT.finditer(text):
        ident = found[0]
        parts += [text[at : found.start()], tag("a", ident, href=f"#{ident}") if ident in known else ident]
        at = found.end()
    return joined(*parts, text[at:])


def is_ident(text: str) -> bool:
    """Whether a text may stand as an anchor: an id of evidence and nothing else."""
    return _IDENT.fullmatch(text) is not None
