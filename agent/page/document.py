"""The page as a whole: what comes in which order, and the head that forbids everything but its own style."""

from __future__ import annotations

from collections.abc import Sequence

from ..nearby import nearby
from ..outline import Outline, outline
from ..reading.roles import PAGE
from ..redact import Redactor
from ..report import Report
from ..workspace import Workspace
from .context import Window, windows
from .evidence import Shown, evidence, shown
from .figures import drawn, figures
from .markup import Html, clipped, raw, tag
from .others import asked_beside
from .plot import Figure
from .repair import again, fixes
from .secrets import without_secrets
from .story import chain, rivals, verdict, words
from .style import POLICY, STYLE

MARKER = PAGE.decode()
_OWN = {"Evidence", "How it went", "Also considered", "What to do", "Starting again"}  # made here in another way


def as_html(report: Report, workspace: Workspace | None = None, others: Sequence[Report] = ()) -> str:
    """A report as one page with nothing outside of it: no script, no link but to itself, no secret.

    Args:
        workspace: the run's files, for the lines around the evidence and for the plots; without it both are left out.
        others: of the same conversation, in their order; they are told in short, below.
    """
    redactor, found = Redactor(), shown(report)
    seen = windows(workspace, found.cited) if workspace else []
    spans = list({id(w.span): w.span for w in seen}.values())
    told = found.told
    beyond = [*told[len(found.cited) :], *(e for r in others for e in r.evidence)]
    further = nearby(workspace, beyond) if workspace else ()
    part = report.model_copy(update={"evidence": told})
    [clean, *beside], texts = without_secrets([part, *others], [*(s.text for s in spans), *further], redactor)
    for span, text in zip(spans, texts, strict=False):
        span.text = text
    found = found.exchanged({id(e): c for e, c in zip(told, clean.evidence, strict=True)})
    plots = figures(report, workspace, redactor) if workspace else []
    return _page(clean, found, seen, plots, beside)


def _page(report: Report, found: Shown, seen: list[Window], plots: list[Figure], beside: list[Report]) -> str:
    said = outline(report)
    parts = _parts(report, said, found, seen, plots)
    parts.append(("others", "Also asked", asked_beside(beside, found.anchors)))
    links = [tag("a", title, href=f"#{ident}") for ident, title, content in parts if content]
    sections = [tag("section", tag("h2", title), content, id=ident) for ident, title, content in parts if content]
    body = tag("body", verdict(report, said), tag("nav", *links), tag("main", *sections), _footer(report, said, seen))
    title = clipped(f"{said.verdict} ({said.certainty})", 200)
    head = tag(
        "head", tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"), tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content="doctor"), tag("title", title), tag("style", raw(STYLE)),
    )  # fmt: skip
    return f"{MARKER}{tag('html', head, body, lang='en').text}\n"


def _parts(
    report: Report, said: Outline, found: Shown, seen: list[Window], plots: list[Figure]
) -> list[tuple[str, str, Html | None]]:
    """Sections in order, each with its anchor and title; those without content are None."""
    known = found.anchors
    titled = {s.title: s for s in said.sections}
    first = titled.get("What happened") or titled.get("Answer")
    parts: list[tuple[str, str, Html | None]] = []
    if first is not None:
        parts.append(("story", first.title, words(first, known)))
    curves = tag("div", *map(drawn, plots), class_="plots") if plots else None
    parts += [
        ("curves", "Curves", curves),
        ("chain", "How it went", chain(report, known)),
        ("fixes", "What to do", fixes(report)),
        ("again", "Starting again", again(report.restart, titled.get("Starting again"))),
        ("evidence", "Evidence", evidence(found, seen) if report.evidence else None),
        ("rivals", "What was ruled out" if report.status == "confirmed" else "Also considered", rivals(report, known)),
    ]
    rest = [s for s in said.sections if s is not first and s.title not in _OWN]
    return [*parts, *((f"more{n}", s.title, words(s, known)) for n, s in enumerate(rest, 1))]


def _footer(report: Report, said: Outline, seen: list[Window]) -> Html:
    lines = [tag("p", clipped(line, 1_000)) for line in said.footer[:40]]
    without = [] if seen or not report.evidence else [tag("p", "The lines around the evidence could not be read.")]
    return tag("footer", tag("hr"), *lines, *without)
