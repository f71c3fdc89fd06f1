"""Write docs/faults.md: what a user reads for each way in which a model's server can fail. Takes about a minute.

    .venv/bin/python docs/faults.py
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.llm.model_settings import ModelSettings
from traindoctor.agent.llm.wire import Wire
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session import session
from traindoctor.evals.endpoint import Fault, ScriptedEndpoint
from traindoctor.evals.faults import FAULTS

LOG = "step 1 loss 2.1\n[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
HEAD = """# When the model's server fails

Each row was played over a real connection by `evals/endpoint.py` while `doctor ask --model scripted` diagnosed a small
run that ran out of memory. Every one ended with exit code 0 and a report whose verdict the evidence gave; the last
column is the line that the report adds (`meta.degraded`). Waits were shortened for this page, which `docs/faults.py`
writes.

| what happens | requests | what the report says of it |
|---|---|---|
"""


def told(kind: str, scratch: Path) -> str:
    """A row of the table."""
    run = scratch / "run"
    run.mkdir(exist_ok=True)
    (run / "train.log").write_text(LOG)
    seconds = 1.0 if FAULTS[kind].play in ("drip", "drip-head") else 60.0
    with ScriptedEndpoint([Fault(kind)]) as server:
        model = ModelSettings("scripted", server.url, "k", timeout=0.3, window=32_000, max_seconds=seconds)
        events = list(session.diagnose(Workspace([run]), "why did it die?", state=scratch / "state", model=model))
        asked = len(server.requests)
    report = events[-1].report if isinstance(events[-1], ReportReady) else None
    if report is None or not (report.root_cause.id or "").startswith("memory."):
        raise SystemExit(f"{kind}: no verdict")
    said = next(d for d in report.meta.degraded if d.startswith("model "))
    said = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", said).replace("|", "\\|")
    return f"| {FAULTS[kind].title} | {asked} | {said} |"


def main() -> None:
    """Write the page."""
    Wire.backoff = 0.01
    with tempfile.TemporaryDirectory() as scratch:
        rows = [told(kind, Path(scratch)) for kind in FAULTS]
    Path(__file__).with_name("faults.md").write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")
    sys.stdout.write(f"wrote docs/faults.md, {len(rows)} rows\n")


if __name__ == "__main__":
    main()
