"""Planted secrets of every kind in a run, a model that reads all of it: none is among the bytes that arrive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.llm.model_settings import ModelSettings
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session import session
from traindoctor.evals.endpoint import Say, ScriptedEndpoint

from tests.safety.redaction_corpus import TOKENS, Dice, planted

EACH = 40  # texts to a file
COUNT = 120  # lines to a call
AT_ONCE = 12  # calls to an answer
END = {"cause": "none.insufficient_evidence", "sentences": []}
IN_NAMES = ("hf", "aws", "github", "gitlab", "npm", "twilio")


def test_no_planted_secret_reaches_the_server(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    secrets = [*_logs(run), *_settings(run), *_named(run)]
    marks = [word for f in run.iterdir() for word in f.read_text("utf-8").split() if word.startswith("mark-")]
    assert len(secrets) >= 600 and len(marks) >= 450
    searches = [("grep_logs", {"pattern": w, "limit": 200}) for w in ("(?i)key", "(?i)token", "(?i)passw", "://", "=")]
    calls = [("list_files", {}), *searches, *_windows(run)]

    def read_on(body: dict[str, Any], number: int) -> Say:
        """Searches for what secrets are called, and every line of every file."""
        part = calls[(number - 1) * AT_ONCE : number * AT_ONCE]
        return Say(calls=part or [("diagnosis", END)])

    with ScriptedEndpoint(read_on) as server:
        model = ModelSettings("scripted", server.url, "k", window=1_000_000, max_calls=60, max_tokens=0)
        events = list(session.diagnose(Workspace([run]), "why did it die?", state=tmp_path / "state", model=model))
    assert isinstance(events[-1], ReportReady)
    assert len(server.requests) > len(calls) // AT_ONCE and events[-1].report.meta.redacted >= 300
    sent = "\n".join([_texts(r.body) for r in server.requests] + [r.raw.decode() for r in server.requests])
    unread = [mark for mark in marks if mark not in sent]
    assert not unread, "the lines beside all secrets are read"
    assert not [(kind, secret) for kind, secret in secrets if secret in sent]


def _windows(run: Path) -> list[tuple[str, dict[str, Any]]]:
    """Calls that read all lines of all files."""
    return [
        ("read_lines", {"file": f.name, "start": start, "count": COUNT})
        for f in sorted(run.iterdir())
        for start in range(1, f.read_text("utf-8").count("\n") + 2, COUNT)
    ]


def _logs(run: Path) -> list[tuple[str, str]]:
    """Every kind in the lines that runs print, each with a mark beside it."""
    corpus = list(planted())
    for start in range(0, len(corpus), EACH):
        lines = [f"step {n} mark-{start + n}-\n{p.text}" for n, p in enumerate(corpus[start : start + EACH])]
        text = "\n".join(lines) + "\nRuntimeError: died\n"
        (run / f"rank{start // EACH}.log").write_text(text, encoding="utf-8")
    return [(p.kind, secret) for p in corpus for secret in p.secrets]


def _settings(run: Path) -> list[tuple[str, str]]:
    """A password and a token of every kind in a file of settings, in code and in a dump of the environment."""
    found = []
    for seed, (name, line) in enumerate({
        "config.yaml": "  part{n}: mark-{name}-{n}-\n  hub_token: {s}\n  db_password: '{p}'\n",
        "train.py": "# mark-{name}-{n}-\nclient{n} = Client(token=\"{s}\")\nconnect(password='{p}')\n",
        "env.log": "HOME=/root mark-{name}-{n}-\nTHE_{n}_TOKEN={s}\nDB{n}_PASSWORD={p}\n",
    }.items()):  # fmt: skip
        dice, parts = Dice(70 + seed), []
        for n, (kind, make) in enumerate(TOKENS.items()):
            secret, password = make(dice), dice.password()
            found += [(f"{kind} in {name}", secret), (f"password in {name}", password)]
            parts.append(line.format(n=n, name=name, s=secret, p=password))
        (run / name).write_text("settings:\n" * name.endswith("yaml") + "".join(parts), encoding="utf-8")
    return found


def _named(run: Path) -> list[tuple[str, str]]:
    """Files whose names hold a token."""
    dice = Dice(80)
    found = [(f"{kind} in a name", TOKENS[kind](dice)) for kind in IN_NAMES]
    for n, (_, secret) in enumerate(found):
        (run / f"upload-{secret}.log").write_text(f"step {n} mark-name-{n}-\nRuntimeError: died\n", encoding="utf-8")
    return found


def _texts(body: dict[str, Any]) -> str:
    return "\n".join(
        f"{m.get('content')}\n{json.dumps(m.get('tool_calls', ''), ensure_ascii=False)}" for m in body["messages"]
    )
