"""A session that is killed while the model thinks goes on where it was; another one with no model goes on offline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from traindoctor.agent.core.events import CallStarted, ReportReady
from traindoctor.agent.llm.model_settings import ModelSettings
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session import session
from traindoctor.evals.endpoint import Say, ScriptedEndpoint

ROOT = Path(__file__).parents[2]
RUN = ROOT / "evals/incidents/memory-gemma2-9b-squad-step10/files"
QUESTION = "out of memory at step 10, why?"
LOOK = Say("First I look.", calls=[("grep_logs", {"pattern": "eager"})])
END = Say(calls=[("diagnosis", {"cause": "memory.sequence_too_long", "sentences": [
    {"text": "Cards ran out of memory in backward.", "cites": ["train.log:13"]}]})])  # fmt: skip
ASK = """
import sys
from pathlib import Path
from traindoctor.agent.session import session
from traindoctor.agent.llm.model_settings import ModelSettings
from traindoctor.agent.reading.run.workspace import Workspace
model = ModelSettings("scripted", sys.argv[1], "k", window=32_000)
for event in session.diagnose(Workspace([Path(sys.argv[2])]), sys.argv[4], state=Path(sys.argv[3]), model=model, session="s1"):
    pass
"""


class Thinking:
    """A model that answers once and then thinks for ever, until it is released."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.release = threading.Event()

    def __call__(self, body: dict[str, Any], number: int) -> Say:
        if number == 1:
            return LOOK
        self.asked.set()
        self.release.wait(60)
        return END


def killed_while_it_thinks(state: Path) -> None:
    thinking = Thinking()
    with ScriptedEndpoint(thinking) as server:
        argv = [sys.executable, "-c", ASK, server.url, str(RUN), str(state), QUESTION]
        process = subprocess.Popen(argv, env={**os.environ, "DOCTOR_STATE": str(state)})
        assert thinking.asked.wait(60)
        time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        thinking.release.set()


def test_a_killed_session_asks_the_model_again_and_repeats_no_call(tmp_path: Path) -> None:
    killed_while_it_thinks(tmp_path)
    with ScriptedEndpoint([END]) as server:
        model = ModelSettings("scripted", server.url, "k", window=32_000)
        events = list(session.diagnose(Workspace([RUN]), QUESTION, state=tmp_path, model=model, session="s1"))
    assert not any(isinstance(e, CallStarted) for e in events)
    assert isinstance(events[-1], ReportReady) and events[-1].report.meta.planner == "llm"
    assert [m["role"] for m in server.requests[0].body["messages"]] == ["system", "user", "assistant", "tool"]


def test_without_a_model_the_evidence_concludes(tmp_path: Path) -> None:
    killed_while_it_thinks(tmp_path)
    events = list(session.diagnose(Workspace([RUN]), QUESTION, state=tmp_path, session="s1"))
    assert isinstance(events[-1], ReportReady)
    report = events[-1].report
    assert (report.meta.planner, report.root_cause.id) == ("offline", "memory.sequence_too_long")
