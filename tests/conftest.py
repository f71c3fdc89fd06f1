"""What all tests share: folders of their own, no colour, no network."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def _cache_of_this_session(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One cache for all tests of a process: compiling the patterns for each would cost minutes."""
    os.environ["DOCTOR_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state folder and a config of its own for each test; nothing of the developer's gets in."""
    from traindoctor.agent.config import settle

    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("DOCTOR_STATE", str(folder))
    monkeypatch.setenv("DOCTOR_CONFIG", str(folder / "config.toml"))
    for name in ("DOCTOR_ALLOW", "DOCTOR_KNOWLEDGE", "DOCTOR_CHROMA_URL", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    settle.cache_clear()


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections leave this machine in no test."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        host = address[0] if isinstance(address, tuple) else "local"
        if host not in ("local", "127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a test tried to reach {host}")
        connect(self, address)  # pyright: ignore

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture
def doctor() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command in a process of its own: `doctor("ask", "why?", "--run", folder)`."""

    def run(*arguments: object, stdin: str | None = None, **more: object) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", "from traindoctor.agent.cli import main; raise SystemExit(main())"]
        return subprocess.run(
            [*argv, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False,
            input=stdin if stdin is not None else "", **more,  # pyright: ignore
        )  # fmt: skip

    return run


@pytest.fixture
def root() -> Path:
    """The repository."""
    return ROOT
