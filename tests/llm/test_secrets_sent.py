"""Planted secrets of every kind in a run, a model that reads all of it: none is among the bytes that arrive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from traindoctor.agent import session
from traindoctor.agent.events import ReportReady
from traindoctor.agent.llm.settings import ModelSettings
from traindoctor.agent.workspace import Workspace
from traindoctor.evals.endpoint import Say, ScriptedEndpoint

from tests.redaction_corpus import planted

EACH = 40  # texts to a file
END = {"cause": "none.insufficient_evidence", "sentences": []}


def test_no_planted_secret_reaches_the_server(tmp_path: Path) -> None:
    corpus = list(planted())
    assert len(corpus) >= 300 and len({p.kind for p in corpus}) >= 30
    run = tmp_path / "run"
    run.mkdir()
    names = []
    for start in range(0, len(corpus), EACH):
        name = f"rank{start // EACH}.log"
        names.append(name)
        lines = [f"step {n} loss 2.{n}\n{p.text}" for n, p in enumerate(corpus[start : start + EACH])]
        (run / name).write_text("\n".join(lines) + "\nRuntimeError: died\n", encoding="utf-8")

    def read_on(body: dict[str, Any], number: int) -> Say:
        """Every line of every file, twelve windows at a time, and searches for what secrets are called."""
        windows = [("read_lines", {"file": f, "start": s, "count": 60}) for f in names for s in range(1, 1500, 60)]
        searches = [
            ("grep_logs", {"pattern": w, "limit": 200}) for w in ("(?i)key", "(?i)token", "(?i)passw", "://", "=")
        ]
        calls = [*searches, *windows][(number - 1) * 12 : number * 12]
        return Say(calls=calls) if calls else Say(calls=[("diagnosis", END)])

    with ScriptedEndpoint(read_on) as server:
        model = ModelSettings("scripted", server.url, "k", window=1_000_000, max_calls=60, max_tokens=0)
        events = list(session.diagnose(Workspace([run]), "why did it die?", state=tmp_path / "state", model=model))
    assert isinstance(events[-1], ReportReady)
    assert len(server.requests) > 10 and events[-1].report.meta.redacted >= 300
    sent = "\n".join(_texts(r.body) for r in server.requests) + "".join(r.raw.decode() for r in server.requests)
    shown = sum(p.text.split("\n")[0][:12] in sent for p in corpus)
    assert shown > len(corpus) // 3, "the texts around the secrets are read"
    left = [(p.kind, p.way) for p in corpus for s in p.secrets if s in sent]
    assert not left


def _texts(body: dict[str, Any]) -> str:
    return "\n".join(
        f"{m.get('content')}\n{json.dumps(m.get('tool_calls', ''), ensure_ascii=False)}" for m in body["messages"]
    )
