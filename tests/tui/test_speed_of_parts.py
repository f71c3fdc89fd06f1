"""What the first frame of the chat waits for: what is imported until then, and what is put off until after it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Drawn without them: a report's models, the settings, the graph, and what reads numbers, text and databases.
LATER = [
    "langgraph", "numpy", "pyarrow", "plotext", "textual_plotext", "textual_serve", "markdown_it", "yaml", "openai",
    "pydantic", "traindoctor.agent.core.report", "traindoctor.agent.core.config", "traindoctor.agent.session.session",
    "traindoctor.agent.reading.run.workspace", "traindoctor.agent.llm",
]  # fmt: skip


def test_the_screen_is_imported_without_what_only_answers_need() -> None:
    code = f"import sys, traindoctor.tui.app; print(*[m for m in {LATER!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_settings_are_read_first_only_where_something_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from traindoctor.agent.doors.commands.chat_command import _something_set

    for name in [n for n in os.environ if n.startswith("DOCTOR_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("DOCTOR_STATE", str(tmp_path / "state"))
    assert not _something_set()
    monkeypatch.setenv("DOCTOR_ALLOW", "everything")
    assert _something_set()  # it is wrong, and that is told before a screen is drawn
    monkeypatch.delenv("DOCTOR_ALLOW")
    (tmp_path / "traindoctor").mkdir()
    assert _something_set()
