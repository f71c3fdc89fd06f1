"""The bundled incident as a page, compared with the page that is kept: what people see changes only on purpose.

`python -m tests.telling.page.test_golden_page` writes it anew.
"""

from __future__ import annotations

import re
from pathlib import Path

from traindoctor.agent.core.report import Report
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.telling.page.page_document import as_html

from tests.telling.page.parsed import checked, drawings

HERE = Path(__file__).resolve().parent
RUN = HERE.parents[2] / "evals" / "demo" / "files"
KEPT = HERE / "demo.html"


def made() -> str:
    """The page of a report that is kept beside the run's files, as they are bundled."""
    report = Report.model_validate_json((HERE / "demo_report.json").read_text(encoding="utf-8"))
    return as_html(report, Workspace([RUN], live=False))


def in_lines(page: str) -> str:
    """The page without its style, one element a line."""
    page = re.sub(r"<style>.*?</style>", "<style></style>", page, flags=re.DOTALL)
    page = re.sub(r"style-src &#x27;[^;]*&#x27;", "style-src", page)
    return re.sub(r"(?<=>)(?=<(?!/))", "\n", page)


def test_the_page_of_the_bundled_incident() -> None:
    assert in_lines(made()) == KEPT.read_text(encoding="utf-8"), __doc__


def test_what_it_holds() -> None:
    page, tree = checked(made())
    said = page.said()
    assert page.of_class(tree, "status") == ["confirmed, 97%"] and "First failurerank 5, host node17" in said
    assert [e.get("aria-labelledby") for e in drawings(tree)] == [f"plot{n}-title plot{n}-text" for n in range(1, 5)]
    assert page.of_class(tree, "markname")[:2] == ["rank 5 last heard 4,120", "first failure 4,127"]
    hits = page.of_class(tree, "cited")
    assert any("NVRM: Xid (PCI:0000:ab:00): 79" in hit and hit.startswith(">     4") for hit in hits)
    assert page.of_class(tree, "del") == ["-checkpoint: {every: 100, keep: 5}\n"]
    assert page.of_class(tree, "add") == ["+checkpoint: {every: 50, keep: 5}\n"]
    assert "doctor apply 20260304-031500-a1b2c3 P1" in page.of_class(tree, "cmd")
    assert page.of_class(tree, "warn") == [
        "Proposed by the model, not by a tested recipe: read it, you are always asked."
    ]
    for words in (
        "By hand in launch.sh", "bash launch.sh --resume checkpoints/step-4100", "Leave out node17", "not read", "0.4",
        "2026-02-11", "Against it", "node17 lost a GPU once before", "clocks of two hosts", "clean",
    ):  # fmt: skip
        assert words in said
    titles = ["".join(h.itertext()) for h in tree.iter("h2")]
    assert titles == ["What happened", "Curves", "How it went", "What to do", "Starting again", "Evidence",
                      "What was ruled out", "Next steps", "Checked"]  # fmt: skip


def test_it_is_the_same_every_time_and_needs_nothing_else() -> None:
    page = made()
    assert page == made()
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", re.sub(r"<div class=\"row.*?</div>", "", page))
    assert "<script" not in page and "src=" not in page.replace("-src", "")


if __name__ == "__main__":
    KEPT.write_text(in_lines(made()), encoding="utf-8")
