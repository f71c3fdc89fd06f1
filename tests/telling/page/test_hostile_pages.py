"""Whatever a report or a run holds, the page has only elements and attributes of its own, and stays small."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.report import Report, RootCause
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.telling.page.page_document import as_html

from tests.sample import HOSTILE, sample
from tests.telling.page.parsed import checked, drawings

ATTACKS = [
    "<script>alert(1)</script>", "</style><script>alert(1)</script>", "]]><svg onload=alert(1)>", "<!-- x -->", "-->",
    '" onmouseover="alert(1)', "' onload='alert(1)' x='", "javascript:alert(1)", "<img src=x onerror=alert(1)>",
    "&lt;script&gt;", "&#x3c;script&#x3e;", "<a href=javascript:alert(1)>x</a>", "</title></head><body><h1>x",
    "\x00\x01\x1b[2J\x1b]8;;http://x\x07", "\u202egnp.exe\u202c", "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "\ud800\udfff"[:1], "\ufffe\uffff", "<?xml version='1.0'?>", "<!DOCTYPE x [<!ENTITY a 'b'>]>&a;", "E1\" id=\"x", "[E1, E2]",
    "{{7*7}} ${x}", "data:text/html,<script>", "\u2028\u2029\r\n\x85", "a" * 5_000, "\U000e0041\u00ad",
]  # fmt: skip


def everywhere(text: str) -> Report:
    """A report with a text in every place that takes one."""
    data = json.loads(sample().to_json())
    data |= {
        "restart": {
            "advice": "restart_excluding", "from_checkpoint": text, "lost_steps": 3, "lost_gpu_hours": 1.5, "exclude": [text],
            "choices": [{"checkpoint": text, "step": 7, "resume": [text], "why": text, "lost_gpu_hours": 1e300}],
            "before": [{"session": text, "time": text, "cause": text, "status": "likely", "same": ["node"], "nodes": [text]}],
        },
    }  # fmt: skip
    data["fixes"][0] |= {"risk": text, "by_hand": [{"text": text, "where": text, "why": text}], "patches": ["P1", "P2"]}
    data["patches"] = [
        {"id": p, "file": text, "sha256": "", "diff": f"--- a/{text}\n+++ b/{text}\n@@ -1 +1 @@\n-{text}\n+{text}\n",
         "title": text, "why": text, "risk": text, "verify": text, "edits": [text], "by": by}
        for p, by in (("P1", "playbook"), ("P2", "model"))
    ]  # fmt: skip
    data["evidence"] += [
        {"id": "E5", "key": text, "value": {text: [text]}, "kind": "command", "argv": ["x", text], "text": text},
        {"id": text, "key": "x.y", "kind": "binary", "file": text, "member": text, "host": text, "variant": text, "time": text},
        {"id": text, "key": "x.y", "kind": "asked", "text": text},
        {"id": "E6", "key": "a.b", "kind": "document", "file": text, "member": text, "text": text},
    ]  # fmt: skip
    data["summary"].append({"text": text, "cites": ["E5", text, "E6"]})
    data["chain"].append({"evidence": text, "role": "symptom", "text": text})
    data["differential"].append(
        {"id": text, "title": text, "confidence": 0.01, "supported_by": [text], "missing": [text]}
    )
    data["meta"] |= {"model": text, "model_calls": 2, "degraded": [text], "history": [text], "version": text}
    return Report.model_validate(_replaced(data, text))


def _replaced(value: Any, text: str, name: str = "") -> Any:
    """Every other free text of the report given way to this one."""
    if isinstance(value, dict):
        return {k: _replaced(v, text, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_replaced(v, text, name) for v in value]
    free = name in {
        "question", "root", "title", "why", "verify", "tool", "session", "commands", "next_steps", "searched", "host",
    }  # fmt: skip
    return text if free and isinstance(value, str) else value


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_a_text_everywhere_is_text_everywhere(attack: str) -> None:
    page, _ = checked(as_html(everywhere(attack)))
    benign, _ = checked(as_html(everywhere("word")))
    assert {e for e, _ in page.elements} <= {e for e, _ in benign.elements}
    assert set(page.values("class")) <= set(benign.values("class")) | {"same"}  # a row of a diff
    ours = {i for i in benign.values("id") if i != "word"}
    assert set(page.values("id")) <= ours | {"E1"}


@settings(max_examples=25)
@given(st.text(st.characters(), max_size=40))
def test_any_text_everywhere(text: str) -> None:
    checked(as_html(everywhere(text)))


@pytest.mark.parametrize("status", ["confirmed", "likely", "hypothesis", "healthy", "insufficient_evidence", "answer"])
def test_an_empty_report_of_every_status(status: str) -> None:
    page, _ = checked(as_html(Report.model_validate({"status": status, "root_cause": RootCause(id=None)})))
    assert len(page.text) < 12_000
    page, _ = checked(as_html(sample(status=status)))
    assert "bfloat16" in page.said()


def test_ten_thousand_pieces_of_evidence_stay_small(tmp_path: Path) -> None:
    lines = [f"rank {n} said {chr(97 + n % 26) * (n % 40)} {HOSTILE}" * 3 for n in range(10_000)]
    (tmp_path / "train.log").write_text("\n".join(lines))
    offset, found = 0, []
    for n, line in enumerate(lines, 1):
        found.append({"id": f"E{n}", "key": "log.line", "value": 10**400 if n % 2 else -1e308, "kind": "line", "line": n,
                      "file": "train.log", "offset": offset, "text": line, "rank": n})  # fmt: skip
        offset += len(line.encode()) + 1
    ids = [e["id"] for e in found]
    report = sample(
        evidence=found, summary=[{"text": "x" * 9_000, "cites": ids}, *[{"text": "x" * 9_000, "cites": ids[:9]}] * 300],
        chain=[{"evidence": i, "role": "cascade", "text": "y" * 5_000} for i in ids[:500]],
        differential=[{"id": f"c.{n}", "confidence": 0.0, "supported_by": ids, "contradicted_by": ids[:9]} for n in range(9)],
        checked=[{"tool": f"t{n}", "outcome": "failed", "why": "z" * 3_000} for n in range(500)],
        next_steps=["<" * 4_000] * 500,
        fixes=[{"title": "&" * 5_000, "why": "<" * 5_000, "commands": ["\"" * 9_000] * 30, "patches": ["P1"]}] * 20,
        patches=[{"id": "P1", "file": "a", "sha256": "", "diff": "\n".join(["+" + "<" * 300] * 10_000)}],
    )  # fmt: skip
    page, _ = checked(as_html(report, Workspace([tmp_path], live=False)))
    said = page.said()
    assert re.search(r"9,\d{3} more lines of this diff", said)
    assert re.search(r"\d\d more are in the JSON report", said) and "more pieces of evidence" in said


LOG = """step {n} loss {loss} grad_norm {norm}"""


@pytest.mark.parametrize(
    ("loss", "norm"),
    [("nan", "inf"), ("1e308", "-1e308"), ("0.0", "0.0"), ("-1e-320", "1e-320"), ("2.5", "nan"), ("inf", "-inf")],
)
def test_curves_of_odd_numbers(tmp_path: Path, loss: str, norm: str) -> None:
    odd = "\n".join(LOG.format(n=n, loss=loss if n % 3 else "1.5", norm=norm) for n in range(200))
    (tmp_path / "train.log").write_text(odd)
    page, tree = checked(as_html(sample(evidence=[], summary=[], chain=[]), Workspace([tmp_path], live=False)))
    assert len(drawings(tree)) >= 1
    assert "nan" not in " ".join(page.values("d") + page.values("x") + page.values("y")).lower()
    assert "inf" not in " ".join(page.values("d") + page.values("x") + page.values("y")).lower()


def test_names_of_files_and_variants_are_text(tmp_path: Path) -> None:
    for n in range(8):
        (tmp_path / f"<b onclick=x>rank{n}\u202e&.log").write_text(
            "\n".join(f"step {s} loss {2 + n}" for s in range(50))
        )
    page, tree = checked(as_html(sample(), Workspace([tmp_path], live=False)))
    assert len(drawings(tree)) == 1
    assert "<b onclick=x>rank" in page.said() or "8 curves" in "".join(tree.itertext())
